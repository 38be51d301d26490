"""How much it counts that a term stands somewhere so often: the saturation of BM25."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SATURATION = 1.2
"""``k1``: how little more a term counts that stands there more often."""
LENGTH = 0.9
"""``b``: how far a piece's length counts. Beside the usual 0.75, short functions are found before
long ones that have the same words in passing, and prose no worse."""

Norms = NDArray[np.float64]
"""For each piece what its length makes of counts."""


def norms(lengths: NDArray[np.uint32], average: float) -> Norms:
    """Return the norms of pieces.

    Args:
        lengths: how many terms each has.
        average: the mean of those that are seen.
    """
    return SATURATION * (1 - LENGTH + LENGTH * (lengths / average))


def saturated(counts: NDArray[np.unsignedinteger[Any]], norm: Norms) -> NDArray[np.float64]:
    """Return what counts come to: below ``k1 + 1``, and 1 for one in a piece of average length."""
    weights = counts.astype(np.float64) * (SATURATION + 1)
    weights /= norm + counts
    return weights
