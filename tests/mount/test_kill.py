"""Daemons killed at random moments under load: nothing that a returned call did is lost."""

from __future__ import annotations

from pathlib import Path

from tests.mount.killing import Torture

ROUNDS = 8


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    torture = Torture(tmp_path, seed=1)
    try:
        for _ in range(ROUNDS):
            torture.round()
    finally:
        torture.end()
    assert torture.calls > ROUNDS
