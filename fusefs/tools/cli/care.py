"""`fusefs log`, `trash`, `check`, `gc`: what happened in an instance, and its upkeep."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.durations import duration
from fusefs.tools.cli.options import Options, common_options, open_instance, open_session
from fusefs.tools.cli.output import (
    CommandFailed,
    Failure,
    Status,
    human_size,
    human_time,
    say,
    say_json,
    say_table,
    steps,
)

if TYPE_CHECKING:
    from fusefs.contract.paths import Path as TreePath
    from fusefs.session.session import Session
    from fusefs.store.instance import Instance
    from fusefs.store.journal import JournalRecord


@click.command("log")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1),
              help="How many changes, counted from the newest.")
@click.option("--session", "session_name", metavar="NAME",
              help="Only changes by this session ('-': by the owner of the instance).")
@click.option("--path", metavar="PATH", help="Only changes at or below this path.")
@common_options
@click.pass_obj
def log_command(options: Options, limit: int, session_name: str | None, path: str | None) -> None:
    """Show what was changed, when and by whom, oldest first.

    \b
    Example:
      fusefs log -n 20
      fusefs log --session work --path /project/src
    """
    from fusefs.contract.paths import decode

    with open_instance(options) as instance:
        records = _newest(instance, limit, session_name, path)
    if options.json:
        say_json({"changes": [_log_entry(record) for record in records]})
        return
    rows = [
        (
            str(record.seq),
            human_time(record.time),
            record.actor,
            record.op.name.lower(),
            decode(record.path),
        )
        for record in records
    ]
    say_table(rows, heads=("change", "when", "session", "what", "path"))


def _newest(
    instance: Instance, limit: int, session_name: str | None, path: str | None
) -> list[JournalRecord]:
    from fusefs.contract.paths import resolve

    if session_name is None and path is None:
        return list(_all_since(instance, max(0, instance.journal.last() - limit)))
    top = None if path is None else resolve(path)
    chosen = (
        record
        for record in _all_since(instance, 0)
        if session_name in {None, record.actor} and (top is None or _concerns(record, top))
    )
    return list(deque(chosen, maxlen=limit))


def _concerns(record: JournalRecord, top: TreePath) -> bool:
    from fusefs.contract.paths import is_at_or_below, resolve
    from fusefs.store.journal import Op

    # Of a session's definition the record has the name.
    return record.op != Op.SESSION and any(
        path is not None and is_at_or_below(resolve(path), top) for path in _paths(record)
    )


def _paths(record: JournalRecord) -> tuple[bytes, bytes | None]:
    """Return the path that a record is about and, of a move, the one moved to."""
    path, nul, target = record.path.partition(b"\0")
    return path, target if nul else None


def _all_since(instance: Instance, seq: int) -> Iterator[JournalRecord]:
    while records := instance.journal.since(seq):
        yield from records
        seq = records[-1].seq


def _log_entry(record: JournalRecord) -> dict[str, Any]:
    from fusefs.contract.paths import decode

    path, target = _paths(record)
    return {
        "seq": record.seq,
        "time_ns": record.time,
        "session": record.actor,
        "what": record.op.name.lower(),
        "path": decode(path),
        "target": None if target is None else decode(target),
        "sha256_before": record.before.hex() or None,
        "sha256_after": record.after.hex() or None,
    }


@click.group("trash")
@common_options
def trash_command() -> None:
    """List, restore or drop what was removed."""


@trash_command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="At most so many, newest first.")
@common_options
@click.pass_obj
def trash_list(options: Options, limit: int | None) -> None:
    """List what was removed, newest first, with the id that `restore` takes.

    \b
    Example:
      fusefs trash list
    """
    from fusefs.contract.paths import decode
    from fusefs.store.trash_can import TrashCan

    with open_instance(options) as instance:
        can = TrashCan(instance)
        newest = sorted(can.entries(), key=lambda entry: entry.id, reverse=True)[:limit]
        entries: list[dict[str, Any]] = [
            {
                "id": entry.id,
                "time_ns": entry.time,
                "session": entry.actor,
                "kind": entry.kind.name.lower(),
                "size": can.size(entry),
                "path": decode(entry.path),
            }
            for entry in newest
        ]
    if options.json:
        say_json({"entries": entries})
        return
    rows = [
        (
            str(entry["id"]),
            human_time(entry["time_ns"]),
            entry["session"],
            entry["kind"],
            human_size(entry["size"]),
            entry["path"],
        )
        for entry in entries
    ]
    say_table(rows, heads=("id", "removed", "session", "kind", "size", "path"))


@trash_command.command("restore")
@click.argument("what", metavar="ID|PATH")
@click.option("--to", metavar="PATH", help="Restore as this path instead of the old one.")
@common_options
@click.pass_obj
def trash_restore(options: Options, what: str, to: str | None) -> None:
    """Put a removed file or directory back where it was.

    A PATH means what was removed from there last.

    \b
    Example:
      fusefs trash restore /project/old.txt
      fusefs trash restore 4711 --to /project/older.txt
    """
    from fusefs.contract.paths import render
    from fusefs.session.restore import restore

    with open_session(options, None) as session:
        try:
            path = restore(session, _trash_id(session, what), to)
        except KeyError:
            text = f"Not in the trash: {what}. `fusefs trash list` shows what is."
            raise CommandFailed(Failure("FS_NOT_FOUND", text, Status.REFUSED)) from None
    if options.json:
        say_json({"path": render(path)})
    else:
        say(f"Restored: {render(path)}")


def _trash_id(session: Session, what: str) -> int:
    """Return the id of a trash entry, given as one or as its old path.

    Raises:
        KeyError: nothing was removed from that path.
    """
    from fusefs.store.trash_can import TrashCan

    if what.isdecimal():
        return int(what)
    path = b"/" + b"/".join(session.resolve(what))
    for entry in reversed(TrashCan(session.view.instance).entries()):
        if entry.path == path:
            return entry.id
    raise KeyError(what)


@trash_command.command("empty")
@click.option("--older-than", "age", metavar="AGE", type=duration, default="0s",
              help="Only what was removed longer ago than this: 12h, 30d, 2w.")
@common_options
@click.pass_obj
def trash_empty(options: Options, age: float) -> None:
    """Drop what was removed, for good.

    \b
    Example:
      fusefs trash empty --older-than 30d
    """
    from fusefs.store.trash_can import TrashCan

    with open_instance(options) as instance:
        dropped = TrashCan(instance).purge_older_than(age)
    if options.json:
        say_json({"dropped": dropped})
    else:
        say(f"Dropped: {dropped}")


@click.command("check")
@common_options
@click.pass_context
def check_command(ctx: click.Context) -> None:
    """Verify the whole instance: entries, contents, journal, trash.

    Exits with 1 if something is wrong, and says what.

    \b
    Example:
      fusefs check
    """
    from fusefs.store.check import check

    options = ctx.ensure_object(Options)
    with open_instance(options) as instance, steps() as progress:
        report = check(instance, progress=progress)
    if options.json:
        say_json(asdict(report))
    else:
        for problem in report.problems:
            say(problem)
        counts = {k: v for k, v in asdict(report).items() if isinstance(v, int)}
        say(", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in counts.items()))
        say(f"{len(report.problems)} problems" if report.problems else "No problems found.")
    ctx.exit(Status.REFUSED if report.problems else Status.OK)


@click.command("gc")
@common_options
@click.pass_obj
def gc_command(options: Options) -> None:
    """Collect contents that nothing refers to any more. Safe while sessions are mounted.

    \b
    Example:
      fusefs gc
    """
    from fusefs.store.maintenance import collect

    with open_instance(options) as instance, steps() as progress:
        report = collect(instance, progress=progress)
    if options.json:
        say_json(asdict(report))
    else:
        say(", ".join(f"{k.replace('_', ' ')}: {v:,}" for k, v in asdict(report).items()))
