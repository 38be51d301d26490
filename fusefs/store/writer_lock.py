"""The writer lock of an instance: one process writes at a time.

An advisory lock on a file, in front of LMDB's own: it can be tried without waiting, waited
for with a deadline, and it is released by the kernel when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.002


class WriterLock:
    """An exclusive lock between processes; not reentrant, not between threads."""

    def __init__(self, path: Path, *, on_wait: Callable[[], None], deadline: float) -> None:
        """Prepare the lock; `on_wait` is called once when it is taken (to hurry the holder).

        Args:
            path: the lock file.
            on_wait: called once before waiting.
            deadline: seconds to wait at most.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._on_wait = on_wait
        self._deadline = deadline
        self.held = False

    def close(self) -> None:
        """Close the file, which releases the lock."""
        os.close(self._fd)
        self.held = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits."""
        if not self.held:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self.held = True
        return True

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            TimeoutError: it did not become free before the deadline.
        """
        if self.try_acquire():
            return
        self._on_wait()
        give_up = time.monotonic() + self._deadline
        pause = _FIRST_PAUSE
        while not self.try_acquire():
            if time.monotonic() > give_up:
                raise TimeoutError("another process of this instance keeps the writer lock")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def release(self) -> None:
        """Give the lock back."""
        if self.held:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.held = False
