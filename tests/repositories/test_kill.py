"""Processes killed while they commit, sync, restore and write: nothing is lost or half done."""

from __future__ import annotations

from pathlib import Path

from tests.mount.killing import Torture
from tests.repositories.killing import KillCommands, make_repository


def test_commands_are_done_or_not_begun(tmp_path: Path) -> None:
    rounds = KillCommands(tmp_path, seed=1)
    for _ in range(30):
        rounds.round()
        if rounds.kills == 2:
            return
    raise AssertionError("every process was done before it was to be killed")


def test_nothing_written_is_lost(tmp_path: Path) -> None:
    torture = Torture(tmp_path, seed=1, make=make_repository)
    try:
        for _ in range(3):
            torture.round()
    finally:
        torture.end()
