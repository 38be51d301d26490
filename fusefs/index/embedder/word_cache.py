"""The tokens of words that were seen before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fusefs.index.embedder.spans import TokenSpans
from fusefs.index.embedder.word_table import ABSENT, LONGEST, Keys, WordTable

_Numbers = NDArray[np.int64]
_Number = TypeVar("_Number", np.int32, np.int64)

Divide = Callable[[Sequence[str]], tuple[TokenSpans, _Numbers]]
"""Finds the tokens of words, counted from each word's start, and how many each has."""

_LONGEST_KEPT = 256
"""Bytes of a word beyond which its tokens are not kept."""
_MOST_LONG_WORDS = 1 << 15
_MOST_TOKENS = 1 << 20


class _Store:
    """Tokens of words, which are numbered from 0."""

    def __init__(self) -> None:
        self.words = 0
        self.tokens = 0
        self.first: _Numbers = np.zeros(1 << 10, np.int64)
        self.count: _Numbers = np.zeros(1 << 10, np.int64)
        self.spans: NDArray[np.int32] = np.zeros((3, 1 << 12), np.int32)

    def append(self, spans: TokenSpans, counts: _Numbers) -> None:
        """Take in words; the first gets the number `words`, as it is before."""
        self.first = _with_room(self.first, self.words + len(counts))
        self.count = _with_room(self.count, self.words + len(counts))
        self.spans = _with_room(self.spans, self.tokens + len(spans.ids))
        new = slice(self.words, self.words + len(counts))
        self.first[new] = self.tokens + np.cumsum(counts) - counts
        self.count[new] = counts
        self.spans[:, self.tokens : self.tokens + len(spans.ids)] = spans
        self.words = new.stop
        self.tokens += len(spans.ids)

    def truncate(self, words: int) -> None:
        """Forget all words but the first `words`."""
        if words < self.words:
            self.words, self.tokens = words, int(self.first[words])

    def spans_of(self, numbers: NDArray[np.int32]) -> tuple[TokenSpans, _Numbers]:
        """Return the tokens of words in the order given, and how many each has."""
        counts = self.count[numbers]
        # For each token: where its word's tokens begin here, less where they begin there.
        places = np.repeat(self.first[numbers] - np.cumsum(counts) + counts, counts)
        places += np.arange(len(places))
        return TokenSpans(*(row[places] for row in self.spans)), counts


class WordCache:
    """Finds the tokens of many words; each distinct one is divided once, while it is kept.

    It takes some 40 MB at most, and begins anew when it is full. One thread at a time.
    """

    def __init__(self, divide: Divide) -> None:
        """Keep what `divide` says."""
        self._divide = divide
        self._begin()

    def spans(self, data: bytes, starts: _Numbers, ends: _Numbers) -> tuple[TokenSpans, _Numbers]:
        """Return the tokens of all words in order, and how many each word has.

        The tokens' positions count characters from the start of each word.

        Args:
            data: UTF-8, which goes on for 16 bytes after the start of the last word.
            starts: where words begin in `data`.
            ends: where they end, at least a byte later.
        """
        if self._full:
            self._begin()
        self._store.truncate(self._kept)
        numbers = self._find(data, starts, ends - starts)
        missing = np.flatnonzero(numbers == ABSENT)
        if len(missing):
            bounds = zip(starts[missing].tolist(), ends[missing].tolist(), strict=True)
            numbers[missing] = self._learn([data[start:end] for start, end in bounds])
        return self._store.spans_of(numbers)

    def _begin(self) -> None:
        self._table = WordTable()
        self._long: dict[bytes, int] = {}
        self._store = _Store()
        self._kept = 0  # words; those after them are there for one call
        self._full = False

    def _find(self, data: bytes, starts: _Numbers, sizes: _Numbers) -> NDArray[np.int32]:
        short = sizes <= LONGEST
        if short.all():
            return self._table.find(Keys(data, starts, sizes))
        numbers = np.empty(len(starts), np.int32)
        numbers[short] = self._table.find(Keys(data, starts[short], sizes[short]))
        bounds = zip(starts[~short].tolist(), sizes[~short].tolist(), strict=True)
        numbers[~short] = [
            self._long.get(data[start : start + size], ABSENT) for start, size in bounds
        ]
        return numbers

    def _learn(self, words: Sequence[bytes]) -> list[int]:
        """Divide new words, some of them equal; return their numbers."""
        distinct = dict.fromkeys(words)
        short = [word for word in distinct if len(word) <= LONGEST][: self._table.room()]
        long = [word for word in distinct if LONGEST < len(word) <= _LONGEST_KEPT]
        long = long[: _MOST_LONG_WORDS - len(self._long)]
        if self._store.tokens > _MOST_TOKENS:
            short = long = []
        kept = dict.fromkeys(short + long)
        passing = [word for word in distinct if word not in kept]
        self._full = any(len(word) <= _LONGEST_KEPT for word in passing)
        ordered = [*kept, *passing]
        numbers = dict(zip(ordered, range(self._kept, self._kept + len(ordered)), strict=True))
        self._store.append(*self._divide([word.decode() for word in ordered]))
        self._kept += len(kept)
        self._enter(short, numbers)
        self._long.update((word, numbers[word]) for word in long)
        return [numbers[word] for word in words]

    def _enter(self, words: Sequence[bytes], numbers: dict[bytes, int]) -> None:
        sizes = np.array([len(word) for word in words], np.int64)
        keys = Keys(b"".join(words) + bytes(16), np.cumsum(sizes) - sizes, sizes)
        self._table.add(keys, np.array([numbers[word] for word in words], np.int32))


def _with_room(array: NDArray[_Number], size: int) -> NDArray[_Number]:
    """Return `array`, or a longer copy if its last axis has not `size` elements."""
    if array.shape[-1] >= size:
        return array
    longer = np.zeros((*array.shape[:-1], max(size, 2 * array.shape[-1])), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer
