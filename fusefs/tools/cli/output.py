"""What the commands print, and what their failures are called.

Names and paths are text with ``surrogateescape``. On standard output the original bytes come
out again; in JSON such a byte stands as ``\\udcXX``, as Python's own json module writes it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import click


class Status(IntEnum):
    """Exit statuses of the command."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    INSTANCE = 3
    FAILED = 4
    INTERRUPTED = 130
    UNREAD = 141
    TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command failed: a stable code for programs, a text for people, the exit status."""

    code: str
    text: str
    status: int


class CommandFailed(Exception):
    """A failure that is already put in words."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Terminated(KeyboardInterrupt):
    """The process was asked to end; it cleans up as after Ctrl-C."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block with `Terminated`, where they would kill."""

    def end(number: int, frame: object) -> None:
        # Another one is not to disturb the cleaning up.
        signal.signal(number, signal.SIG_IGN)
        raise Terminated

    numbers = (signal.SIGTERM, signal.SIGHUP)
    taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def classify(error: BaseException) -> Failure | None:
    """Return what `error` is to the caller of a command; None for a fault in this program."""
    match error:
        case CommandFailed():
            return error.failure
        # click makes its own exception of an interruption.
        case Terminated() | click.Abort(__cause__=Terminated()):
            return Failure("FS_ABORTED", "Cancelled.", Status.TERMINATED)
        case KeyboardInterrupt() | click.Abort():
            return Failure("FS_ABORTED", "Cancelled.", Status.INTERRUPTED)
        case click.ClickException():
            return Failure("FS_USAGE", error.format_message(), Status.USAGE)
        case OSError():
            return Failure("FS_IO", describe_os_error(error), Status.FAILED)
        case ModuleNotFoundError(name=str(name)) if not name.startswith("fusefs."):
            text = f"Missing Python package: {name}. `fusefs doctor` says more."
            return Failure("FS_UNAVAILABLE", text, Status.FAILED)
        case _:
            return _classify_own(error)


def _classify_own(error: BaseException) -> Failure | None:
    # Imported late: these rooms open a database library, which a wrong option has no need of.
    from fusefs.contract.errors import Cancelled, ContractError, InvalidArgument
    from fusefs.daemon.mountpoint import MountError
    from fusefs.store.instance import InstanceError

    match error:
        case Cancelled():
            return Failure(error.code, error.text, Status.INTERRUPTED)
        case InvalidArgument():
            return Failure(error.code, error.text, Status.USAGE)
        case ContractError():
            return Failure(error.code, error.text, Status.REFUSED)
        case MountError():
            return Failure("FS_MOUNT", str(error), Status.INSTANCE)
        case InstanceError():
            return Failure("FS_INSTANCE", str(error), Status.INSTANCE)
        case _:
            return None


def describe_os_error(error: OSError) -> str:
    """Return `error` as command line tools word it: ``path: reason``."""
    reason = error.strerror or str(error)
    name = error.filename
    return f"{os.fsdecode(name)}: {reason}" if isinstance(name, str | bytes) else reason


def say(text: str, *, err: bool = False) -> None:
    """Print a line. A terminal is not sent control characters out of names, a line end neither:
    else a name could look like a line of ours."""
    click.echo(as_shown(text, err=err).encode("utf-8", "surrogateescape"), err=err)


def as_shown(text: str, *, err: bool = False) -> str:
    """Return a text as it may be sent to where a command prints (see `say`)."""
    on_terminal = (sys.stderr if err else sys.stdout).isatty()
    return text.translate(_SHOWN_ON_TERMINALS) if on_terminal else text


@contextmanager
def lines_printed() -> Iterator[Callable[[str], None]]:
    """Give a function that prints a line as it is, many at a time where no terminal waits."""
    waiting = bytearray()
    most = 0 if sys.stdout.isatty() else _BLOCK

    def print_line(text: str) -> None:
        waiting.extend(text.encode("utf-8", "surrogateescape") + b"\n")
        if len(waiting) > most:
            flush()

    def flush() -> None:
        click.echo(bytes(waiting), nl=False)
        waiting.clear()

    try:
        yield print_line
    finally:
        flush()


_BLOCK = 1 << 16
VISIBLE_CONTROLS = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160))} | {10: "\\n"}
"""For `str.translate`: control characters that are seen instead of obeyed."""
_SHOWN_ON_TERMINALS = {c: s for c, s in VISIBLE_CONTROLS.items() if chr(c) != "\t"}


def say_json(document: Mapping[str, Any], *, one_line: bool = False) -> None:
    """Print one JSON document; on one line where others follow."""
    click.echo(json.dumps(document, indent=None if one_line else 2))


def say_table(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> None:
    """Print rows in aligned columns, the last one as wide as it likes."""
    table = [list(heads), *rows] if heads and rows else list(rows)
    if not table:
        return
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        say("  ".join((*cells, row[-1])).rstrip())


def say_nothing_if_none(rows: Sequence[object]) -> None:
    """Tell a person that there are no rows; not on standard output, which programs read."""
    if not rows:
        say("Nothing.", err=True)


def human_time(time_ns: int) -> str:
    """Return nanoseconds since the epoch as local time, to the second."""
    from datetime import datetime

    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Give a function that shows what long work is doing, on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
