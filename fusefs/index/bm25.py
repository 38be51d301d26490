"""Okapi BM25 over the pieces that a session sees.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009). How many
pieces there are, in how many a term stands, and how long they are on the average: all of it is
counted over the visible pieces alone (contract section 9), exactly, so that what is hidden
changes no score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fusefs.index.postings import unpack
from fusefs.index.snapshot import Snapshot, Visible

SATURATION = 1.2
"""``k1``: how little more a term counts that stands there more often."""
LENGTH = 0.9
"""``b``: how far a piece's length counts. Beside the usual 0.75, short functions are found before
long ones that have the same words in passing, and prose no worse."""

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
    lengths = snapshot.table.lengths
    for term, times in Counter(terms).items():
        found = _visible_postings(snapshot, visible, term.encode(), lookup)
        if found is None:
            continue
        pieces, counts = found
        norm = SATURATION * (1 - LENGTH + LENGTH * (lengths[pieces] / visible.average))
        rarity = math.log1p((visible.count - len(pieces) + 0.5) / (len(pieces) + 0.5))
        total[pieces] += times * rarity * (counts * (SATURATION + 1)) / (counts + norm)
    return total


def _visible_postings(
    snapshot: Snapshot, visible: Visible, term: bytes, lookup: Lookup
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    pieces, counts = [], []
    for segment, base in snapshot.segments:
        raw = lookup(segment, term)
        if raw is None:
            continue
        local, counted = unpack(raw)
        here = local.astype(np.int64) + base
        seen = visible.mask[here]
        pieces.append(here[seen])
        counts.append(counted[seen].astype(np.float64))
    if not any(map(len, pieces)):
        return None
    return np.concatenate(pieces), np.concatenate(counts)
