"""`fusefs log`: who changed what, when, from what to what; and whether all of it is there."""

from __future__ import annotations

import json
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fusefs.tools.cli.durations import moment
from fusefs.tools.cli.groups import Commands
from fusefs.tools.cli.options import (
    Options,
    common_options,
    complete_session,
    find_session,
    open_instance,
)
from fusefs.tools.cli.output import (
    VISIBLE_CONTROLS,
    Status,
    Terminated,
    human_time,
    say,
    say_json,
    say_nothing_if_none,
    steps,
)

if TYPE_CHECKING:
    from fusefs.contract.paths import Path as TreePath
    from fusefs.store.instance import Instance
    from fusefs.store.journal import JournalRecord
    from fusefs.store.journal_chain import Head

_HEADS = ("change", "when", "session", "what", "from", "to", "path")
_FOLLOWED_WIDTHS = (6, 19, 8, 10, 8, 8)
_SHORT = 8
"""Hexadecimal digits of a hash in the table."""
_LOOK_EVERY = 5.0
"""Seconds after which a follower looks even though nobody rang: a ring may be lost."""
_MOST_PROBLEMS = 1000
_DEFAULT_LIMIT = 50


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which changes are asked for; None asks for all. Times in nanoseconds."""

    session: str | None
    top: TreePath | None
    since: int | None
    until: int | None

    @property
    def takes_all(self) -> bool:
        return self == _Filter(None, None, None, None)

    def takes(self, record: JournalRecord) -> bool:
        return (
            self.session in {None, record.actor}
            and (self.since is None or record.time >= self.since)
            and (self.until is None or record.time < self.until)
            and (self.top is None or _concerns(record, self.top))
        )


@click.group("log", cls=Commands, invoke_without_command=True)
@click.option("-n", "--limit", type=click.IntRange(min=1),
              help="How many changes, counted from the newest.  [default: 50; all with --since "
              "or --until]")
@click.option("--session", "session_name", metavar="NAME", shell_complete=complete_session,
              help="Only changes by this session ('-': by the owner of the instance).")
@click.option("--path", metavar="PATH", help="Only changes at or below this path.")
@click.option("--since", metavar="TIME", type=moment,
              help="Only changes from then on: 2h (ago), 2026-03-01, 2026-03-01T14:30.")
@click.option("--until", metavar="TIME", type=moment, help="Only changes before then.")
@click.option("-f", "--follow", is_flag=True,
              help="Go on showing changes as they come, until Ctrl-C.")
@common_options
@click.pass_context
def log_command(
    ctx: click.Context,
    limit: int | None,
    session_name: str | None,
    path: str | None,
    since: int | None,
    until: int | None,
    follow: bool,
) -> None:
    """Show who changed what, when, and the hashes of what it was and is; oldest first.

    A hash is the SHA-256 of a file's content, a link's target, an attribute's value or a
    definition; --json has all of its digits and details. With --follow, --json prints one
    object a line.

    \b
    Example:
      fusefs log -n 20
      fusefs log --session work --path /project/src --since 2h
      fusefs log --follow
      fusefs log verify
    """
    if ctx.invoked_subcommand is not None:
        return
    if follow and until is not None:
        raise click.UsageError("--follow has no end: leave out --until.", ctx)
    from fusefs.contract.paths import resolve

    options = ctx.ensure_object(Options)
    wanted = _Filter(session_name, None if path is None else resolve(path), since, until)
    if limit is None and since is None and until is None:
        limit = _DEFAULT_LIMIT
    with open_instance(options) as instance:
        seen = instance.journal.last()
        records = _newest(instance, seen, limit, wanted)
        if session_name is not None and not records:
            _check_known(instance, session_name)
        if follow:
            _follow(instance, seen, records, wanted, as_json=options.json)
            return
    if options.json:
        say_json({"changes": [_log_entry(record) for record in records]})
        return
    rows = [_row(record) for record in records]
    if rows:
        widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
        _say_rows([_HEADS, *rows], widths)
    say_nothing_if_none(rows)


def _newest(
    instance: Instance, last: int, limit: int | None, wanted: _Filter
) -> list[JournalRecord]:
    """Return the newest changes up to the record `last`, oldest first."""
    start = max(0, last - limit) if limit is not None and wanted.takes_all else 0
    chosen = (r for r in _all_between(instance, start, last) if wanted.takes(r))
    return list(deque(chosen, maxlen=limit))


def _check_known(instance: Instance, name: str) -> None:
    """Check that a session is defined, or was at some time.

    Raises:
        InstanceError: it never was.
    """
    from fusefs.contract.sessions import OPERATOR
    from fusefs.store.journal import UPKEEP, Op

    if name not in {OPERATOR.name, UPKEEP} and not any(
        name == record.actor or (record.op == Op.SESSION and record.path == name.encode())
        for record in _all_between(instance, 0, instance.journal.last())
    ):
        find_session(instance, name)


def _concerns(record: JournalRecord, top: TreePath) -> bool:
    from fusefs.contract.paths import is_at_or_below, resolve
    from fusefs.store.journal import Op

    # Of a session's definition the record has the name; some have no path.
    return record.op != Op.SESSION and any(
        path and is_at_or_below(resolve(path), top) for path in _paths(record)
    )


def _paths(record: JournalRecord) -> tuple[bytes, bytes | None]:
    """Return the path that a record is about and, of a move, the one moved to."""
    path, nul, target = record.path.partition(b"\0")
    return path, target if nul else None


def _all_between(instance: Instance, after: int, last: int) -> Iterator[JournalRecord]:
    while after < last and (records := instance.journal.since(after)):
        for record in records:
            if record.seq <= last:
                yield record
        after = records[-1].seq


def _follow(
    instance: Instance,
    seen: int,
    records: Iterable[JournalRecord],
    wanted: _Filter,
    *,
    as_json: bool,
) -> None:
    """Show `records`, then every later change that is wanted, until Ctrl-C."""
    if as_json:

        def show(record: JournalRecord) -> None:
            click.echo(json.dumps(_log_entry(record)))
    else:
        _say_rows([_HEADS], _FOLLOWED_WIDTHS)

        def show(record: JournalRecord) -> None:
            _say_rows([_row(record)], _FOLLOWED_WIDTHS)

    try:
        for record in records:
            show(record)
        while True:
            # Drained first: who rings after this has a record that is read below, or wakes us.
            instance.bell.drain()
            last = instance.journal.last()
            for record in _all_between(instance, seen, last):
                if wanted.takes(record):
                    show(record)
            seen = last
            select.select([instance.bell], [], [], _LOOK_EVERY)
    except Terminated:
        raise
    except KeyboardInterrupt:
        return  # that is how it ends


def _say_rows(rows: Iterable[tuple[str, ...]], widths: Iterable[int]) -> None:
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        say("  ".join((*cells, row[-1])).rstrip())


def _row(record: JournalRecord) -> tuple[str, ...]:
    return (
        str(record.seq),
        human_time(record.time),
        record.actor,
        record.op.name.lower(),
        record.before.hex()[:_SHORT] or "-",
        record.after.hex()[:_SHORT] or "-",
        _about(record),
    )


def _about(record: JournalRecord) -> str:
    """Return what a record is about: path or name, and what changed beside the content."""
    from fusefs.contract.paths import decode
    from fusefs.store.journal import Op

    path, target = _paths(record)
    text = decode(path)
    if not path and record.node:
        text = f"(node {record.node}, removed)"
    if target is not None:
        sign = "<->" if record.op == Op.EXCHANGE else "->"
        text = f"{text} {sign} {decode(target)}"
    changes = _changes(record)
    shown = f"{text}  ({', '.join(changes)})" if changes else text
    return shown.translate(VISIBLE_CONTROLS)  # no name can look like a row of its own


def _changes(record: JournalRecord) -> list[str]:
    from fusefs.store.journal import Op

    detail = _detail(record)
    match record.op:
        case Op.ATTRIBUTES:
            return [_attribute_change(name, *values) for name, values in detail.items()]
        case Op.XATTR:
            return [str(name) for name in detail.values()]
        case Op.SESSION | Op.BIND | Op.RIGHT:
            return _definition_changes(detail.get("before"), detail.get("after"))
        case Op.COMMIT:
            return [f"{str(detail.get('commit', ''))[:_SHORT]} on {detail.get('branch', '')}"]
        case Op.FORGE:
            return [_forge_detail(name, value) for name, value in _what_first(detail)]
        case Op.COLLECT:
            return [f"{name.replace('_', ' ')} {count}" for name, count in detail.items() if count]
        case _:
            return []


def _what_first(detail: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return what was done on a forge, then with what."""
    return sorted(detail.items(), key=lambda item: item[0] in ("as", "at", "head", "into"))


def _forge_detail(name: str, value: Any) -> str:
    return f"{name} {str(value)[:_SHORT] if name in ('as', 'at') else value}"


def _attribute_change(name: str, before: Any, after: Any) -> str:
    if name.endswith("time"):
        before, after = (None if t is None else human_time(t) for t in (before, after))
    return f"{name} {after}" if before is None else f"{name} {before} -> {after}"


def _definition_changes(before: Any, after: Any) -> list[str]:
    """Return what was defined, taken away or altered in a definition, rule by rule."""
    if after is None:
        return ["removed"]
    new = before is None
    old, now = _flat(before or {}), _flat(after)
    if new:
        return [f"{key} {value}" for key, value in now.items() if value]
    return [
        f"{key} {old.get(key) or 'none given'} -> {now.get(key) or 'none given'}"
        for key in (now | old)
        if old.get(key) != now.get(key)
    ]


def _flat(definition: dict[str, Any]) -> dict[str, str]:
    """Return a definition with each grant and floor under a key of its own."""
    flat: dict[str, str] = {}
    for key, value in definition.items():
        if isinstance(value, dict):
            flat |= {f"{key.removesuffix('s')} {path}": level for path, level in value.items()}
        elif key != "name":
            flat[key] = str(value)
    return flat


def _detail(record: JournalRecord) -> dict[str, Any]:
    try:
        detail = json.loads(record.detail or b"{}")
    except ValueError:
        detail = None
    return detail if isinstance(detail, dict) else {"damaged": "see `fusefs log verify`"}


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
        "node": record.node or None,
        "sha256_before": record.before.hex() or None,
        "sha256_after": record.after.hex() or None,
        "detail": _detail(record),
    }


def _head(text: str) -> Head:
    from fusefs.store.journal_chain import Head

    try:
        return Head.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@log_command.command("verify")
@click.option("--expect", metavar="SEQ:HASH", type=_head,
              help="A head that was noted earlier, which must still be in the journal.")
@common_options
@click.pass_context
def verify_command(ctx: click.Context, expect: Head | None) -> None:
    """Verify that no record of the journal was altered or taken out.

    Prints the head, SEQ:HASH, which vouches for all records up to it. Keep it where nobody who
    can write to the instance can change it: with --expect it tells even a journal that was cut
    off or written anew as a whole. Exits with 1 if something is wrong, and says what.

    \b
    Example:
      fusefs log verify
      fusefs log verify --json | jq -r .head >> /mnt/elsewhere/heads
      fusefs log verify --expect "$(tail -n 1 /mnt/elsewhere/heads)"
    """
    from fusefs.store.journal_chain import Verdict, verify

    options = ctx.ensure_object(Options)
    verdict = Verdict()
    problems: list[str] = []
    count = 0
    with open_instance(options) as instance, steps() as step, instance.kv.read() as txn:
        total = instance.journal.last()
        tell = _progress(step, total)
        for problem in verify(txn, verdict, expect=expect, progress=tell):
            count += 1
            if count <= _MOST_PROBLEMS:
                problems.append(problem)
    if options.json:
        say_json({
            "records": verdict.records,
            "head": str(verdict.head),
            "expected": None if expect is None else str(expect),
            "problem_count": count,
            "problems": problems,
        })  # fmt: skip
    else:
        _say_verdict(verdict.records, verdict.head, expect, problems, count)
    ctx.exit(Status.REFUSED if count else Status.OK)


def _progress(step: Callable[[str], None], total: int) -> Callable[[int], None]:
    return lambda records: step(f"verified {records:,} of {total:,} records")


def _say_verdict(
    records: int, head: Head, expect: Head | None, problems: list[str], count: int
) -> None:
    for problem in problems:
        say(problem)
    if count > len(problems):
        say(f"... and {count - len(problems):,} more")
    if count:
        noun = "problem" if count == 1 else "problems"
        say(f"{records:,} records, {count:,} {noun}. A backup shows what was there.")
        return
    say(f"{records:,} records, unbroken; the head is {head}")
    if expect is not None:
        say(f"The head noted at record {expect.seq} is in it.")
    else:
        say("Keep the head elsewhere: --expect SEQ:HASH then finds even what was cut off or "
            "written anew.")  # fmt: skip
