"""Backups of an instance at rest: what is in them, what they replace, and what they refuse."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.contract.sessions import SessionSpec
from fusefs.session.binding import bind
from fusefs.session.session import Session
from fusefs.store.check import check
from fusefs.store.content import INLINE_MAX
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.maintenance import collect
from fusefs.store.retention import retained
from fusefs.store.trash_can import TrashCan
from fusefs.tree import host_calls
from fusefs.tree.backup_folder import MARKER
from fusefs.tree.instance_backup import BackupProgress, backup
from fusefs.tree.instance_restore import DamagedBackup, restore
from fusefs.tree.store_tree import StoreTree

BIG = os.urandom(3 * INLINE_MAX)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "i") as opened:
        session = Session(opened)
        session.write("/small", b"small")
        session.write("/d/big", BIG)
        opened.sessions.put(SessionSpec(name="s"), "-")
        yield opened


def problems(folder: Path) -> list[str]:
    with Instance.open(folder) as opened:
        return check(opened).problems


def read(folder: Path, path: str) -> bytes:
    with Instance.open(folder) as opened:
        return Session(opened).read(path)


def objects(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in (folder / "objects").glob("*/*")}


def test_a_backup_is_an_instance_with_everything(instance: Instance, tmp_path: Path) -> None:
    report = backup(instance, tmp_path / "b")
    assert (report.files, report.objects_copied, report.missing) == (2, 1, [])
    assert problems(tmp_path / "b") == []
    assert read(tmp_path / "b", "/d/big") == BIG
    with Instance.open(tmp_path / "b") as copy:
        assert copy.sessions.get("s") == instance.sessions.get("s")
        assert copy.journal.since(0) == instance.journal.since(0)
        assert report.journal.startswith(f"{copy.journal.last()}:")
    assert sorted(os.listdir(tmp_path)) == ["b", "i"]
    for directory, names, files in os.walk(tmp_path / "b"):
        for name in (*names, *files):
            assert stat.S_IMODE(os.lstat(os.path.join(directory, name)).st_mode) & 0o077 == 0


def test_only_new_contents_are_copied(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    before = objects(tmp_path / "b")
    session = Session(instance)
    session.write("/more", os.urandom(2 * INLINE_MAX))
    report = backup(instance, tmp_path / "b")
    assert (report.objects_copied, report.objects_kept, report.objects_removed) == (1, 1, 0)
    assert before.items() < objects(tmp_path / "b").items()
    session.write("/d/big", b"")
    report = backup(instance, tmp_path / "b")
    assert (report.objects_copied, report.objects_kept, report.objects_removed) == (0, 1, 1)
    assert problems(tmp_path / "b") == []


def test_files_that_are_being_written_are_in_it(instance: Instance, tmp_path: Path) -> None:
    tree = StoreTree(instance)
    key = tree.lookup(tree.root().key, b"small").key
    file = tree.open_file(key, write=True)
    file.write(0, BIG)
    file.write(1 << 30, b"end")
    report = backup(instance, tmp_path / "b")
    assert report.being_written == []
    scratch = next((tmp_path / "b" / "scratch").iterdir())
    assert (scratch.stat().st_size, scratch.stat().st_blocks * 512 < 1 << 20) == (
        (1 << 30) + 3, True
    )  # fmt: skip
    with Instance.open(tmp_path / "b") as copy:
        assert check(copy).problems == []
        assert StoreTree(copy).stat(key).mtime == tree.stat(key).mtime
        opened = StoreTree(copy).open_file(key, write=False)
        assert opened.read_nowait(1 << 30, 3) in (b"end", None)
    file.truncate(10)
    file.close()


def test_a_content_that_the_instance_lost_is_kept(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    shutil.rmtree(instance.folder / "objects")
    (instance.folder / "objects").mkdir()
    assert backup(instance, tmp_path / "b").missing == []
    assert read(tmp_path / "b", "/d/big") == BIG
    assert backup(instance, tmp_path / "other").missing == ["/d/big"]


def test_a_restored_instance_goes_on(instance: Instance, tmp_path: Path) -> None:
    Session(instance).rm("/small")
    backup(instance, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    with Instance.open(tmp_path / "r") as restored:
        session = Session(restored)
        assert session.read("/d/big") == BIG
        assert restored.sessions.get("s").secret == instance.sessions.get("s").secret
        assert [entry.path for entry in TrashCan(restored).entries()] == [b"/small"]
        last = restored.journal.last()
        session.write("/d/big", b"changed")
        assert restored.journal.last() > last
        assert check(restored).problems == []
        # It continues the same history: the backup is an earlier state of it.
        assert backup(restored, tmp_path / "b").objects_removed == 1
    assert not (tmp_path / "r" / MARKER).exists()
    with pytest.raises(InstanceError, match="changes that the instance does not have"):
        backup(instance, tmp_path / "b")
    assert read(tmp_path / "b", "/d/big") == b"changed"


def test_what_bound_folders_have_in_the_trash(instance: Instance, tmp_path: Path) -> None:
    host = tmp_path / "h"
    (host / "d").mkdir(parents=True)
    for name in ("d/a", "b", "c"):
        (host / name).write_text(name)
    (host / "d/a").chmod(0o640)
    bind(instance, host, (b"h",))
    session = Session(instance)
    for name in ("d", "b", "c"):
        session.rm(f"/h/{name}")
    entries = {entry.path: entry for entry in TrashCan(instance).entries()}
    # As if it were being restored at this moment: its bytes are gone, its record is not yet.
    shutil.rmtree(TrashCan(instance).payload_folder(entries[b"/h/c"].id))
    report = backup(instance, tmp_path / "b")
    assert report.bound == [("/h", str(host))]
    restore(tmp_path / "b", tmp_path / "r")
    with Instance.open(tmp_path / "r") as restored:
        can = TrashCan(restored)
        assert {entry.path for entry in can.entries()} == {b"/h/d", b"/h/b"}
        kept = can.payload_folder(entries[b"/h/d"].id) / "payload" / "a"
        assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("d/a", 0o640)


def test_nothing_goes_while_a_backup_reads(instance: Instance, tmp_path: Path) -> None:
    host = tmp_path / "h"
    host.mkdir()
    (host / "a").touch()
    bind(instance, host, (b"h",))
    session = Session(instance)
    session.rm("/h/a")
    session.write("/d/big", b"")
    with retained(instance.folder):
        TrashCan(instance).purge_older_than(-1)
        assert collect(instance).contents_left_to_backup == 1
        assert len(os.listdir(instance.folder / "trash")) == len(objects(instance.folder)) == 1
    assert (collect(instance).contents_removed, objects(instance.folder)) == (1, {})
    assert os.listdir(instance.folder / "trash") == []


def test_what_is_collected_meanwhile_is_in_it(instance: Instance, tmp_path: Path) -> None:
    def collect_now(progress: BackupProgress) -> None:
        if progress.step == "contents" and not progress.done:
            Session(instance).write("/d/big", b"")
            collect(instance)

    backup(instance, tmp_path / "b", progress=collect_now)
    assert read(tmp_path / "b", "/d/big") == BIG


def test_the_last_words_of_a_dead_process_are_in_it(instance: Instance, tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from fusefs.store.instance import Instance\n"
        "from fusefs.session.session import Session\n"
        f"Session(Instance.open({str(instance.folder)!r}, deferred=True)).mkdir('/last')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    backup(instance, tmp_path / "b")
    with Instance.open(tmp_path / "b") as copy:
        assert Session(copy).exists("/last")


def _other(tmp_path: Path) -> Path:
    with Instance.init(tmp_path / "other") as other:
        backup(other, tmp_path / "foreign")
    return tmp_path / "foreign"


def _restored(tmp_path: Path) -> Path:
    with Instance.open(tmp_path / "i") as instance:
        backup(instance, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    return tmp_path / "r"


def _with_other_things(tmp_path: Path) -> Path:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "file").touch()
    return tmp_path / "things"


def _inside_a_bound_folder(tmp_path: Path) -> Path:
    (tmp_path / "h").mkdir()
    with Instance.open(tmp_path / "i") as instance:
        bind(instance, tmp_path / "h", (b"h",))
    return tmp_path / "h" / "b"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (lambda tmp: tmp / "i", "itself"),
        (lambda tmp: tmp / "i" / "b", "lies in the instance"),
        (lambda tmp: tmp, "contains the instance"),
        (_other, "of another instance"),
        (_with_other_things, "neither empty nor a backup"),
        (_restored, "not a backup"),
        (_inside_a_bound_folder, "bound at /h"),
    ],
    ids=["itself", "inside", "around", "foreign", "things", "instance", "bound"],
)
def test_other_folders_are_left_alone(
    instance: Instance, tmp_path: Path, place: Callable[[Path], Path], why: str
) -> None:
    target = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InstanceError, match=why):
        backup(instance, target)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_backup_that_was_changed_is_left_alone(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    with Instance.open(tmp_path / "b") as copy:
        Session(copy).write("/mine", b"")
        with pytest.raises(InstanceError, match="in use"):
            backup(instance, tmp_path / "b")
    with pytest.raises(InstanceError, match="changes that the instance does not have"):
        backup(instance, tmp_path / "b")


def test_an_interrupted_backup_leaves_the_earlier_one(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    before = (tmp_path / "b" / MARKER).read_text()
    Session(instance).write("/more", os.urandom(2 * INLINE_MAX))

    def interrupt(progress: BackupProgress) -> None:
        if progress.step == "contents":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(instance, tmp_path / "b", progress=interrupt)
    assert (tmp_path / "b" / MARKER).read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["b", "i"]
    assert problems(tmp_path / "b") == []


def test_where_folders_cannot_be_exchanged(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: in steps, of which the next backup undoes what is half done."""

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(host_calls, "renameat2", refuse)
    backup(instance, tmp_path / "b")
    (tmp_path / "b").rename(tmp_path / ".b.old")
    Session(instance).write("/more", b"")
    assert backup(instance, tmp_path / "b").objects_kept == 1
    assert sorted(os.listdir(tmp_path)) == ["b", "i"]
    assert problems(tmp_path / "b") == []


def test_a_damaged_backup_is_not_restored(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    (damaged,) = (tmp_path / "b" / "objects").glob("*/*")
    damaged.chmod(0o600)
    damaged.write_bytes(BIG[:-1] + b"?")
    with pytest.raises(DamagedBackup) as caught:
        restore(tmp_path / "b", tmp_path / "r")
    assert "bytes are damaged" in caught.value.problems[0]
    os.truncate(tmp_path / "b" / "data.mdb", 9000)
    with pytest.raises(InstanceError):
        restore(tmp_path / "b", tmp_path / "r")
    assert sorted(os.listdir(tmp_path)) == ["b", "i"]


def test_a_restore_overwrites_nothing(instance: Instance, tmp_path: Path) -> None:
    backup(instance, tmp_path / "b")
    with pytest.raises(InstanceError, match=r"mv .*/i .*/i\.old"):
        restore(tmp_path / "b", instance.folder)
    with pytest.raises(InstanceError, match="not a backup"):
        restore(instance.folder, tmp_path / "r")
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "b", tmp_path / "empty")
    assert read(tmp_path / "empty", "/small") == b"small"


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_killed_at_any_moment(tmp_path: Path, command: str) -> None:
    with Instance.init(tmp_path / "i") as instance:
        session = Session(instance)
        for number in range(20):
            session.write(f"/more{number}", os.urandom(2 * INLINE_MAX))
        session.write("/state", b"old")
        backup(instance, tmp_path / "b")
        session.write("/state", b"new")

    def work() -> None:
        if command == "restore":
            restore(tmp_path / "b", tmp_path / "r")
        else:
            with Instance.open(tmp_path / "i") as opened:
                backup(opened, tmp_path / "b")

    began = time.monotonic()
    work()
    took = time.monotonic() - began
    for moment in range(12):
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                work()
            os._exit(0)
        time.sleep(took * moment / 10)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert problems(tmp_path / "b") == []
        assert read(tmp_path / "b", "/state") in (b"old", b"new")
        if (tmp_path / "r").exists():
            assert problems(tmp_path / "r") == []
    shutil.rmtree(tmp_path / "r", ignore_errors=True)
    work()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
