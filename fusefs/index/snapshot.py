"""The index as it is at one moment: all pieces numbered through, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusefs.index.segments import Numbers, Table, join
from fusefs.index.weighting import Norms, norms

Mask = NDArray[np.bool_]
"""For each piece whether it counts."""


class Span(NamedTuple):
    """Where a piece stands.

    Attributes:
        document: the number of its document.
        ordinal: its place among the document's pieces, from 0.
        start, end: characters of the text.
    """

    document: int
    ordinal: int
    start: int
    end: int


@dataclass(frozen=True)
class Visible:
    """The pieces that a session sees, and what word statistics need to know of them.

    Attributes:
        mask: for each piece whether it is seen.
        count: how many are.
        norms: what each piece's length makes of counts, beside the average of what is seen.
    """

    mask: Mask
    count: int
    norms: Norms


class Snapshot:
    """All segments, side by side.

    Attributes:
        generation: grows with every change of the index.
        segments: the segments' numbers, with the first piece of each.
        table: documents and pieces of all of them.
    """

    def __init__(self, generation: int, segments: Sequence[tuple[int, Table]]) -> None:
        """Put the tables of all segments together; `segments` are in the order of their numbers
        of documents."""
        self.generation = generation
        self.table = join([table for _, table in segments])
        self.segments: list[tuple[int, int]] = []
        base = 0
        for number, table in segments:
            self.segments.append((number, base))
            base += table.pieces

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return self.table.pieces

    def mask(self, documents: Iterable[int]) -> Mask:
        """Return which pieces are of the given documents; those not in it have none."""
        wanted = np.unique(np.fromiter(documents, np.uint32))
        known = np.isin(self.table.documents, wanted, assume_unique=True)
        return np.repeat(known, np.diff(self.table.first))

    def visible(self, documents: Iterable[int]) -> Visible:
        """Return the pieces of the documents that a session sees."""
        mask = self.mask(documents)
        count = int(mask.sum())
        total = int(self.table.lengths[mask].sum(dtype=np.int64))
        return Visible(mask, count, norms(self.table.lengths, total / count if count else 1.0))

    def count_documents(self, mask: Mask) -> int:
        """Return how many documents have a piece in `mask`."""
        if not self.pieces:
            return 0
        # Every document here has a piece, so none of the stretches is empty.
        return int(np.logical_or.reduceat(mask, self.table.first[:-1].astype(np.int64)).sum())

    def first_pieces(self, documents: Numbers) -> NDArray[np.int64]:
        """Return each document's first piece, -1 for those that are not in it."""
        known = self.table.documents
        if not len(known):
            return np.full(len(documents), -1, np.int64)
        at = np.minimum(np.searchsorted(known, documents), len(known) - 1)
        return np.where(known[at] == documents, self.table.first[at].astype(np.int64), -1)

    def piece_counts(self, documents: Numbers) -> NDArray[np.int64]:
        """Return how many pieces each document has, 0 for those that are not in it."""
        known = self.table.documents
        if not len(known):
            return np.zeros(len(documents), np.int64)
        at = np.minimum(np.searchsorted(known, documents), len(known) - 1)
        each = np.diff(self.table.first.astype(np.int64))
        return np.where(known[at] == documents, each[at], 0)

    def pieces_of(self, document: int) -> list[tuple[int, int]]:
        """Return start and end of all pieces of a document, in characters; none if it is not
        in it."""
        at = int(np.searchsorted(self.table.documents, document))
        if at == len(self.table.documents) or self.table.documents[at] != document:
            return []
        pieces = slice(int(self.table.first[at]), int(self.table.first[at + 1]))
        starts, ends = self.table.starts[pieces].tolist(), self.table.ends[pieces].tolist()
        return list(zip(starts, ends, strict=True))

    def span(self, piece: int) -> Span:
        """Return where a piece stands."""
        table = self.table
        at = int(np.searchsorted(table.first, piece, side="right")) - 1
        return Span(
            int(table.documents[at]), piece - int(table.first[at]), int(table.starts[piece]),
            int(table.ends[piece]),
        )  # fmt: skip
