"""Searching the text of files that a session sees (contract section 9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from fusefs.contract.paths import decode
from fusefs.session.line_patterns import LinePattern, Span
from fusefs.session.text_batches import FileMatches
from fusefs.session.texts import Texts
from fusefs.session.visible_files import Unread

LINE_MAX = 2000
"""Characters of a line that are shown (contract section 10)."""
_SHOWN_BEFORE = 200


class Line(NamedTuple):
    """A line of a file, as a search shows it.

    Attributes:
        path: the file's path, absolute.
        number: the line's number, from 1.
        text: the line without its end, at most `LINE_MAX` characters of it.
        is_match: it matches; else it is there for the context.
        left_out_before, left_out_after: characters of the line that are not in `text`.
    """

    path: str
    number: int
    text: str
    is_match: bool
    left_out_before: int = 0
    left_out_after: int = 0


class Count(NamedTuple):
    """How many lines of a file match.

    Attributes:
        path: the file's path, absolute.
        lines: how many.
    """

    path: str
    lines: int


class Grep:
    """One search through files: iterate once, over lines, or over what `files` or `counts` give.

    Everything comes in path order, then in line order, while the search goes on. What the
    attributes tell is about what was gone through so far.

    Attributes:
        pattern: what is looked for.
        has_context: lines are shown around those that match.
        matched: files of which something was given.
        lines: matching lines that were given, or counted.
        cut: there is more, which the limit leaves out.
    """

    def __init__(
        self,
        texts: Texts,
        pattern: LinePattern,
        *,
        before: int = 0,
        after: int = 0,
        limit: int | None = None,
    ) -> None:
        """Begin a search.

        Args:
            texts: where to search.
            pattern: what to look for.
            before: lines to show before each match.
            after: lines to show after it.
            limit: how many matching lines, files or counts to give, None for all.
        """
        self.matched = 0
        self.lines = 0
        self.cut = False
        self._texts = texts
        self.pattern = pattern
        self.has_context = bool(before or after)
        self._before = before
        self._after = after
        self._limit = limit

    @property
    def searched(self) -> int:
        """How many files were searched."""
        return self._texts.searched

    @property
    def unread(self) -> list[Unread]:
        """What was left out: files that are no text, too large or unreadable, directories that
        cannot be listed."""
        return self._texts.unread

    @property
    def truncated(self) -> bool:
        """Something was left out: by the limit, or since it could not be searched."""
        return self.cut or bool(self.unread)

    def __iter__(self) -> Iterator[Line]:
        """Yield lines that match, and the lines around them."""
        with closing(self._texts.matches(self.pattern)) as found:
            for path, file in found:
                lines = self.lines
                for number, span, match in file.shown(self._before, self._after, self._take):
                    yield _line(path, number, file.text[slice(*span)], span[0], match)
                self.matched += self.lines > lines
                if self.cut:
                    return

    def _take(self) -> bool:
        """Tell whether one more line may be given, and count it."""
        self.cut = self.lines == self._limit
        self.lines += not self.cut
        return not self.cut

    def files(self) -> Iterator[str]:
        """Yield the paths of files that have a match."""
        for path, _ in self._some_files():
            yield path

    def counts(self) -> Iterator[Count]:
        """Yield files that have a match, and how many lines of them do."""
        for path, file in self._some_files():
            lines = sum(1 for _ in file.lines())
            self.lines += lines
            yield Count(path, lines)

    def _some_files(self) -> Iterator[tuple[str, FileMatches]]:
        with closing(self._texts.matches(self.pattern)) as found:
            for path, file in found:
                self.cut = self.matched == self._limit
                if self.cut:
                    return
                self.matched += 1
                yield path, file


def _line(path: str, number: int, raw: bytes, start: int, match: Span | None) -> Line:
    """Return a line as it is shown, a long one so that the match can be seen.

    Args:
        raw: its bytes.
        start: where they are in the text.
        match: where the match is in the text, if the line has one.
    """
    text = decode(raw.removesuffix(b"\r"))
    if len(text) <= LINE_MAX:
        return Line(path, number, text, match is not None)
    first = 0
    if match is not None and len(decode(raw[: match[1] - start])) > LINE_MAX:
        first = max(len(decode(raw[: match[0] - start])) - _SHOWN_BEFORE, 0)
    shown = text[first : first + LINE_MAX]
    return Line(path, number, shown, match is not None, first, len(text) - first - len(shown))
