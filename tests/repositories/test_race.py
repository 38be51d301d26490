"""Two sessions commit to one repository at the same time, through mounts of their own."""

from __future__ import annotations

from pathlib import Path

from tests.repositories.racing import Race


def test_no_change_is_lost_and_none_is_made_twice(tmp_path: Path) -> None:
    race = Race(tmp_path, seed=1, commits=10)
    race.run()
    assert race.moved
