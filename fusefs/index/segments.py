"""Segments: runs of documents whose pieces are numbered together and never change.

A document is a content; its number is given once and for all, and documents of a later segment
have higher ones. New contents make a new segment; small segments are united now and then, so that
a question has few to look into (the logarithmic method of Bentley and Saxe).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusefs.index.postings import MOST_PIECES

Numbers = NDArray[np.uint32]

_HEADER = struct.Struct("<II")
_PER_PIECE = 3
_FANOUT = 8


@dataclass(frozen=True, slots=True)
class Table:
    """The documents and pieces of a segment.

    Attributes:
        documents: the documents' numbers, ascending.
        first: the first piece of each document, and behind them how many pieces there are.
        starts, ends: where each piece begins and ends in its text, in characters.
        lengths: how many terms it has.
    """

    documents: Numbers
    first: Numbers
    starts: Numbers
    ends: Numbers
    lengths: Numbers

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self.starts)

    def pack(self) -> bytes:
        """Return the bytes of the table."""
        arrays = (self.documents, self.first, self.starts, self.ends, self.lengths)
        head = _HEADER.pack(len(self.documents), self.pieces)
        return b"".join((head, *(np.ascontiguousarray(a, np.uint32).tobytes() for a in arrays)))

    @classmethod
    def unpack(cls, raw: bytes) -> Table:
        """Return the table that `pack` made the bytes of.

        Raises:
            ValueError: they are of no table.
        """
        if len(raw) < _HEADER.size:
            raise ValueError("a segment's table is damaged")
        documents, pieces = _HEADER.unpack_from(raw)
        sizes = (documents, documents + 1, *[pieces] * _PER_PIECE)
        if len(raw) != _HEADER.size + 4 * sum(sizes):
            raise ValueError("a segment's table is damaged")
        every = np.frombuffer(raw, np.uint32, offset=_HEADER.size)
        return cls(*np.split(every, np.cumsum(sizes)[:-1]))

    def without(self, dropped: NDArray[np.bool_]) -> tuple[Table, NDArray[np.int64]]:
        """Leave out documents.

        Args:
            dropped: for each document whether it goes.

        Returns:
            The table that is left, and the new number of each piece, -1 for those that went.
        """
        each = np.diff(self.first)
        kept = np.repeat(~dropped, each)
        renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
        first = np.concatenate(([0], np.cumsum(each[~dropped])))
        return (
            Table(
                self.documents[~dropped], first.astype(np.uint32), self.starts[kept],
                self.ends[kept], self.lengths[kept],
            ),
            renumbered,
        )  # fmt: skip


def join(tables: Sequence[Table]) -> Table:
    """Return the tables of consecutive segments as one; `first` counts through all of them."""
    bases = np.cumsum([0, *(table.pieces for table in tables)])
    first = [table.first[:-1] + base for table, base in zip(tables, bases, strict=False)]
    columns = (
        [table.documents for table in tables],
        [*first, bases[-1:]],
        [table.starts for table in tables],
        [table.ends for table in tables],
        [table.lengths for table in tables],
    )
    none = np.empty(0, np.uint32)
    return Table(*(np.concatenate([none, *arrays]).astype(np.uint32) for arrays in columns))


def to_unite(sizes: Sequence[int]) -> int | None:
    """Tell which segments are to become one.

    Args:
        sizes: the pieces of each segment, oldest first.

    Returns:
        The first of the newest segments to be united, None where all may stay. Eight at least
        are, none of which is more than half of the whole: so a piece is rewritten a number of
        times that grows with the logarithm of the index.
    """
    total = largest = 0
    found = None
    for at in range(len(sizes) - 1, -1, -1):
        total += sizes[at]
        largest = max(largest, sizes[at])
        if total > MOST_PIECES:
            break
        if len(sizes) - at >= _FANOUT and 2 * largest <= total:
            found = at
    return found
