"""How ranked lists become one (contract section 9)."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

RANK_CONSTANT = 5
"""``k`` of reciprocal rank fusion. Beside 10, the first of either list counts more: code is found
better, and manual pages no worse (`bench/search_quality.py`)."""

Item = TypeVar("Item", bound=Hashable)


def fuse(
    lists: Iterable[Sequence[Item]],
    *,
    unknown: Container[Item] = (),
    k: int = RANK_CONSTANT,
) -> Mapping[Item, float]:
    """Return the score of every item: the sum of ``1 / (k + rank)`` over the lists that have it.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009); ranks count from 1.

    Args:
        lists: best first. An item that is missing in the second is ranked badly by it ...
        unknown: ... but for these, which it cannot rank yet: their rank in the first counts for
            both.
        k: how little the first ranks differ.
    """
    scores: dict[Item, float] = {}
    for number, ranked in enumerate(lists):
        for rank, item in enumerate(ranked, start=1):
            score = 1 / (k + rank)
            if number == 0 and item in unknown:
                score *= 2
            scores[item] = scores.get(item, 0.0) + score
    return scores
