"""Which processes have an instance open: each holds a lock that the kernel drops when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fusefs.store.flocks import try_lock


def name(process: int) -> str:
    """Return the name of a process's lock file."""
    return f"process.{process:016x}"


def hold(run: Path, process: int) -> int:
    """Hold the lock of this process in the folder `run`; return the descriptor that holds it."""
    path = run / name(process)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)  # somebody who sweeps up took it for a dead one's before it was locked


def processes(run: Path) -> Iterator[tuple[int, bool]]:
    """Yield the processes that have left a lock file in `run`, and whether they live."""
    for file in run.glob("process.*"):
        yield int(file.name.partition(".")[2], 16), _is_locked(file)


def _is_locked(file: Path) -> bool:
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)
