"""The best of many scores, without putting all of them in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusefs.index.snapshot import Mask

_BLOCK = 256


def best(scores: NDArray[np.float64], mask: Mask, depth: int) -> NDArray[np.int64]:
    """Return the pieces that score at least as well as the one in place `depth`, ascending.

    Args:
        scores: of all pieces; in the mask above -inf.
        mask: the pieces that count.
        depth: at least 1; where fewer pieces count, all are returned.
    """
    pieces = _candidates(scores, mask, depth)
    if len(pieces) > depth:
        found = scores[pieces]
        pieces = pieces[found >= np.partition(found, -depth)[-depth]]
    return pieces


def _candidates(scores: NDArray[np.float64], mask: Mask, depth: int) -> NDArray[np.int64]:
    """Return those pieces and some others, fewer than all where there are many."""
    starts = np.arange(0, len(scores), _BLOCK)
    if len(starts) > depth:
        masked = np.where(mask, scores, -np.inf)
        # In so many blocks there is a piece that is at least as good as this.
        least = np.partition(np.maximum.reduceat(masked, starts), -depth)[-depth]
        if least > -np.inf:
            return np.flatnonzero(masked >= least)
    return np.flatnonzero(mask)
