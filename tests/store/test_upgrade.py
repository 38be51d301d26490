"""An instance that an older program wrote is carried over, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import random
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import lmdb
import pytest

from fusefs.session.restore import restore
from fusefs.session.session import Session
from fusefs.store import keys, life, upgrades
from fusefs.store.check import check
from fusefs.store.instance import FORMAT, Instance, InstanceError
from fusefs.store.lmdb_meta import look
from fusefs.store.maintenance import collect
from fusefs.store.trash_can import TrashCan
from tests.conftest import Cli, Quick
from tests.data import format1
from tests.store.pages import Pages


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An instance of format 1 whose process died."""
    with tarfile.open(format1.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "instance"


def _format(folder: Path) -> int | None:
    return look(folder / "data.mdb").format


def _expect_all(folder: Path) -> None:
    with Instance.open(folder, progress=None) as instance:
        session = Session(instance)
        for path, data in format1.FILES.items():
            assert session.read(path) == data, path
        for path, mode in format1.MODES.items():
            assert (session.stat(path).mode, session.stat(path).mtime) == (mode, format1.TIME)
        for path, target in format1.LINKS.items():
            place = session.place(session.resolve(path), follow=False)
            assert session.view.read_link(place) == target
        for (path, attribute), value in format1.XATTRS.items():
            place = session.place(session.resolve(path))
            assert session.view.get_xattr(place, attribute) == value
        assert [entry.name for entry in session.list("/many")] == [f"{n:04}" for n in range(400)]
        for name, spec in format1.SESSIONS.items():
            assert instance.sessions.get(name) == spec
        assert instance.binds.all() == dict([format1.BIND])
        for entry in TrashCan(instance).entries():
            restore(session, entry.id)
        for path, data in format1.TRASHED.items():
            assert session.read(path) == data
        collect(instance)
        for path, data in format1.FILES.items():
            assert session.read(path) == data, path
        assert check(instance).problems == []


def test_everything_is_carried_over(old: Path) -> None:
    said: list[str] = []
    assert _format(old) == 1
    Instance.open(old, progress=said.append).close()
    assert _format(old) == FORMAT
    assert "Upgrading" in said[0]
    assert f"has format {FORMAT} now" in said[-1]
    said.clear()
    Instance.open(old, progress=said.append).close()
    assert said == []
    _expect_all(old)


def test_the_command_line_says_so_and_goes_on(old: Path) -> None:
    done = Cli(old)("--json", "cat", "/docs/readme.txt", expect=None)
    assert "Upgrading" in done.err
    assert done.status == 0
    assert "Upgrading" not in Cli(old)("cat", "/docs/readme.txt").err


def test_not_while_another_process_has_it_open(old: Path) -> None:
    fd = life.hold(old / "run", 1)
    with pytest.raises(InstanceError, match="Unmount its views first"):
        Instance.open(old)
    Quick(old)("mounts")  # which the refusal speaks of
    os.close(fd)
    assert _format(old) == 1
    _expect_all_after_opening(old)


def test_a_process_of_the_old_program_that_opens_it_meanwhile_keeps_it(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    step = upgrades._ToFormat2
    sum_large = step._sum_large

    def slowly(self: upgrades._ToFormat2) -> None:
        sum_large(self)
        held.append(life.hold(old / "run", 2))

    monkeypatch.setattr(step, "_sum_large", slowly)
    with pytest.raises(InstanceError, match="Unmount its views first"):
        Instance.open(old)
    assert _format(old) == 1
    with lmdb.open(os.fspath(old)) as env, env.begin() as txn:
        assert txn.get(keys.META_FORMAT) == keys.number(1)
    os.close(held[0])
    monkeypatch.undo()
    _expect_all_after_opening(old)


def _expect_all_after_opening(folder: Path) -> None:
    Instance.open(folder).close()
    _expect_all(folder)


@contextmanager
def _in_another_process() -> Iterator[bool]:
    """Run the block in a process that is expected to be killed."""
    if (pid := os.fork()) == 0:
        try:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
            yield True
        finally:
            os._exit(0)
    yield False
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)


def _upgrade_and_die(folder: Path, commits: int) -> None:
    """Upgrade in small steps; die when the given number of transactions has begun."""
    upgrades._VALUES_AT_ONCE = 150
    begin = upgrades._ToFormat2._commit
    left = [commits]

    def dying(self: upgrades._ToFormat2) -> lmdb.Transaction:
        txn = begin(self)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return txn

    upgrades._ToFormat2._commit = dying  # type: ignore[method-assign]
    Instance.open(folder)


def test_it_can_be_killed_at_any_moment(old: Path) -> None:
    deaths, formats = 0, set()
    for commits in range(2, 40, random.randrange(2, 5)):
        with _in_another_process() as there:
            if there:
                _upgrade_and_die(old, commits)
        found = look(old / "data.mdb")
        formats.add(found)
        deaths += found.format == 1 or found.upgrading
        if found == (FORMAT, False):
            break
    assert deaths >= 2
    assert (FORMAT, False) in formats
    _expect_all(old)


def test_what_was_damaged_before_is_not_made_right(old: Path) -> None:
    key = keys.CONTENT + sha256(format1.FILES[b"/many/0007"]).digest()
    with lmdb.open(os.fspath(old), map_size=1 << 30) as env, env.begin(write=True) as txn:
        txn.put(key, b"other bytes")
    shelf = min((old / "objects").glob("*/*"), key=lambda file: file.stat().st_size)
    shelf.chmod(0o600)
    with shelf.open("r+b") as file:
        file.write(b"?")
    with Instance.open(old) as instance:
        session = Session(instance)
        for path, data in format1.FILES.items():
            # The redo log is of a transaction that is not the next any more.
            if path in (b"/many/0007", b"/data/past.bin") or path.startswith(b"/late"):
                continue
            assert session.read(path) == data
        with pytest.raises(OSError, match="damaged") as caught:
            session.read("/many/0007")
        assert caught.value.errno == errno.EIO
        assert len(check(instance).problems) >= 2


def test_damaged_pages_are_not_carried_over(old: Path) -> None:
    with (old / "data.mdb").open("r+b") as file:
        file.seek(Pages(old / "data.mdb").used["leaf"][0].start + 10)
        file.write(b"\xff\xff")
    before = (old / "data.mdb").read_bytes()
    with pytest.raises(InstanceError, match="damaged"):
        Instance.open(old)
    assert (old / "data.mdb").read_bytes().startswith(before)
