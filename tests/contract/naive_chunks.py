"""The contract's rule of pieces read word by word: every place in a text is tried.

Texts are measured by `Starts`, the places where tokens start, or by their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil

Stretch = tuple[int, int]


class Starts:
    """A text whose tokens a tokenizer has found."""

    def __init__(self, text: str, starts: Sequence[int]) -> None:
        self.text = text
        self.starts = starts
        at = Counter(starts)
        self.before = [0, *accumulate(at[place] for place in range(len(text)))]
        """How many tokens start before each place."""

    def count(self, start: int, end: int) -> int:
        return self.before[end] - self.before[start]

    def first(self, start: int) -> int:
        """Where the first token of a piece starts."""
        following = self.starts[self.before[start] :]
        return following[0] if following else start

    def overlap_start(self, cut: int, overlap: int) -> int:
        """Where the token `overlap` before the cut starts; 0 if there is none."""
        started = self.starts[: self.before[cut]]
        return started[-overlap] if len(started) >= overlap else 0


class Bytes:
    """A text whose tokens are estimated."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.before = [0, *accumulate(len(character.encode()) for character in text)]
        """How many bytes are before each place."""

    def count(self, start: int, end: int) -> int:
        return ceil((self.before[end] - self.before[start]) / 2)

    def first(self, start: int) -> int:
        return start

    def overlap_start(self, cut: int, overlap: int) -> int:
        token = ceil(self.before[cut] / 2) - overlap
        return max((at for at in range(cut) if self.before[at] <= 2 * token), default=0)


Measured = Starts | Bytes


def pieces(measured: Measured, most: int, overlap: int, least: int) -> list[Stretch]:
    text = measured.text
    if not text:
        return []
    # A character cannot be cut, should one alone have so many tokens.
    if measured.count(0, len(text)) <= most or len(text) == 1:
        return [(0, len(text))]
    return [p for p in made_by_cutting(measured, most, overlap) if p[1] - p[0] >= least]


def made_by_cutting(measured: Measured, most: int, overlap: int) -> Iterator[Stretch]:
    text, start = measured.text, 0
    while True:
        end = window_end(measured, start, most)
        if end == len(text):
            yield start, end
            return
        cut = next(
            (
                at
                for kind in BREAKS
                for at in reversed(kind(text, last_third(start, end)))
                if measured.overlap_start(at, overlap) > measured.first(start)
            ),
            end,
        )
        yield start, cut
        # On by one character at least, should it alone have so many tokens.
        start = max(measured.overlap_start(cut, overlap), start + 1)


def window_end(measured: Measured, start: int, most: int) -> int:
    end = start + 1
    while end < len(measured.text) and measured.count(start, end + 1) <= most:
        end += 1
    return end


def last_third(start: int, end: int) -> list[int]:
    """The places of characters that lie in the last third of a stretch with all they have."""
    return [at for at in range(start, end) if 3 * (at - start) >= 2 * (end - start)]


def middle_third(start: int, end: int) -> list[int]:
    size = end - start
    return [at for at in range(start, end) if size <= 3 * (at - start) <= 2 * size - 3]


def paragraph_breaks(text: str, places: Sequence[int]) -> list[int]:
    found = []
    feeds = [at for at in places if text[at] == "\n"]
    for feed, following in pairwise(feeds):
        if set(text[feed + 1 : following]) <= set(" \t\r"):
            found.append(following + 1)
    return found


def line_breaks(text: str, places: Sequence[int]) -> list[int]:
    return [at + 1 for at in places if text[at] == "\n"]


def sentence_ends(text: str, places: Sequence[int]) -> list[int]:
    return [b + 1 for a, b in pairwise(places) if (text[a], text[b]) == (".", " ")]


BREAKS = (paragraph_breaks, line_breaks, sentence_ends)


def halves(text: str, start: int, end: int) -> tuple[Stretch, Stretch]:
    places = middle_third(start, end)
    found = next((ends for kind in BREAKS if (ends := kind(text, places))), None)
    middle = found[-1] if found else (start + end) // 2
    return (start, middle), (middle, end)


def located(text: str, stretches: Sequence[Stretch]) -> list[list[int]]:
    """The stretches as vectors have them, with their first and last lines."""
    return [
        [start, end, text[:start].count("\n") + 1, text[: end - 1].count("\n") + 1]
        for start, end in stretches
    ]
