"""Commands under a key, and the daemon beside them, killed: done or not, and then done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.killing_keyed import ACTIONS, KillKeyed


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[KillKeyed]:
    made = KillKeyed(tmp_path, seed=1)
    yield made
    made.end()


@pytest.mark.parametrize("action", ACTIONS)
def test_a_kill_at_any_moment(rounds: KillKeyed, action: str) -> None:
    for _ in range(20):
        rounds.round(action)
        if rounds.kills:
            return
    raise AssertionError("every process was done before it was to be killed")


@pytest.mark.parametrize(
    ("action", "first", "stride"),
    [("commit", 4, 7), ("sync", 8, 13), ("merge", 4, 5)],
)
def test_a_kill_at_chosen_steps(
    rounds: KillKeyed, action: str, first: int, stride: int
) -> None:
    """A few of all: ``python -m tests.repositories.torture`` does each."""
    assert rounds.steps(action, first, stride) > first
