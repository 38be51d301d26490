"""What lines are searched for: a text, or a regular expression of RE2, which takes linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import re2

from fusefs.contract.errors import InvalidArgument

_MAX_MEMORY = 32 << 20
"""Bytes that RE2 may use for one pattern; where its states do not fit, it is slower."""
_NEAR = 4096
_MOST_PASSED = 4
_SPECIAL = frozenset("\\.^$|?*+()[]{}")

Span = tuple[int, int]
"""Where in a text something begins and ends."""


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
        try:
            encoded = pattern.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"Not a pattern: {pattern!r} is not Unicode.") from None
        if "\n" in pattern:
            raise _in_more_lines(pattern)
        self.names_cr = "\r" in pattern or (not literal and "\\r" in pattern)
        self.is_literal = literal or _SPECIAL.isdisjoint(pattern)
        self._literal = encoded if self.is_literal and not ignore_case else None
        self._compiled = _compile(pattern, self.is_literal, ignore_case)
        self._needed = None
        if not self.is_literal:
            self._compiled = _compile("(?m)" + _by_line(pattern), self.is_literal, ignore_case)
            needed = "" if ignore_case else _needed(pattern)
            self._needed = _compile(needed, True, ignore_case) if needed else None
        # Its cache would keep the memory of patterns that nobody uses any more.
        re2.purge()

    def matches(self, text: bytes) -> Matches:
        """Return the matches in a text of many lines; none goes on in the next line."""
        return Matches(self._compiled, self._literal, self._needed, text)

    def spans(self, line: str) -> Iterator[Span]:
        """Yield where matches in one line, without its end, begin and end: its characters."""
        for found in self._compiled.finditer(line):
            yield found.start(), found.end()


class Matches:
    """The matches in one text, found one after the other."""

    def __init__(
        self,
        compiled: re2._Regexp,
        literal: bytes | None,
        needed: re2._Regexp | None,
        text: bytes,
    ) -> None:
        """Begin at the beginning.

        Args:
            compiled: the pattern.
            literal: the text that it is, if it is one.
            needed: what is in each match, if anything is known to be.
            text: the text.
        """
        self._compiled = compiled
        self._literal = literal
        self._text = text
        self._left: Iterator[re2._Match] | None = iter(())
        found = None if needed is None else needed.search(text)
        if needed is None or found is not None:
            self._go_to(0 if found is None else text.rfind(b"\n", 0, found.start()) + 1)

    def _go_to(self, place: int) -> Iterator[re2._Match]:
        # An iterator: to begin a search costs more than to go on with one.
        self._left = self._compiled.finditer(self._text, place)
        return self._left

    def find(self, place: int) -> Span | None:
        """Return the first match at or behind `place`, where a line begins; further on each
        time. Other threads go on meanwhile."""
        if self._literal is not None:
            # Where matches are dense, to call the engine costs more than all else.
            near = self._text.find(self._literal, place, place + _NEAR)
            if near >= 0:
                self._left = None
                return near, near + len(self._literal)
        for passed, match in enumerate(self._left or self._go_to(place)):
            found: Span = match.span()
            if found[0] >= place:
                return found
            if passed == _MOST_PASSED:
                return next((m.span() for m in self._go_to(place) if m.start() >= place), None)
        return None


def _compile(pattern: str, literal: bool, ignore_case: bool) -> re2._Regexp:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.literal = literal
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        raise InvalidArgument(f"Not a pattern for RE2: {why}") from None


def _in_more_lines(pattern: str) -> InvalidArgument:
    return InvalidArgument(
        f"Not a pattern for lines: {pattern!r} has a line break, and each line is searched alone."
    )


_TOKEN = re.compile(
    r"""
    \\Q (?P<quoted>.*?) (?: \\E | \Z )                    # a literal text
    | \\[pP] (?: \{[^}]*\} | . ) | \\x (?: \{[^}]*\} | .. ) | \\[0-7]+
    | \\ (?P<escaped>\W)
    | \\.                                                 # what else a backslash makes special
    | \[ \^? \]? (?: \\. | \[:\^?\w+:\] | [^\]\\] )* \]   # a class
    | \(\? \w* (?: - (?P<off>\w+) )?                       # flags, or a kind of group
    | [*?] | \{\d+,?\d*\}                                 # what makes optional
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
"""A part of a pattern that RE2 takes."""


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


def _needed(pattern: str) -> str:
    """Return a text that is in all matches of a valid pattern, "" where none is known."""
    runs, depth = [""], 0
    for token in _TOKEN.finditer(pattern):
        text = token["quoted"] or token["escaped"] or token[0]
        is_plain = text != token[0] or (len(text) == 1 and text not in _SPECIAL)
        is_group = token[0].startswith("(")
        if (is_group and "i" in text) or (token[0] == "|" and not depth):
            return ""  # other cases will do; other alternatives will do
        if is_plain and not depth:
            runs[-1] += text
            continue
        if text in "*?" or text[0] == "{":
            runs[-1] = runs[-1][:-1]
        depth += is_group - (token[0] == ")")
        runs.append("")
    longest = max(runs, key=len)
    return longest if len(longest) > 1 else ""
