"""Failures inside: the caller gets an errno, everybody else goes on."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from tests.daemon.conftest import Mounted, World, until


def number_of(path: Path) -> int | None:
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno
    return None


@pytest.mark.parametrize("name", ["bug", "key-error", "errno-EBADF", "errno-EFAULT"])
def test_what_must_not_happen_is_eio_and_logged(shared: Mounted, view: Path, name: str) -> None:
    assert number_of(view / name) == errno.EIO
    assert "Traceback" in shared.words
    (view / "lives").write_bytes(b"on")


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EXDEV", "EBUSY", "ELOOP", "EROFS", "EPERM"])
def test_what_the_caller_can_bring_about_passes(view: Path, name: str) -> None:
    assert number_of(view / f"errno-{name}") == getattr(errno, name)


def test_our_own_limits_are_not_the_callers(view: Path) -> None:
    assert number_of(view / "errno-EMFILE") == errno.ENFILE


def test_reads_that_wait_are_done_in_threads(view: Path) -> None:
    (view / "slow").write_bytes(b"worth waiting for")
    assert (view / "slow").read_bytes() == b"worth waiting for"


def test_a_read_that_hangs_times_out(world: World) -> None:
    mounted = world.mount(deadline=0.3)
    view = mounted.point
    (view / "hang").write_bytes(b"never")
    (view / "fine").write_bytes(b"fine")
    errors = []

    def read() -> None:
        try:
            (view / "hang").read_bytes()
        except OSError as error:
            errors.append(error.errno)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert (view / "fine").read_bytes() == b"fine"
    for thread in threads:
        thread.join()
    assert set(errors) == {errno.ETIMEDOUT}
    assert "not done before the deadline" in mounted.words
    assert (view / "fine").read_bytes() == b"fine"
    assert mounted.stop() == 0  # what hangs on has nothing to lose


def test_a_writer_lock_that_nobody_gives_back(world: World) -> None:
    mounted = world.mount(deadline=0.3)
    view = mounted.point
    (view / "f").write_bytes(b"kept")
    os.sync()
    with world.opened() as other:
        instance = other.view.instance
        until(instance.writer_lock.try_acquire)
        for call in (
            lambda: (view / "g").write_bytes(b""),
            (view / "f").unlink,
            (view / "d").mkdir,
            lambda: os.rename(view / "f", view / "h"),
            lambda: os.chmod(view / "f", 0o600),
            lambda: os.setxattr(view / "f", "user.x", b""),
            lambda: os.truncate(view / "f", 0),
        ):
            with pytest.raises(TimeoutError):
                call()
        assert (view / "f").read_bytes() == b"kept"
        instance.commit()
    (view / "g").write_bytes(b"now")


def test_a_writer_that_waits_does_not_hold_up_readers(world: World) -> None:
    view = world.mount(deadline=20.0).point
    (view / "f").write_bytes(b"kept")
    with (view / "f").open("rb") as handle:
        os.fsync(handle.fileno())
    done = threading.Event()

    def write() -> None:
        (view / "g").write_bytes(b"")
        done.set()

    with world.opened() as other:
        instance = other.view.instance
        until(instance.writer_lock.try_acquire)
        writer = threading.Thread(target=write)
        writer.start()
        began = time.monotonic()
        for _ in range(50):
            assert (view / "f").read_bytes() == b"kept"
        assert time.monotonic() - began < 10
        assert not done.is_set()
        instance.commit()
        writer.join()


def test_many_at_once(view: Path) -> None:
    def work(number: int) -> None:
        for turn in range(30):
            path = view / f"{number}-{turn}"
            path.write_bytes(bytes([number]) * 1000)
            assert path.read_bytes() == bytes([number]) * 1000
            if turn % 2:
                path.unlink()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(view)) == 12 * 15
