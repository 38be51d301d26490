"""Who makes an instance's index complete: one process at a time, which says that it lives."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

HEARTBEAT = 5.0
"""Seconds after which the holder says that it lives, at the latest."""
EXPIRES = 60.0
"""Seconds without a word after which another one may take over, though the holder lives."""


class LeaseLost(Exception):
    """Another process makes the index complete now."""


class Lease:
    """The lease of one instance, in a file that is only read and written under a lock."""

    def __init__(self, file: Path) -> None:
        """Keep it in `file`."""
        self._file = file
        self._said = 0.0

    def take(self, process: int, alive: Set[int]) -> bool:
        """Take the lease if it is free, or its holder dead or silent; tell whether it was had.

        Args:
            process: who takes it.
            alive: the processes of the instance that live.
        """
        with self._locked() as fd:
            holder, said = _read(fd)
            if holder != process and holder in alive and 0 <= time.time() - said < EXPIRES:
                return False
            self._write(fd, process)
        return True

    @contextmanager
    def held(self, process: int) -> Iterator[None]:
        """Say that the holder lives, and let nobody take over meanwhile.

        Raises:
            LeaseLost: it holds the lease no more.
        """
        with self._locked() as fd:
            if _read(fd)[0] != process:
                raise LeaseLost
            yield
            self._write(fd, process)

    def beat(self, process: int) -> None:
        """Say that the holder lives, if it has not done so for a while (see `held`)."""
        if time.monotonic() - self._said > HEARTBEAT:
            with self.held(process):
                pass

    def give_back(self, process: int) -> None:
        """Let others have it."""
        with self._locked() as fd:
            if _read(fd)[0] == process:
                os.ftruncate(fd, 0)

    def holder(self, alive: Set[int]) -> int | None:
        """Return the living process that holds it, None where nobody does."""
        with self._locked() as fd:
            holder, said = _read(fd)
        is_held = holder in alive and 0 <= time.time() - said < EXPIRES
        return holder if is_held else None

    def _write(self, fd: int, process: int) -> None:
        self._said = time.monotonic()
        raw = json.dumps([process, time.time()]).encode()
        os.pwrite(fd, raw, 0)
        os.ftruncate(fd, len(raw))

    @contextmanager
    def _locked(self) -> Iterator[int]:
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)


def _read(fd: int) -> tuple[int, float]:
    """Return the holder and when it last said that it lives; none is process 0."""
    try:
        holder, said = json.loads(os.pread(fd, 100, 0))
        return int(holder), float(said)
    except (ValueError, TypeError):
        return 0, 0.0
