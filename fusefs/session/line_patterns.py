"""What lines are searched for: a text, or a regular expression of RE2, which takes linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import re2

from fusefs.contract.errors import InvalidArgument

_MAX_MEMORY = 32 << 20
"""Bytes that RE2 may use for one pattern; where its states do not fit, it is slower."""

_NEAR = 4096
_SPECIAL = frozenset("\\.^$|?*+()[]{}")


class LinePattern:
    """A compiled pattern, whose matches lie within a line. For any thread.

    ``^`` and ``$`` (also ``\\A`` and ``\\z``) are where a line begins and ends; ``\\w``, ``\\d``,
    ``\\s`` and ``\\b`` are about ASCII, as RE2 has it; ``.``, classes, ``\\pL`` and upper and lower
    case are about Unicode.

    Attributes:
        is_literal: it is a text, for which the engine is as fast as memory.
        names_cr: it tells of carriage returns: else those of a line's end are no part of the line.
    """

    def __init__(self, pattern: str, *, literal: bool = False, ignore_case: bool = False) -> None:
        """Compile `pattern`.

        Raises:
            InvalidArgument: it is none, or one that no line can match.
        """
        literal = literal or _SPECIAL.isdisjoint(pattern)
        options = re2.Options()
        options.case_sensitive = not ignore_case
        options.literal = literal
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        options.max_mem = _MAX_MEMORY
        self.names_cr = "\r" in pattern or (not literal and "\\r" in pattern)
        try:
            encoded = pattern.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"Not a pattern: {pattern!r} is not Unicode.") from None
        if "\n" in pattern:
            raise _in_more_lines(pattern)
        self.is_literal = literal
        self._literal = encoded if literal and not ignore_case else None
        self._compiled = _compile(pattern, options)
        if not literal:
            self._compiled = _compile("(?m)" + _by_line(pattern), options)
        # Its cache would keep the memory of patterns that nobody uses any more.
        re2.purge()

    def find(self, text: bytes, start: int) -> tuple[int, int] | None:
        """Return where the first match at or behind `start` begins and ends."""
        if self._literal is not None:
            # Where matches are dense, to call the engine takes longer than all else.
            near = text.find(self._literal, start, start + _NEAR)
            if near >= 0:
                return near, near + len(self._literal)
        return self.find_far(text, start)

    def find_far(self, text: bytes, start: int) -> tuple[int, int] | None:
        """Do as `find`, where there may be no match for long; other threads go on meanwhile."""
        found = self._compiled.search(text, start) if start <= len(text) else None
        return None if found is None else (found.start(), found.end())

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        """Yield where matches in one line, without its end, begin and end: its characters."""
        for found in self._compiled.finditer(line):
            yield found.start(), found.end()


def _compile(pattern: str, options: re2.Options) -> re2._Regexp:
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        raise InvalidArgument(f"Not a pattern for RE2: {why}") from None


def _in_more_lines(pattern: str) -> InvalidArgument:
    return InvalidArgument(
        f"Not a pattern for lines: {pattern!r} has a line break, and each line is searched alone."
    )


def _by_line(pattern: str) -> str:
    """Return a valid pattern that is about a text of many lines what `pattern` is about one."""

    def about_line(token: re.Match[str]) -> str:
        match token[0]:
            case "\\n":
                raise _in_more_lines(pattern)
            case "\\A":
                return "^"
            case "\\z":
                return "$"
            case "\\C":
                raise InvalidArgument("Not a pattern for text: \\C stands for a byte.")
        if token["off"] and "m" in token["off"]:
            raise InvalidArgument("Not a pattern for lines: the flag m cannot be switched off.")
        return token[0]

    return _TOKEN.sub(about_line, pattern)


_TOKEN = re.compile(
    r"""
    \\Q .*? (?: \\E | \Z )                                  # a literal text
    | \\.                                                   # what a backslash makes special
    | \[ \^? \]? (?: \\. | \[:\^?\w+:\] | [^\]\\] )* \]     # a class
    | \(\? \w* - (?P<off>\w+)                               # flags that are switched off
    """,
    re.VERBOSE | re.DOTALL,
)
