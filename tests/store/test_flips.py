"""A bit that the disk turned is an error that can be told, never another answer.

`tests.store.flips` is the same as a tool, for as many rounds as one likes.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.store import flips

_ROUNDS = {"object": 3, "meta": 6, "branch": 6, "free": 3, "leaf": 6, "overflow": 3, "redo": 4}
_MUST_BE_FOUND = ("object", "overflow", "redo")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flips.make(tmp_path_factory.mktemp("flips"))


@pytest.mark.parametrize("kind", _ROUNDS)
def test_a_turned_bit(template: Path, tmp_path: Path, kind: str) -> None:
    seed = 1 if os.environ.get("CI") else random.randrange(10**6)
    print("seed", seed)  # shown where it fails
    kinds = (kind,)
    for done in flips.rounds(
        template, kinds, _ROUNDS[kind], seed, tmp_path, use=flips.read_and_check
    ):
        assert done.verdict in ("right", "right, found", "error", "loss said"), done
        if kind in _MUST_BE_FOUND and done.verdict != "right":
            assert done.found, done
        sound = set(flips.FILES) - set(done.unread)
        if kind in ("object", "overflow"):
            # One content is damaged, which two files may share.
            assert len(sound) >= len(flips.FILES) - 2, done


def test_a_missing_and_a_cut_object(template: Path, tmp_path: Path) -> None:
    for number, cut in enumerate((None, 0, 70_000, 65_536)):
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        file = max((folder / "objects").glob("*/*"), key=lambda file: file.stat().st_size)
        if cut is None:
            file.unlink()
        else:
            os.chmod(file, 0o600)
            os.truncate(file, cut)
        done = flips.Round("object", "cut")
        flips.run(folder, done, use=flips.read_and_check)
        assert done.verdict == "error", done
        assert done.found
        assert set(done.unread) == {"/data/larger.bin"}
