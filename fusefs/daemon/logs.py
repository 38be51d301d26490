"""Log lines of a mount: one a line, in fields, for people (``text``) or programs (``json``).

Any module logs with Python's `logging`; what is more than a message goes in as fields
(`about`). A line never holds the content of a file or the value of an attribute: whoever logs
a request names it by operation and path (`fusefs.daemon.guard`).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TextIO

from fusefs.contract.errors import ContractError

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FAILED = "FS_IO"
"""The code of what is no refusal of the contract: the store or the system failed."""

_OURS = "fusefs"
_FIELDS = "fusefs_fields"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))
"""Levels of `logging` and of syslog(3), from above."""


def about(
    op: str = "", error: BaseException | None = None, /, **fields: str | int
) -> dict[str, object]:
    """Return what to give `logging` as ``extra``: the operation, why it failed, other fields.

    Args:
        op: the operation.
        error: its code and errno are shown, not its text.
        fields: further ones, such as ``path``.
    """
    all_fields = {"op": op, **fields} if op else dict(fields)
    if isinstance(error, ContractError):
        all_fields |= {"code": error.code, "errno": errno_name(error.errno)}
    elif isinstance(error, OSError):
        all_fields |= {"code": FAILED, "errno": errno_name(error.errno or 0)}
    return {_FIELDS: all_fields}


def errno_name(number: int) -> str:
    """Return the name of an errno, as ``ENOENT``."""
    return errno.errorcode.get(number, str(number))


def set_up(session: str, form: str, level: str, stream: TextIO | None = None) -> None:
    """Have everything that this process logs written to `stream` (standard error).

    Args:
        session: the session that is served; it stands in every line.
        form: one of `FORMATS`.
        level: one of `LEVELS`, from which on it is written. Other libraries stay at ``info``.
        stream: where to.
    """
    stream = sys.stderr if stream is None else stream
    handler = _Quiet(stream)
    handler.setFormatter(
        JsonLines(session) if form == "json" else TextLines(session, to_journal=is_journal(stream))
    )
    number = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(number, logging.INFO), force=True)
    logging.getLogger(_OURS).setLevel(number)


def is_journal(stream: TextIO) -> bool:
    """Tell whether systemd's journal reads the stream (``JOURNAL_STREAM`` of systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Quiet(logging.StreamHandler[TextIO]):
    """Drops a line that cannot be written: nobody reads a traceback on a disk that is full."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  `logging` calls it so
        """Drop the line if the stream refuses it; a fault in it is told as ever."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _Lines(logging.Formatter):
    def __init__(self, session: str) -> None:
        super().__init__()
        self._session = session

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        """Return everything that a record says, by field."""
        when = datetime.fromtimestamp(record.created).astimezone()
        given: Mapping[str, str] = getattr(record, _FIELDS, {})
        found = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "session": self._session,
            "logger": record.name.removeprefix(f"{_OURS}."),
            **given,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return found


class JsonLines(_Lines):
    """One JSON object a line. A byte of a name that is not UTF-8 is a lone surrogate in it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json.dumps(self.fields(record))


class TextLines(_Lines):
    """``key=value`` pairs (logfmt).

    A value is quoted where it has to be; in quotes ``\\`` escapes, and a byte that is not
    UTF-8 stands as ``\\xNN``. The journal of systemd keeps times itself, and takes the level as
    a number in front.
    """

    def __init__(self, session: str, *, to_journal: bool = False) -> None:
        super().__init__(session)
        self._to_journal = to_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = self.fields(record)
        prefix = ""
        if self._to_journal:
            del fields["time"]
            priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
            prefix = f"<{priority}>"
        return prefix + " ".join(f"{key}={_quoted(str(value))}" for key, value in fields.items())


def _quoted(value: str) -> str:
    escaped = "".join(map(_escaped, value))
    if escaped == value and value and " " not in value and "=" not in value:
        return value
    return f'"{escaped}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
