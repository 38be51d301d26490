"""A daemon that is stuck says where, tells its service manager nothing, and can be replaced."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.daemon.mountpoint import is_dead
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.tree import HOST
from tests.daemon.conftest import Mounted, World, is_mounted, until


@contextmanager
def service_manager() -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A socket that is told how a service fares, and the environment that names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        address = f"\0fusefs-test-stuck-{os.getpid()}"
        manager.bind(address)
        yield manager, {"NOTIFY_SOCKET": "@" + address[1:], "WATCHDOG_USEC": "300000"}


def stat_in_thread(path: Path) -> threading.Thread:
    def call() -> None:
        try:
            path.stat()
        except OSError:
            return

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_a_request_that_waits_for_the_writer_lock(world: World) -> None:
    mounted = world.mount()
    with world.opened() as other:
        until(other.view.instance.writer_lock.try_acquire)
        maker = threading.Thread(target=(mounted.point / "d").mkdir)
        maker.start()

        until_told(mounted, "in Background.lock_writer")
        assert "in NameHandlers.mkdir" in mounted.words
        other.view.instance.commit()
        maker.join()
    assert (mounted.point / "d").is_dir()


def until_told(mounted: Mounted, *places: str) -> None:
    """Ask a daemon for its stacks until one of `places` is in them.

    The next question comes after the answer to the last, or a while later: one that comes while
    the answer is written gets the threads' stacks only.
    """
    asked = 0.0

    def told() -> bool:
        nonlocal asked
        if time.monotonic() - asked > 0.5:
            mounted.process.send_signal(signal.SIGUSR1)
            asked = time.monotonic()
        return any(place in mounted.words for place in places)

    try:
        until(told)
    except AssertionError:
        print(mounted.words[-20_000:])
        raise


@pytest.fixture
def stuck(world: World, tmp_path: Path) -> Iterator[tuple[Mounted, Mounted]]:
    """A mount that shows a folder of another mount, and that one."""
    lower = world.mount()
    (lower.point / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "second").mkdir()
    second = World(tmp_path / "second")
    with Instance.open(second.folder) as instance:
        instance.binds.put((b"host",), BindSpec(HOST, str(lower.point / "folder")), "-")
    upper = second.mount()
    upper.stop()
    yield upper, lower
    if lower.process.poll() is None:
        lower.process.send_signal(signal.SIGCONT)
    second.clear()


def test_a_daemon_that_waits_for_another_file_system(stuck: tuple[Mounted, Mounted]) -> None:
    upper, lower = stuck
    with service_manager() as (manager, environment):
        upper.start(environment=environment)
        assert manager.recv(100) == b"READY=1"
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        lower.process.send_signal(signal.SIGSTOP)
        caller = stat_in_thread(upper.point / "host" / "deep")

        # The main thread waits in the kernel: no signal handler of its own would run.
        until_told(upper, "/host_nodes.py", "/host_tree.py")
        assert "in lookup" in upper.words
        manager.settimeout(0)
        with pytest.raises(BlockingIOError):
            while True:
                manager.recv(100)
        manager.settimeout(1.0)  # ten signs of life would have come by now
        with pytest.raises(TimeoutError):
            manager.recv(100)

        # What the service manager does then.
        upper.process.send_signal(signal.SIGABRT)
        assert upper.process.wait(20) == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in upper.words
        caller.join()
        assert is_mounted(upper.point)
        assert is_dead(str(upper.point))
        lower.process.send_signal(signal.SIGCONT)
        manager.settimeout(20)
        upper.start(environment=environment)
        assert manager.recv(100) == b"READY=1"
        assert (upper.point / "host" / "deep").is_dir()
        assert upper.stop() == 0
