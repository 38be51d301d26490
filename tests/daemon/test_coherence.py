"""A change by anybody is seen through every mount, though the kernel caches for hours."""

from __future__ import annotations

import errno
import mmap
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec
from fusefs.daemon.notify import Notifier
from fusefs.session.session import Session
from fusefs.store import keys
from fusefs.store import seal as sealing
from fusefs.store.instance import Instance
from fusefs.tree.backend import Change
from tests.conftest import unmount
from tests.daemon.conftest import World, settle, until
from tests.mount.killing import forked_daemon


def missing(path: Path) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    return False


def number_of(path: Path) -> int | None:
    try:
        os.listdir(path) if path.is_dir() else path.read_bytes()
    except OSError as error:
        return error.errno
    return None


def test_names_come_and_go(world: World) -> None:
    view = world.mount().point
    assert missing(view / "new")
    with world.opened() as other:
        other.write("/new", b"1")
        until(lambda: not missing(view / "new"))
        assert os.listdir(view) == ["new"]
        other.mv("/new", "/moved")
        until(lambda: missing(view / "new"))
        assert (view / "moved").read_bytes() == b"1"
        other.rm("/moved")
        until(lambda: missing(view / "moved"))
        other.mkdir("/moved")
        until((view / "moved").is_dir)


def test_a_change_that_the_kernel_has_not_heard_of_is_seen_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New bytes were cut at the old size: that was kept, of a file whose bytes were not."""
    folder, top = tmp_path / "instance", tmp_path / "view"
    top.mkdir()
    with Instance.init(folder) as instance:
        instance.sessions.put(SessionSpec("s", grants={(): Level.COMMIT}), "-")
    monkeypatch.setattr(Notifier, "content", lambda notifier, inode: None)
    monkeypatch.setattr(Notifier, "attributes", lambda notifier, inode: None)
    daemon = forked_daemon(folder, "s", top)
    try:
        (top / "f").write_bytes(b"short\n")
        settle(top)
        os.listdir(top)  # tells the kernel all attributes
        with Instance.open(folder) as instance:
            Session(instance).write("/f", b"much longer than before\n")
        assert (top / "f").read_bytes() == b"much longer than before\n"
    finally:
        os.kill(daemon, signal.SIGTERM)
        os.waitpid(daemon, 0)


def test_content_of_the_same_size_and_time(world: World) -> None:
    mounted = world.mount()
    file = mounted.point / "f"
    file.write_bytes(b"one")
    os.utime(file, ns=(1, 1))
    settle(mounted.point)
    with file.open("rb", buffering=0) as open_before, file.open("rb") as mapped_before:
        area = mmap.mmap(mapped_before.fileno(), 3, prot=mmap.PROT_READ)
        assert area[:] == open_before.read() == b"one"
        with world.opened() as other:
            other.write("/f", b"two")
            other.view.set_attributes(other.place((b"f",)), Change(atime=1, mtime=1))
        until(lambda: file.read_bytes() == b"two")
        assert os.pread(open_before.fileno(), 3, 0) == b"two"
        until(lambda: area[:] == b"two")
        area.close()


def test_what_is_written_and_not_closed_is_seen_by_another_mount(world: World) -> None:
    first = world.mount().point
    second = world.mount().point
    with (first / "f").open("wb", buffering=0) as writer:
        writer.write(b"1" * 10)
        until(lambda: not missing(second / "f") and (second / "f").stat().st_size == 10)
        assert (second / "f").read_bytes() == b"1" * 10
        writer.seek(0)
        writer.write(b"2" * 200_000)
        until(lambda: (second / "f").read_bytes() == b"2" * 200_000)
    assert (second / "f").read_bytes() == b"2" * 200_000


def complete(log: Path) -> bool:
    return log.stat().st_size == 800 and b"\0" not in log.read_bytes()


def test_two_mounts_append_to_one_file(world: World) -> None:
    first = world.mount().point
    second = world.mount().point
    (first / "log").write_bytes(b"")
    until(lambda: not missing(second / "log"))
    one = os.open(first / "log", os.O_WRONLY | os.O_APPEND)
    two = os.open(second / "log", os.O_WRONLY | os.O_APPEND)
    for _turn in range(40):
        os.write(one, b"1" * 9 + b"\n")
        os.write(two, b"2" * 9 + b"\n")
    os.close(one)
    os.close(two)
    for view in (first, second):
        until(partial(complete, view / "log"))
        lines = (view / "log").read_bytes().splitlines()
        assert sorted(lines) == [b"1" * 9] * 40 + [b"2" * 9] * 40


def test_attributes(world: World) -> None:
    view = world.mount().point
    (view / "f").write_bytes(b"")
    assert (view / "f").stat().st_mode & 0o777 == 0o644
    settle(view)
    with world.opened() as other:
        other.view.set_attributes(other.place((b"f",)), Change(mode=0o600, uid=12))
    until(lambda: (view / "f").stat().st_mode & 0o777 == 0o600)
    assert (view / "f").stat().st_uid == 12


def test_an_open_file_that_others_remove(world: World) -> None:
    view = world.mount().point
    (view / "f").write_bytes(b"kept")
    settle(view)
    with (view / "f").open("rb", buffering=0) as file, world.opened() as other:
        other.rm("/f")
        until(lambda: missing(view / "f"))
        assert file.read() == b"kept"
        until(lambda: os.fstat(file.fileno()).st_nlink == 0)


def test_a_directory_that_others_move(world: World) -> None:
    view = world.mount().point
    (view / "a" / "b").mkdir(parents=True)
    (view / "a" / "b" / "f").write_bytes(b"1")
    fd = os.open(view / "a" / "b", os.O_RDONLY)
    settle(view)
    with world.opened() as other:
        other.mv("/a", "/z")
        until(lambda: missing(view / "a"))
    assert (view / "z" / "b" / "f").read_bytes() == b"1"
    assert os.listdir(fd) == ["f"]
    assert os.fstat(fd).st_ino == (view / "z" / "b").stat().st_ino
    os.close(fd)


# Rules.

NARROW = {(b"open",): Level.STAGE, (b"shut", b"deep", b"room"): Level.RO}


def make_tree(world: World) -> None:
    with world.opened() as other:
        other.write("/open/f", b"f")
        other.write("/open/hidden/g", b"g")
        other.write("/shut/h", b"h")
        other.write("/shut/deep/room/k", b"k")


def test_passages(world: World) -> None:
    make_tree(world)
    view = world.mount("narrow", NARROW).point
    status = (view / "shut").stat()
    assert oct(status.st_mode) == "0o40111"
    assert (status.st_size, status.st_mtime_ns) == (0, 0)
    assert number_of(view) == errno.EACCES
    assert number_of(view / "shut") == errno.EACCES
    assert (view / "shut" / "deep" / "room" / "k").read_bytes() == b"k"
    for path in ("shut/h", "shut/none", "other"):
        assert number_of(view / path) == errno.EACCES
    for path in ("open/none", "shut/deep/room/none"):
        assert number_of(view / path) == errno.ENOENT
    for path in ("shut/new", "new", "shut/deep/x"):
        with pytest.raises(PermissionError):
            (view / path).mkdir()
    with pytest.raises(OSError) as caught:
        (view / "shut" / "deep" / "room" / "k").write_bytes(b"")
    assert caught.value.errno == errno.EROFS
    assert (view / "shut" / "deep" / "room" / "k").stat().st_mode & 0o222 == 0


def test_what_is_below_a_passage_comes_and_goes(world: World) -> None:
    with world.opened() as other:
        other.write("/p/q/seen", b"file")
        file = world.mount("s", {(b"p", b"q", b"seen"): Level.STAGE}).point / "p/q/seen"
        assert file.read_bytes() == b"file"
        with file.open("rb", buffering=0) as held:
            other.rm("/p/q/seen")
            until(lambda: missing(file))
            assert held.read() == b"file"
        other.mkdir("/p/q/seen")
        until(file.is_dir)
        for change in (lambda: other.rm("/p/q"), lambda: other.mv("/p/q", "/hidden")):
            other.write("/p/q/seen/in", b"in")
            until((file / "in").exists)
            inside = os.open(file, os.O_RDONLY)
            change()
            until(lambda: missing(file))
            # Who stands in it goes with it: into the trash, or to where nothing is granted.
            until(lambda: is_refused("in", inside))  # noqa: B023 - waited for here
            os.close(inside)
        other.mv("/hidden", "/p/q")
        until((file / "in").exists)
        other.mv("/p/q/seen", "/p/q/other")
        until(lambda: missing(file))


def is_refused(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.EACCES)
    return False


def test_passages_may_answer_enoent(world: World) -> None:
    make_tree(world)
    view = world.mount("narrow", NARROW, passage_errno=errno.ENOENT).point
    assert number_of(view / "shut" / "h") == errno.ENOENT
    assert number_of(view / "other") == errno.ENOENT
    assert number_of(view / "shut") == errno.EACCES
    assert (view / "shut" / "deep" / "room" / "k").read_bytes() == b"k"


def lacks_permission(call: Callable[[], object]) -> bool:
    try:
        call()
    except PermissionError:
        return True
    return False


def test_a_grant_that_is_taken_away(world: World) -> None:
    make_tree(world)
    view = world.mount("narrow", NARROW).point
    with (view / "open" / "f").open("r+b", buffering=0) as file:
        area = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
        assert file.read() == b"f"
        assert area[:] == b"f"
        area.close()
        file.write(b"before")
        world.define("narrow", {(b"shut",): Level.RO})
        until(lambda: number_of(view / "open" / "f") == errno.EACCES)
        # Of bytes that it keeps the kernel is told by a thread, some milliseconds later.
        until(lambda: lacks_permission(partial(os.pread, file.fileno(), 10, 0)))
        for call in (
            lambda: os.pread(file.fileno(), 10, 0),
            lambda: os.pwrite(file.fileno(), b"after", 0),
            lambda: os.fstat(file.fileno()),
            lambda: os.ftruncate(file.fileno(), 0),
        ):
            with pytest.raises(PermissionError):
                call()
    with world.opened() as other:
        assert other.read("/open/f") == b"fbefore"
    assert (view / "shut" / "h").read_bytes() == b"h"
    assert os.listdir(view / "shut") == ["deep", "h"]


def test_a_grant_that_is_given(world: World) -> None:
    make_tree(world)
    levels = {(b"open",): Level.RO, (b"open", b"hidden"): Level.NONE}
    view = world.mount("narrow", levels).point
    assert number_of(view / "open" / "hidden") == errno.ENOENT
    assert os.listdir(view / "open") == ["f"]
    assert number_of(view / "shut") == errno.EACCES
    times = (view / "open").stat().st_mtime_ns
    world.define("narrow", {(): Level.COMMIT})
    until(lambda: number_of(view / "open" / "hidden" / "g") is None)
    assert os.listdir(view) == ["open", "shut"]
    assert (view / "open" / "f").stat().st_mode & 0o200
    (view / "open" / "f").write_bytes(b"now")
    world.define("narrow", levels)
    until(lambda: number_of(view / "open" / "hidden") == errno.ENOENT)
    assert number_of(view / "open" / "hidden" / "g") == errno.ENOENT
    assert os.listdir(view / "open") == ["f"]
    assert (view / "open").stat().st_mtime_ns == times


def test_a_session_that_is_removed_sees_nothing(world: World) -> None:
    make_tree(world)
    view = world.mount("narrow", NARROW).point
    assert number_of(view / "open" / "f") is None
    with world.opened() as other:
        other.view.instance.sessions.remove("narrow", "-")
    until(lambda: number_of(view / "open" / "f") == errno.EACCES)


def test_hidden_changes_show_nowhere(world: World) -> None:
    make_tree(world)
    levels = {(b"open",): Level.STAGE, (b"open", b"hidden"): Level.NONE}
    view = world.mount("narrow", levels).point
    before = (view / "open").stat()
    with world.opened() as other:
        other.write("/open/hidden/more", b"x")
        other.rm("/open/hidden")
        other.write("/open/seen", b"x")
        until(lambda: not missing(view / "open" / "seen"))
        other.rm("/open/seen")
        until(lambda: missing(view / "open" / "seen"))
    assert (view / "open").stat()[:7] == before[:7]


def test_two_sessions_write_in_turn(world: World) -> None:
    first = world.mount().point
    second = world.mount().point
    for turn in range(25):
        (first / f"a{turn}").write_bytes(b"1")
        (second / f"b{turn}").write_bytes(b"2")
        until((second / f"a{turn}").exists)
        until((first / f"b{turn}").exists)
    assert len(os.listdir(first)) == 50


def test_what_a_damaged_journal_cannot_tell_is_looked_up_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = world.mount()
    view = mounted.point
    (view / "f").write_bytes(b"old")
    os.sync()
    assert (view / "f").read_bytes() == b"old"
    assert not (view / "g").exists()
    whole = sealing.seal

    def seal(key: bytes, value: bytes) -> bytes:
        return b"damaged" if key.startswith(keys.JOURNAL) else whole(key, value)

    with world.opened() as other:
        with monkeypatch.context() as patch:
            patch.setattr("fusefs.store.lmdb_kv.seal", seal)
            other.write("/f", b"new")
            other.write("/g", b"new")
        until(lambda: (view / "f").read_bytes() == b"new" and (view / "g").exists())
        other.write("/f", b"newer")
        until(lambda: (view / "f").read_bytes() == b"newer")


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_killed_mount_had_done_is_seen_by_the_others(world: World, size: int) -> None:
    view, other = world.mount().point, world.mount()
    (view / "f").write_bytes(b"old")
    until((other.point / "f").exists)
    assert (view / "f").read_bytes() == b"old"
    assert not (view / "g").exists()
    (other.point / "f").write_bytes(b"n" * size)
    (other.point / "g").write_bytes(b"")
    other.process.kill()
    other.process.wait()
    until(lambda: (view / "g").exists() and (view / "f").read_bytes() == b"n" * size)
    unmount(other.point)
