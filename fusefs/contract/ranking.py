"""How ranked lists become one (contract section 9)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

RANK_CONSTANT = 5
"""``k`` of reciprocal rank fusion. Beside 10, the first of either list counts more: code is found
better, and manual pages no worse (`bench/search_quality.py`)."""

Item = TypeVar("Item", bound=Hashable)


def fuse(lists: Iterable[Sequence[Item]], *, k: int = RANK_CONSTANT) -> Mapping[Item, float]:
    """Return the score of every item: the sum of ``1 / (k + rank)`` over the lists that have it.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009); ranks count from 1.
    """
    scores: dict[Item, float] = {}
    for ranked in lists:
        for rank, item in enumerate(ranked, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (k + rank)
    return scores
