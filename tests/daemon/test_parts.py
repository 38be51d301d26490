"""The parts of the daemon that need no mount."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
import trio
from pyfuse3 import FUSEError

from fusefs.contract.errors import AccessDenied, NotFound
from fusefs.daemon import mount_lock
from fusefs.daemon.guard import handler
from fusefs.daemon.handles import DirectoryHandle
from fusefs.daemon.listings import FIRST_ENTRY
from fusefs.daemon.mount_lock import MountLock, Served
from fusefs.daemon.mountpoint import MountError
from fusefs.daemon.notify import Notifier
from fusefs.daemon.options import MountOptions
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from tests.daemon.conftest import World, until


class Handlers:
    """A handler that does what it is told."""

    def is_open(self, inode: int) -> bool:
        return inode == 7

    def paths_of(self, op: str, named: dict[str, object]) -> dict[str, str]:
        return {}

    @handler
    async def lookup(self, inode: int, failure: BaseException) -> None:
        raise failure

    @handler
    async def getattr(self, inode: int, failure: BaseException) -> None:
        raise failure

    @handler
    async def read(self) -> None:
        with trio.fail_after(0.01):
            await trio.sleep_forever()

    @handler
    async def write(self) -> None:
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("failure", "number"),
    [
        (FUSEError(errno.EXDEV), errno.EXDEV),
        (NotFound("/x"), errno.ENOENT),
        (AccessDenied("/x"), errno.EACCES),
        (OSError(errno.ENOSPC, ""), errno.ENOSPC),
        (OSError(errno.EBADF, ""), errno.EIO),
        (OSError("no number"), errno.EIO),
        (TimeoutError("the lock"), errno.ETIMEDOUT),
        (BlockingIOError(errno.EAGAIN, ""), errno.EIO),
        (MemoryError(), errno.EIO),
        (KeyError(1), errno.EIO),
    ],
)
def test_each_failure_has_its_errno(failure: Exception, number: int) -> None:
    with pytest.raises(FUSEError) as caught:
        trio.run(Handlers().lookup, 1, failure)
    assert caught.value.errno == number


def test_an_inode_whose_node_is_gone_is_stale_unless_it_is_hidden() -> None:
    for inode, number in ((7, errno.ESTALE), (8, errno.ENOENT)):
        with pytest.raises(FUSEError) as caught:
            trio.run(Handlers().getattr, inode, NotFound("/x"))
        assert caught.value.errno == number


def test_a_deadline_is_told_and_a_cancellation_passes() -> None:
    with pytest.raises(FUSEError) as caught:
        trio.run(Handlers().read)
    assert caught.value.errno == errno.ETIMEDOUT

    async def cancelled() -> bool:
        with trio.move_on_after(0.01) as scope:
            await Handlers().write()
        return scope.cancelled_caught

    assert trio.run(cancelled)


def test_notifications_are_sent_in_order_and_equal_ones_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[Any, ...]] = []
    go_on = threading.Event()

    def inode(number: int, attr_only: bool) -> None:
        sent.append((number, attr_only))
        go_on.wait(10)
        raise FileNotFoundError(errno.ENOENT, "forgotten")

    def entry(parent: int, name: bytes, deleted: int = 0) -> None:
        sent.append((parent, name, deleted))
        if deleted:
            raise OSError(errno.ENOTEMPTY, "in use")

    monkeypatch.setattr(pyfuse3, "invalidate_inode", inode)
    monkeypatch.setattr(pyfuse3, "invalidate_entry", entry)
    notifier = Notifier()
    notifier.start()
    notifier.content(1)
    until(lambda: sent)
    for _ in range(3):
        notifier.attributes(2)
        notifier.entry(3, b"name")
    notifier.removed(4, b"gone", 5)
    go_on.set()
    until(lambda: len(sent) == 5)
    assert sent == [(1, False), (2, True), (3, b"name", 0), (4, b"gone", 5), (4, b"gone", 0)]
    assert trio.run(notifier.stop)


def test_positions_of_a_listing() -> None:
    handle = DirectoryHandle(None, None)  # type: ignore[arg-type]

    def give(*names: bytes) -> list[int]:
        positions = []
        for name in names:
            positions.append(handle.position_after(name))
            handle.given(name, positions[-1])
        return positions

    assert handle.name_before(FIRST_ENTRY) == b""
    assert give(b"a", b"b", b"c") == [3, 4, 5]
    assert handle.name_before(4) == b"b"
    assert give(b"bb", b"c", b"d") == [6, 5, 7]
    assert handle.name_before(6) == b"bb"
    assert handle.name_before(5) == b"c"
    assert handle.name_before(8) is None
    assert handle.name_before(1) is None
    assert handle.name_before(FIRST_ENTRY) == b""
    assert give(b"a") == [3]
    handle.rewind()
    assert handle.name_before(3) is None
    assert give(b"z") == [3]


def test_options_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="EACCES or ENOENT"):
        MountOptions(passage_errno=errno.EPERM)
    with pytest.raises(ValueError, match="above 0"):
        MountOptions(deadline=0)


def test_a_mount_lock_says_who_serves(tmp_path: Path) -> None:
    served = Served(os.getpid(), "/some/where", "me")
    lock = MountLock(tmp_path, served)
    assert list(mount_lock.served(tmp_path)) == [served]
    with pytest.raises(MountError, match="served by another process"):
        MountLock(tmp_path, served)
    lock.release()
    assert list(mount_lock.served(tmp_path)) == []
    MountLock(tmp_path, served).release()


def test_nobody_starves_beside_a_busy_mount(world: World) -> None:
    view = world.mount().point
    stop = threading.Event()

    def churn(number: int) -> None:
        while not stop.is_set():
            (view / f"f{number}").write_bytes(b"x")

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        began = time.monotonic()
        with world.opened() as other:
            for number in range(10):
                other.mkdir(f"/d{number}")
        assert time.monotonic() - began < 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_what_a_mount_does_is_journalled_under_its_session(world: World) -> None:
    mounted = world.mount()
    (mounted.point / "f").write_bytes(b"x")
    os.rename(mounted.point / "f", mounted.point / "g")
    (mounted.point / "g").unlink()
    mounted.stop()
    with Instance.open(world.folder) as instance:
        records = [r for r in instance.journal.since(0) if r.op != Op.SESSION]
    assert [r.op for r in records] == [Op.CREATE, Op.WRITE, Op.RENAME, Op.REMOVE]
    assert {r.actor for r in records} == {"all"}
