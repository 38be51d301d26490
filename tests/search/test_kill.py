"""Whoever makes the index is killed: what is found afterwards, and what was done twice."""

from __future__ import annotations

from pathlib import Path

from tests.search.killing import torture


def test_an_index_is_complete_and_right_after_kills(tmp_path: Path) -> None:
    assert torture(tmp_path, rounds=4, seed=5) == []
