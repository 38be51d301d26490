"""What is damaged, missing or stopped beside an index: answers go on, and it is made anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fusefs.index.embedder.models import EmbedderUnavailable
from fusefs.index.lease import Lease, LeaseLost
from fusefs.index.library import Library
from fusefs.index.model import Windows
from fusefs.session import contents
from fusefs.session.answers import Mode
from fusefs.session.index_starter import IndexStarter
from fusefs.session.searching import Searcher
from tests.search.made_up import MadeUp
from tests.search.place import Place, paths


class Broken(MadeUp):
    """Cuts, and cannot embed."""

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        raise EmbedderUnavailable("the graph is damaged.")

    def embed_question(self, question: str) -> NDArray[np.float32]:
        raise EmbedderUnavailable("the graph is damaged.")


def only_index(place: Place) -> Path:
    (folder,) = (file for file in place.library.folder.iterdir() if file.is_dir())
    return folder


def test_a_model_that_turns_out_broken_leaves_words(place: Place) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    place.owner.write("/b.txt", b"apples and pears")
    broken = Broken()
    searcher = Searcher(place.owner, place.library, broken)
    found = searcher.search("apples")
    assert paths(found) == ["/a.txt", "/b.txt"]
    assert found.notes == ["By words alone: the graph is damaged."]
    place.model = broken
    indexer = place.indexer()
    assert indexer.take()
    assert indexer.add_words(lambda: True)
    assert indexer.add_vectors() == 0
    assert indexer.unavailable == "the graph is damaged."


def test_a_file_that_cannot_be_read_is_left_out_and_said(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.owner.write("/bad.txt", b"apples apples")
    place.owner.write("/good.txt", b"apples")
    searcher = place.searcher()
    searcher.search("apples")
    read = contents.read

    def failing(view, path):
        if path == (b"bad.txt",):
            raise OSError(5, "damaged")
        return read(view, path)

    monkeypatch.setattr(contents, "read", failing)
    found = searcher.search("apples", mode=Mode.WORDS)
    assert paths(found) == ["/good.txt"]
    assert found.notes == ["1 files cannot be read and are left out."]


def cut_store(folder: Path) -> None:
    os.truncate(folder / "data.mdb", 5000)


def garble_store(folder: Path) -> None:
    size = (folder / "data.mdb").stat().st_size
    (folder / "data.mdb").write_bytes(bytes(size))


def drop_vectors(folder: Path) -> None:
    (folder / "vectors" / "000000.rows").unlink()


def cut_vectors(folder: Path) -> None:
    os.truncate(folder / "vectors" / "000000.heads", 3)


def drop_about(folder: Path) -> None:
    (folder / "about.json").unlink()


def garble_state(folder: Path) -> None:
    (folder.parent / "state.json").write_text('{"answers": "nowhere", "next": 7}')


@pytest.mark.parametrize(
    "damage", [cut_store, garble_store, drop_vectors, cut_vectors, drop_about, garble_state]
)
@pytest.mark.parametrize("first", ["searcher", "indexer"])
def test_a_damaged_index_is_made_anew(
    place: Place, damage: Callable[[Path], None], first: str
) -> None:
    place.owner.write("/a.txt", b"apples")
    place.complete()
    folder = only_index(place)
    place.library.close()
    place.library = Library(place.instance.folder)
    damage(folder)
    if first == "searcher":
        assert paths(place.searcher().search("apples")) == ["/a.txt"]
    place.complete()
    # Vectors are read by questions alone.
    assert paths(place.searcher().search("apples")) == ["/a.txt"]
    place.complete()
    found = place.searcher().search("aubergine")
    assert (paths(found), found.notes) == (["/a.txt"], [])


def test_a_lease_is_taken_over_from_the_dead_and_the_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(tmp_path / "lease")
    assert lease.holder({1, 2}) is None
    assert lease.take(1, {1, 2})
    assert lease.take(1, {1, 2})
    assert not lease.take(2, {1, 2})
    assert lease.holder({1, 2}) == 1
    assert lease.take(2, {2})
    with pytest.raises(LeaseLost), lease.held(1):
        raise AssertionError
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    assert lease.holder({1, 2}) is None
    assert lease.take(1, {1, 2})
    lease.give_back(2)
    assert lease.holder({1}) == 1
    lease.give_back(1)
    assert lease.holder({1}) is None
    (tmp_path / "lease").write_text("garbage")
    assert lease.take(2, {2})


def test_who_looks_at_a_lease_waits_for_nobody(tmp_path: Path) -> None:
    """Not even for a process that was stopped while it changed it: mounts look all the time."""
    lease = Lease(tmp_path / "lease")
    assert lease.take(7, {7})
    program = (
        "import sys, time; from pathlib import Path; from fusefs.index.lease import Lease\n"
        "with Lease(Path(sys.argv[1])).held(7): print('held', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lease")], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"held\n"
        child.send_signal(signal.SIGSTOP)
        assert lease.holder({7}) == 7
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_only_what_brings_contents_has_an_index_made(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSEFS_INDEX")
    monkeypatch.setattr("sys.executable", "/bin/true")
    place.owner.write("/a.txt", b"apples")
    place.complete()
    place.library.complete_at = place.instance.journal.last()
    starter = IndexStarter(place.instance)
    place.owner.mv("/a.txt", "/b.txt")
    place.session("s", "/=ro")
    starter.start()
    assert starter.process is None
    place.owner.write("/c.txt", b"cherries")
    starter.start()
    assert starter.process is not None
    starter.process.wait()
