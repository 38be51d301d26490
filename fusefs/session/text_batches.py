"""Searching the text of many files at a time.

To call the engine costs as much as to search some kilobytes, so the texts of many files are put
together and searched as one. A match lies within a line, so it lies within a file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from fusefs.contract.texts import is_text
from fusefs.session.line_patterns import LinePattern, Span

_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")


def to_text(data: bytes, *, keep_cr: bool) -> bytes | None:
    """Return a file's bytes as they are searched, None where they are no text.

    A byte order mark at the beginning is left out, and so are carriage returns before line ends
    unless they are to be kept.
    """
    if not is_text(data):
        return None
    data = data.removeprefix(_BOM)
    return data if keep_cr or b"\r" not in data else data.replace(b"\r\n", b"\n")


class Batch:
    """Texts of files, one behind the other.

    Attributes:
        text: all of it; a line end stands between two files.
    """

    def __init__(self, texts: Sequence[bytes], pattern: LinePattern) -> None:
        """Put `texts` together, to search them for `pattern`."""
        self.text = b"\n".join(texts)
        self._starts = [0, *accumulate(len(text) + 1 for text in texts)]
        self._matches = pattern.matches(self.text)
        self._known: deque[Span] = deque()
        self._goes_on = True

    def search(self, most: int) -> None:
        """Find the first match in each of the first lines that have one, `most` at most. In any
        thread."""
        place = 0
        while self._goes_on and len(self._known) < most:
            found = self._go_on(place)
            if found is not None:
                self._known.append(found)
                place = self.text.find(b"\n", found[1]) + 1 or len(self.text) + 1

    def _go_on(self, place: int) -> Span | None:
        found = self._matches.find(place) if place <= len(self.text) else None
        self._goes_on = found is not None
        return found

    def find(self, place: int) -> Span | None:
        """Return the first match at or behind `place`, where a line begins; further on each
        time."""
        known = self._known
        while known:
            if known[0][0] >= place:
                return known[0]
            known.popleft()
        return self._go_on(place) if self._goes_on else None

    def matches(self) -> Iterator[FileMatches]:
        """Yield the files that have a match, in order."""
        found = self.find(0)
        while found is not None:
            number = bisect_right(self._starts, found[0]) - 1
            start, end = self._starts[number], self._starts[number + 1] - 1
            file = FileMatches(self, number, start, end, found)
            # What stands between two files is no line of either.
            if file.has_line_at(found[0]):
                yield file
            found = file.match_behind()


class FileMatches:
    """The matches in one file of a batch.

    Attributes:
        number: the file's, from 0.
        text: of the batch, which spans are about.
    """

    def __init__(self, batch: Batch, number: int, start: int, end: int, first: Span) -> None:
        """Begin with the `first` match in the file that is at `start` to `end` of a batch."""
        self.number = number
        self.text = batch.text
        self._find = batch.find
        self._start = start
        self._end = end
        self._found: Span | None = first

    def has_line_at(self, place: int) -> bool:
        """Tell whether a line of the file is at `place`."""
        return place < self._end or (
            place == self._end > self._start and self.text[place - 1] != _NEWLINE
        )

    def match_behind(self) -> Span | None:
        """Return the first match behind the file."""
        if self._found is not None and self._found[0] <= self._end:
            self._found = self._find(self._end + 1)
        return self._found

    def lines(self) -> Iterator[tuple[Span, Span]]:
        """Yield the matching lines, and the first match in each."""
        text, start, file_end = self.text, self._start, self._end
        newline_before, newline_at = text.rfind, text.find
        while (found := self._found) is not None:
            if found[0] >= file_end and not self.has_line_at(found[0]):
                return
            begin = newline_before(b"\n", start, found[0]) + 1 or start
            end = newline_at(b"\n", found[1], file_end)
            if end < 0:
                end = file_end
            yield (begin, end), found
            self._found = self._find(end + 1)

    def shown(
        self, before: int, after: int, may_show: Callable[[], bool]
    ) -> Iterator[tuple[int, Span, Span | None]]:
        """Yield the matching lines and the ones around them: number, line, first match.

        Args:
            before: lines to show before a match.
            after: lines to show after one.
            may_show: asked for each matching line; if it says no, that is the end.
        """
        text = self.text
        number, at, left = 1, self._start, 0  # of the first line that is not shown yet
        for line, found in self.lines():
            while left and at < line[0]:
                end = text.index(b"\n", at)
                yield number, (at, end), None
                number, at, left = number + 1, end + 1, left - 1
            if not may_show():
                return
            begin = line[0]
            for _ in range(before):
                begin = text.rfind(b"\n", at, max(begin - 1, at)) + 1 or at
            number += text.count(b"\n", at, begin)
            while begin < line[0]:
                end = text.index(b"\n", begin)
                yield number, (begin, end), None
                number, begin = number + 1, end + 1
            yield number, line, found
            number, at, left = number + 1, line[1] + 1, after
        while left and at < self._end:
            end = text.find(b"\n", at, self._end)
            end = end if end >= 0 else self._end
            yield number, (at, end), None
            number, at, left = number + 1, end + 1, left - 1
