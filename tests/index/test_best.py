"""The best of many scores."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusefs.index.best import best


@given(
    count=st.integers(0, 3000),
    different=st.integers(1, 2000),
    share=st.sampled_from([0.0, 0.001, 0.1, 1.0]),
    depth=st.integers(1, 20),
    seed=st.integers(0, 999),
)
def test_all_as_good_as_the_last_that_is_wanted(
    count: int, different: int, share: float, depth: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(-1, different, count).astype(float)
    mask = random.random(count) < share
    ranked = sorted(scores[mask], reverse=True)
    least = ranked[depth - 1] if len(ranked) >= depth else -np.inf
    expected = [at for at in range(count) if mask[at] and scores[at] >= least]
    assert best(scores, mask, depth).tolist() == expected
