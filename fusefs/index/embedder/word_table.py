"""Which words are known already, answered for a whole text at once.

A hash table in numpy arrays: a look-up of a million words is some passes over arrays, where a
dictionary would take a step of the interpreter for each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST = 15
"""Bytes of a word in the table. It is kept whole, so no two words are ever taken for one."""

_SLOT_BITS = 19
_SLOTS = 1 << _SLOT_BITS
_MOST = _SLOTS // 2
"""Twice the words that are in fifty megabytes of source code."""

_FIRST_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""By a number of bytes, 0 to 8: the bits of a word's first ones."""
_LENGTH_SHIFT = np.uint64(8 * 7)
_MIX_LOW = np.uint64(0x9E3779B97F4A7C15)
_MIX_HIGH = np.uint64(0xC2B2AE3D27D4EB4F)
_FOLD = np.uint64(32)
_INDEX_SHIFT = np.uint64(64 - _SLOT_BITS)

_Numbers = NDArray[np.int64]
_Bits = NDArray[np.uint64]

ABSENT = -1


class Keys:
    """Words of at most `LONGEST` bytes, each as two integers: its bytes and its length."""

    def __init__(self, data: bytes, starts: _Numbers, sizes: _Numbers) -> None:
        """Take the words of `data`, which goes on for 16 bytes after the last one's start."""
        # At each byte the eight that begin there.
        eights = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))
        self.low = eights[starts] & _FIRST_BYTES[np.minimum(sizes, 8)]
        self.high = sizes.astype(np.uint64) << _LENGTH_SHIFT
        longer = np.flatnonzero(sizes > 8)
        self.high[longer] |= eights[starts[longer] + 8] & _FIRST_BYTES[sizes[longer] - 8]

    def slots(self) -> _Numbers:
        """Return for each word where its search in the table begins."""
        mixed = (self.low ^ (self.high * _MIX_HIGH)) * _MIX_LOW
        mixed ^= mixed >> _FOLD
        mixed *= _MIX_HIGH
        return (mixed >> _INDEX_SHIFT).astype(np.int64)


class WordTable:
    """Words of at most `LONGEST` bytes and a number for each; of bounded size."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._low = np.zeros(_SLOTS, np.uint64)
        self._high = np.zeros(_SLOTS, np.uint64)  # 0 is a free slot: no word is empty
        self._number = np.zeros(_SLOTS, np.int32)
        self._used = 0

    def room(self) -> int:
        """Return how many more words fit."""
        return _MOST - self._used

    def find(self, keys: Keys) -> NDArray[np.int32]:
        """Return the number of each word, `ABSENT` for those that are not there."""
        slots = keys.slots()
        numbers, others = self._look(keys.low, keys.high, slots)
        while len(others):
            slots[others] = (slots[others] + 1) % _SLOTS
            found, still = self._look(keys.low[others], keys.high[others], slots[others])
            numbers[others] = found
            others = others[still]
        return numbers

    def _look(self, low: _Bits, high: _Bits, slots: _Numbers) -> tuple[NDArray[np.int32], _Numbers]:
        """Return the numbers of words at their slots, and which slots have another word."""
        here = self._high[slots]
        same = (here == high) & (self._low[slots] == low)
        numbers = np.where(same, self._number[slots], np.int32(ABSENT))
        return numbers, np.flatnonzero(~same & (here != 0))

    def add(self, keys: Keys, numbers: NDArray[np.int32]) -> None:
        """Enter words that differ and are not there; there must be room."""
        self._used += len(numbers)
        slots, low, high = keys.slots(), keys.low, keys.high
        while len(slots):
            free = np.flatnonzero(self._high[slots] == 0)
            # Of several words that come to one free slot, one stays and the others go on.
            _, first = np.unique(slots[free], return_index=True)
            placed = free[first]
            self._low[slots[placed]] = low[placed]
            self._high[slots[placed]] = high[placed]
            self._number[slots[placed]] = numbers[placed]
            left = np.ones(len(slots), bool)
            left[placed] = False
            slots = (slots[left] + 1) % _SLOTS
            low, high, numbers = low[left], high[left], numbers[left]
