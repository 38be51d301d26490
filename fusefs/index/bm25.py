"""Okapi BM25 over the pieces that a session sees.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009). How many
pieces there are, in how many a term stands, and how long they are on the average: all of it is
counted over the visible pieces alone (contract section 9), exactly, so that what is hidden
changes no score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fusefs.index.postings import MOST_PIECES, Counts, Pieces, unpack
from fusefs.index.snapshot import Snapshot, Visible
from fusefs.index.weighting import saturated

Scores = NDArray[np.float64]

Lookup = Callable[[int, bytes], bytes | None]
"""Returns the packed postings of a term (as UTF-8) in a segment, None where it has none."""


def scores(
    snapshot: Snapshot, visible: Visible, terms: Iterable[str], lookup: Lookup
) -> Scores:
    """Return the score of every piece: 0 where no term stands, or it is not visible."""
    total = np.zeros(snapshot.pieces)
    if not visible.count:
        return total
    for term, times in Counter(terms).items():
        found = list(_visible_postings(snapshot, visible, term.encode(), lookup))
        having = sum(len(pieces) for _, pieces, _ in found)
        rarity = math.log1p((visible.count - having + 0.5) / (having + 0.5))
        # A segment at a time: what is picked from there stands close together.
        for base, pieces, counts in found:
            segment = slice(base, base + MOST_PIECES)
            weights = saturated(counts, visible.norms[segment][pieces])
            weights *= times * rarity
            total[segment][pieces] += weights
    return total


def _visible_postings(
    snapshot: Snapshot, visible: Visible, term: bytes, lookup: Lookup
) -> Iterator[tuple[int, Pieces, Counts]]:
    """Yield for each segment its first piece, the pieces from there on, and their counts."""
    sees_all = visible.count == snapshot.pieces
    for segment, base in snapshot.segments:
        raw = lookup(segment, term)
        if raw is None:
            continue
        pieces, counts = unpack(raw)
        if not sees_all:
            seen = visible.mask[base : base + MOST_PIECES][pieces]
            pieces, counts = pieces[seen], counts[seen]
        yield base, pieces, counts
