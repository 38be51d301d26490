"""The writer lock between processes, and between a thread that waits for it and the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fusefs.store.writer_lock import WriterLock

OPEN = (
    "import os, sys; from pathlib import Path\n"
    "from fusefs.store.writer_lock import WriterLock\n"
    "say = lambda _: print('waits', flush=True)\n"
    "lock = WriterLock(Path(sys.argv[1]), process=2, on_wait=say, deadline=60)\n"
)


def nobody(_: int) -> None:
    """Tell nobody."""


def make(
    path: Path, *, deadline: float = 60, on_wait: Callable[[int], None] = nobody
) -> WriterLock:
    return WriterLock(path, process=1, on_wait=on_wait, deadline=deadline)


def other_process(path: Path, body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN + body, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "writer.lock"


def test_who_waits_comes_before_who_had_it(path: Path) -> None:
    lock = make(path)
    assert lock.try_acquire()
    with other_process(path, "lock.acquire(); print('has', flush=True); input()") as waiter:
        assert said(waiter) == "waits"
        lock.release()
        assert not lock.try_acquire()
        assert said(waiter) == "has"
        assert not lock.try_acquire()
        waiter.communicate("\n")
    assert lock.try_acquire()
    lock.close()


def test_a_waiter_that_is_killed_leaves_the_queue(path: Path) -> None:
    lock = make(path)
    assert lock.try_acquire()
    with other_process(path, "lock.acquire()") as waiter:
        assert said(waiter) == "waits"
        os.kill(waiter.pid, signal.SIGKILL)
        waiter.wait()
    lock.release()
    assert lock.try_acquire()
    lock.close()


def test_the_holder_is_named_to_who_waits(path: Path) -> None:
    holders: list[int] = []
    lock = make(path, deadline=0, on_wait=holders.append)
    with other_process(path, "lock.acquire(); print('has', flush=True); input()") as holder:
        assert said(holder) == "has"
        with pytest.raises(TimeoutError):
            lock.acquire()
        holder.communicate("\n")
    assert holders == [2]
    lock.close()


def test_what_a_thread_waited_for_is_taken_once(path: Path) -> None:
    lock = make(path)
    with other_process(path, "lock.acquire(); print('has', flush=True); input()") as holder:
        assert said(holder) == "has"
        lock.begin_waiting()
        thread = threading.Thread(target=lock.wait)
        thread.start()
        assert not lock.try_acquire()
        lock.end_waiting()
        assert not lock.held
        holder.communicate("\n")
        lock.acquire()
        assert lock.held
        thread.join()
        lock.release()
        lock.end_waiting()  # too late: the lock is given back already
        assert not lock.held
    with other_process(path, "print(lock.try_acquire(), flush=True)") as next_one:
        assert said(next_one) == "True"
    lock.close()


def test_a_waiter_that_is_stopped_keeps_nobody_out(path: Path) -> None:
    lock = make(path)
    assert lock.try_acquire()
    with other_process(path, "lock.acquire(); print('has', flush=True); input()") as waiter:
        assert said(waiter) == "waits"
        os.kill(waiter.pid, signal.SIGSTOP)
        lock.release()
        assert not lock.try_acquire()
        lock.acquire()
        lock.release()
        os.kill(waiter.pid, signal.SIGCONT)
        assert said(waiter) == "has"
        waiter.communicate("\n")
    lock.close()
