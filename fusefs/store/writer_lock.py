"""The writer lock of an instance: one process writes at a time.

Advisory locks on files, in front of LMDB's own: they can be tried without waiting, waited for
with a deadline, and the kernel releases them when their holder dies.

Whoever waits holds a second lock meanwhile, the *gate*, through which everybody must go: a
process that gave the writer lock up and wants it again at once comes after the one that waited.
The holder's id stands in the file, so that it alone is told that somebody waits.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fusefs.store.flocks import try_lock

_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.003
_ID_BYTES = 8
_PATIENCE = 1.0
"""Seconds after which a process at the gate is taken for one that is stopped."""


class WriterLock:
    """An exclusive lock between processes; not reentrant, not between threads.

    Attributes:
        held: this process has it.
        held_since: when it was taken, in seconds of `time.monotonic`.
        on_take: called whenever it was taken, in the thread that uses it.
    """

    def __init__(
        self, path: Path, *, process: int, on_wait: Callable[[int], None], deadline: float
    ) -> None:
        """Prepare the lock.

        Args:
            path: the lock file; the gate's stands beside it.
            process: the id of this process.
            on_wait: called with the holder's id when this process is the next to get it.
            deadline: seconds that `acquire` waits at most.
        """
        self._fd = _open(path)
        self._gate = _open(path.with_suffix(".gate"))
        self._process = process.to_bytes(_ID_BYTES, "big")
        self._on_wait = on_wait
        self._deadline = deadline
        self._waiting = False
        self._granted = threading.Event()
        self.held = False
        self.held_since = 0.0
        self.on_take: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Close the files, which releases the locks."""
        os.close(self._fd)
        os.close(self._gate)
        self.held = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free and nobody waits for it; never waits."""
        if not self.held and not self._waiting and try_lock(self._gate):
            if try_lock(self._fd):
                self._take()
            _unlock(self._gate)
        return self.held

    def acquire(self, seconds: float = math.inf) -> None:
        """Take the lock.

        Args:
            seconds: how long to wait for it at most, if that is less than the deadline.

        Raises:
            TimeoutError: it did not become free in that time.
        """
        if self.held:
            return
        seconds = min(seconds, self._deadline)
        give_up = time.monotonic() + seconds
        if self._waiting:
            if not self._granted.wait(seconds):
                raise _too_late()
            self.end_waiting()
            return
        with self._next(give_up):
            if not try_lock(self._fd):
                self._hurry()
                if not _poll_lock(self._fd, give_up):
                    raise _too_late()
            self._take()

    # Waiting beside other work: `begin_waiting`, then `wait` in another thread, `end_waiting`.

    def begin_waiting(self) -> None:
        """Leave the lock to `wait`; to be called when it is not held."""
        assert not self.held
        self._waiting = True

    def wait(self) -> None:
        """Get the lock, however long it takes. For a thread of its own."""
        with self._next(math.inf):
            if not try_lock(self._fd):
                self._hurry()
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._granted.set()

    def end_waiting(self) -> None:
        """Take the lock that `wait` got, unless `acquire` was faster."""
        if self._granted.is_set():
            self._granted.clear()
            self._waiting = False
            self._take()

    @contextmanager
    def _next(self, give_up: float) -> Iterator[None]:
        """Be the next to get the lock; or, where the next one seems to sleep, go past it."""
        at_gate = _poll_lock(self._gate, min(give_up, time.monotonic() + _PATIENCE))
        try:
            yield
        finally:
            if at_gate:
                _unlock(self._gate)

    def _take(self) -> None:
        self.held = True
        self.held_since = time.monotonic()
        os.pwrite(self._fd, self._process, 0)
        self.on_take()

    def release(self) -> None:
        """Give the lock back."""
        if self.held:
            self.held = False
            _unlock(self._fd)

    def _hurry(self) -> None:
        self._on_wait(int.from_bytes(os.pread(self._fd, _ID_BYTES, 0), "big"))


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


def _poll_lock(fd: int, give_up: float) -> bool:
    """Try to take a lock until `give_up`; tell whether it was had."""
    pause = _FIRST_PAUSE
    while not try_lock(fd):
        if time.monotonic() > give_up:
            return False
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return True


def _too_late() -> TimeoutError:
    return TimeoutError("another process of this instance keeps the writer lock")
