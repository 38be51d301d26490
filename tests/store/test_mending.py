"""What processes that were killed leave in an instance is found, said, and mended."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.store import inspection
from fusefs.store.check import check
from fusefs.store.findings import Finding, Verdict
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.lmdb_kv import LmdbKV
from fusefs.store.mending import examine
from fusefs.store.reserve import RESERVES

_START = """
import os, sys, time
from fusefs.session.session import Session
from fusefs.store.instance import Instance
instance = Instance.open(sys.argv[1], deferred=True)
session = Session(instance)
tree = session.view.tree.store
"""
_WAIT = "\nprint('ready', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Instance.init(tmp_path / "i").close()
    return tmp_path / "i"


@contextmanager
def living(folder: Path, body: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the instance open and has done `body`; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _START + body + _WAIT, folder], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(folder: Path, body: str) -> None:
    with living(folder, body):
        pass


def faults(folder: Path, *, dry_run: bool = False) -> dict[str, Finding]:
    found = examine(folder, dry_run=dry_run)
    return {f.name: f for f in found if f.verdict is not Verdict.OK}


def assert_mends(folder: Path, name: str, deed: str) -> None:
    """`name` is found, left alone by a dry run, mended, and then well."""
    for _ in range(2):
        assert faults(folder, dry_run=True)[name].verdict is Verdict.TO_MEND
    mended = faults(folder)[name]
    assert (mended.verdict, mended.remedy) == (Verdict.MENDED, "")
    assert mended.detail.endswith(deed)
    assert faults(folder, dry_run=True) == {}


def test_a_sound_instance_has_no_faults(folder: Path) -> None:
    with living(folder):
        assert faults(folder) == {}
        assert {f.name for f in examine(folder)} == {"store", "disk"}


def test_a_redo_log_is_replayed(folder: Path) -> None:
    killed(folder, "session.mkdir('/made')\nsession.mkdir('/too')")
    assert "2 changes" in faults(folder, dry_run=True)["redo log"].detail
    assert_mends(folder, "redo log", "replayed")
    with Instance.open(folder) as instance:
        assert Session(instance).listing("/") == "made/\ntoo/"


def test_a_batch_of_a_living_process_is_none_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "PATIENCE", 0.1)
    with living(folder, "session.mkdir('/made')") as other:
        other.send_signal(signal.SIGSTOP)
        assert "redo log" not in faults(folder, dry_run=True)


def test_dead_readers_are_cleared(folder: Path) -> None:
    with living(folder):  # while nobody has the store open the table is made anew
        killed(folder, "txn = instance.kv.read(); txn.__enter__().get(b'x')")
        assert "keep old pages" in faults(folder, dry_run=True)["readers"].detail
        assert_mends(folder, "readers", "cleared")


def test_a_living_reader_stays(folder: Path) -> None:
    with living(folder, "txn = instance.kv.read(); txn.__enter__().get(b'x')"):
        assert faults(folder) == {}


def test_files_of_dead_processes_are_removed(folder: Path) -> None:
    with living(folder):
        alive = set(os.listdir(folder / "run"))
        killed(folder, "")
        (folder / "run" / "work.log").write_text("a log stays")
        assert_mends(folder, "processes", "removed")
        assert set(os.listdir(folder / "run")) == alive | {"work.log"}


_LARGE = """
import fusefs.tree.backend as backend
from fusefs.contract.kinds import Kind
node = tree.create(tree.root().key, b'large', Kind.FILE, 0o644, backend.Owner(0, 0), backend.PERSON)
file = tree.open_file(node.key, write=True)
file.write(0, b'x' * 3_000_000)
instance.commit()
"""


def test_a_large_file_of_a_dead_writer_is_published(folder: Path) -> None:
    with living(folder, _LARGE):
        assert faults(folder) == {}
        assert len(list((folder / "scratch").iterdir())) == 1
    assert "1 large file (2.9 MiB)" in faults(folder, dry_run=True)["files being written"].detail
    assert_mends(folder, "files being written", "kept as it was written")
    assert list((folder / "scratch").iterdir()) == []
    with Instance.open(folder) as instance:
        assert Session(instance).read("/large") == b"x" * 3_000_000
        assert check(instance).problems == []


def test_a_small_file_of_a_dead_writer_is_published(folder: Path) -> None:
    killed(folder, _LARGE.replace("3_000_000", "300"))
    assert_mends(folder, "files being written", "kept as it was written")
    with Instance.open(folder) as instance:
        assert Session(instance).read("/large") == b"x" * 300


def test_scratch_files_that_nothing_refers_to_are_removed(folder: Path) -> None:
    old, new = folder / "scratch" / "copy-1-abc", folder / "scratch" / "copy-2-abc"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (0, 0))
    assert_mends(folder, "scratch files", "removed")
    assert list((folder / "scratch").iterdir()) == [new]


_REPLACED = (
    _LARGE.replace("3_000_000", "3")
    + """
root = tree.root().key
tree.create(root, b'new', Kind.FILE, 0o644, backend.Owner(0, 0), backend.PERSON)
tree.rename(root, b'new', root, b'large', backend.PERSON, replace=True)
tree.pin_orphans()
instance.commit()
"""
)


def test_replaced_files_of_dead_processes_are_dropped(folder: Path) -> None:
    killed(folder, _REPLACED)
    found = faults(folder, dry_run=True)["replaced files"]
    assert "1 replaced file that processes had open" in found.detail
    assert_mends(folder, "replaced files", "dropped")
    with Instance.open(folder) as instance:
        assert check(instance).problems == []


def test_replaced_files_that_a_live_process_or_gc_drops_are_no_fault(folder: Path) -> None:
    with living(folder, _REPLACED):
        assert faults(folder, dry_run=True) == {}
    assert faults(folder)["replaced files"].verdict is Verdict.MENDED
    closed = _REPLACED.replace("b'large'", "b'other'")
    closed = closed.replace("tree.rename", "file.close()\ntree.rename")
    killed(folder, closed)
    assert "replaced files" not in faults(folder, dry_run=True)


@pytest.mark.parametrize("damage", ["missing", "empty", "hollow"])
def test_reserves_are_made_again(folder: Path, damage: str) -> None:
    with Instance.open(folder, deferred=True) as instance:
        Session(instance).mkdir("/d")
    for name, size in RESERVES.items():
        (folder / name).unlink()
        if damage != "missing":
            (folder / name).touch()
        if damage == "hollow":
            os.truncate(folder / name, size)
    assert_mends(folder, "reserves", "made again")
    for name, size in RESERVES.items():
        assert (folder / name).stat().st_blocks * 512 >= size


def test_a_store_that_is_nearly_full_is_given_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = functools.partial(LmdbKV.open, map_bytes=1 << 20)
    monkeypatch.setattr("fusefs.store.instance.LmdbKV.open", tiny)
    small = folder.parent / "small"
    with Instance.init(small) as instance:
        Session(instance).write("/f", b"x" * 950_000)
        for number in range(16):
            Session(instance).write(f"/f{number}", os.urandom(50_000))
        assert instance.sizes()[1] == 1 << 20
    assert "of 1.0 MiB it may have" in faults(small, dry_run=True)["store"].detail
    assert_mends(small, "store", "given twice the room")
    with Instance.open(small) as instance:
        assert instance.sizes()[1] == 2 << 20


def test_a_writer_lock_that_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "PATIENCE", 0.1)
    with living(folder, "session.mkdir('/made')") as other:
        other.send_signal(signal.SIGSTOP)
        killed_files = folder / "run" / "process.00000000000000ff"
        killed_files.touch()
        found = faults(folder)
        assert found["processes"].verdict is Verdict.MENDED
        lock = found["writer lock"]
        assert lock.verdict is Verdict.BROKEN
        assert f"process {other.pid} " in lock.detail
        assert f"kill -USR1 {other.pid}" in lock.remedy
    assert_mends(folder, "redo log", "replayed")


def test_what_is_no_instance(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="not an instance"):
        examine(tmp_path)
    Instance.init(tmp_path / "i").close()
    os.truncate(tmp_path / "i" / "data.mdb", 100)
    with pytest.raises(InstanceError):
        examine(tmp_path / "i")
