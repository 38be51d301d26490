"""Who makes an instance's index complete: one process at a time, which says that it lives."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from fusefs.store.flocks import try_lock

HEARTBEAT = 5.0
"""Seconds after which the holder says that it lives, at the latest."""
EXPIRES = 60.0
"""Seconds without a word after which another one may take over, though the holder lives."""

_PATIENCE = 5.0
"""Seconds to wait at most for somebody who changes the lease."""
_POLL_SECONDS = 0.01


class LeaseLost(Exception):
    """Another process makes the index complete now."""


class Lease:
    """The lease of one instance, in a file that is replaced whole, under a lock beside it.

    Who only looks takes no lock, and so is never kept waiting by a process that was stopped.
    """

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
        with self._locked() as ours:
            if not ours or self.holder(alive - {process}) is not None:
                return False
            self._write(process)
        return True

    @contextmanager
    def held(self, process: int) -> Iterator[None]:
        """Say that the holder lives, and let nobody take over meanwhile.

        Raises:
            LeaseLost: it holds the lease no more.
        """
        with self._locked() as ours:
            if not ours or self._read()[0] != process:
                raise LeaseLost
            yield
            self._write(process)

    def beat(self, process: int) -> None:
        """Say that the holder lives, if it has not done so for a while (see `held`)."""
        if time.monotonic() - self._said > HEARTBEAT:
            with self.held(process):
                pass

    def give_back(self, process: int) -> None:
        """Let others have it."""
        with self._locked() as ours:
            if ours and self._read()[0] == process:
                self._file.unlink(missing_ok=True)

    def holder(self, alive: Set[int]) -> int | None:
        """Return the living process that holds it, None where nobody does; never waits."""
        holder, said = self._read()
        is_held = holder in alive and 0 <= time.time() - said < EXPIRES
        return holder if is_held else None

    def _read(self) -> tuple[int, float]:
        """Return the holder and when it last said that it lives; none is process 0."""
        try:
            holder, said = json.loads(self._file.read_bytes())
            return int(holder), float(said)
        except (FileNotFoundError, ValueError, TypeError):
            return 0, 0.0

    def _write(self, process: int) -> None:
        self._said = time.monotonic()
        beside = self._file.with_name(f"{self._file.name}.new")
        beside.write_text(json.dumps([process, time.time()]))
        beside.replace(self._file)

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Be the only one who changes it; yields False where another one is at it for long."""
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE
            while not (ours := try_lock(fd)) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            yield ours
        finally:
            os.close(fd)
