"""`fusefs trash`, `check`, `gc`: the upkeep of an instance."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fusefs.store.findings import human_size
from fusefs.tools.cli.completing import complete_trash
from fusefs.tools.cli.durations import duration
from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import (
    Options,
    common_options,
    open_instance,
    open_session,
)
from fusefs.tools.cli.output import (
    CommandFailed,
    Failure,
    Status,
    human_time,
    say,
    say_json,
    say_nothing_if_none,
    say_table,
    steps,
)

if TYPE_CHECKING:
    from fusefs.session.session import Session
    from fusefs.store.trash import TrashRecord
    from fusefs.store.trash_can import TrashCan


@click.group("trash", cls=Commands)
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
    say_nothing_if_none(rows)


@trash_command.command("restore")
@click.argument("what", metavar="ID|PATH", shell_complete=complete_trash)
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
            raise _not_in_trash(what) from None
    if options.json:
        say_json({"path": render(path)})
    else:
        say(f"Restored: {render(path)}")


def _not_in_trash(what: str) -> CommandFailed:
    text = f"Not in the trash: {what}. `fusefs trash list` shows what is."
    return CommandFailed(Failure("FS_NOT_FOUND", text, Status.REFUSED))


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
@click.argument("which", metavar="[ID|PATH]...", nargs=-1, shell_complete=complete_trash)
@click.option("--older-than", "age", metavar="AGE", type=duration,
              help="Only what was removed longer ago than this: 12h, 30d, 2w.")
@click.option("--yes", is_flag=True, help="Do not ask before everything is dropped.")
@common_options
@click.pass_context
def trash_empty(ctx: click.Context, which: tuple[str, ...], age: float | None, yes: bool) -> None:
    """Drop what was removed, for good: all of it, or what is named.

    A PATH means everything that was removed from there. Asks before everything is dropped, if
    it is run on a terminal.

    \b
    Example:
      fusefs trash empty --older-than 30d
      fusefs trash empty 4711 /project/old.txt
    """
    from fusefs.contract.sessions import OPERATOR
    from fusefs.store.trash_can import TrashCan

    options = ctx.ensure_object(Options)
    if which and age is not None:
        raise click.UsageError("Give entries or --older-than, not both.", ctx)
    with open_instance(options) as instance:
        can = TrashCan(instance)
        if which:
            dropped = _drop(can, which)
        else:
            asks = age is None and not (yes or options.json) and sys.stdin.isatty()
            if asks and (count := len(can.entries())):
                text = f"Drop everything in the trash ({count}) for good?"
                if not click.confirm(text, err=True):
                    failure = Failure("FS_ABORTED", "Nothing was dropped.", Status.REFUSED)
                    raise CommandFailed(failure)
            dropped = can.purge_older_than(age or 0, OPERATOR.name)
    if options.json:
        say_json({"dropped": dropped})
    else:
        say(f"Dropped: {dropped}")


def _drop(can: TrashCan, which: Iterable[str]) -> int:
    """Drop the entries given as ids or old paths, all or none; return how many."""
    from fusefs.contract.paths import resolve
    from fusefs.contract.sessions import OPERATOR

    entries = can.entries()
    chosen: dict[int, TrashRecord] = {}
    for what in which:
        if what.isdecimal():
            found = [entry for entry in entries if entry.id == int(what)]
        else:
            path = b"/" + b"/".join(resolve(what))
            found = [entry for entry in entries if entry.path == path]
        if not found:
            raise _not_in_trash(what)
        chosen |= {entry.id: entry for entry in found}
    for entry in chosen.values():
        can.purge(entry, OPERATOR.name)
    return len(chosen)


@click.command("check")
@common_options
@click.pass_context
def check_command(ctx: click.Context) -> None:
    """Verify the whole instance: entries, contents, journal, trash, repositories.

    Exits with 1 if something is wrong, and says what.

    \b
    Example:
      fusefs check
    """
    from fusefs.tree.instance_care import check

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
@click.option("--parent", type=int, hidden=True, help="End once this process is not the parent.")
@common_options
@click.pass_obj
def gc_command(options: Options, parent: int | None) -> None:
    """Collect contents that nothing refers to any more. Safe while sessions are mounted.

    Also drops trash past its bounds, and idempotency keys (--key) older than 30 days. Ctrl-C
    ends it at any time; nothing is lost, and the next one goes on.

    \b
    Example:
      fusefs gc
    """
    from fusefs.session.upkeep import collect

    with open_instance(options) as instance, steps() as show:

        def progress(step: str) -> None:
            if parent is not None and os.getppid() != parent:
                raise KeyboardInterrupt
            show(step)

        report = collect(instance, progress=progress)
    if options.json:
        say_json(asdict(report))
        return
    lines = [
        (report.contents_removed, f"contents that nothing referred to, "
         f"{human_size(report.bytes_removed)}, were removed"),
        (report.trash_purged, "entries of the trash were past its bounds and dropped"),
        (report.orphans_dropped, "removed files that nobody has open any more were dropped"),
        (report.published, "files that nobody writes any more were stored for good"),
        (report.stray_files, "stray files were removed"),
        (report.unindexed, "contents that nobody sees any more were dropped from the index"),
        (report.clones_removed, "clones of repositories that are not mounted were removed"),
        (report.keys_forgotten, "idempotency keys older than 30 days were forgotten"),
        (report.contents_left_to_backup, "contents are left until a running backup has ended"),
    ]  # fmt: skip
    for count, text in lines:
        if count:
            say(f"{count:,} {text}.")
    if not any(count for count, _ in lines):
        say("Nothing to collect.")
