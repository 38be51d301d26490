"""Which processes have an instance open: each holds a lock that the kernel drops when it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def name(process: int) -> str:
    """Return the name of a process's lock file."""
    return f"process.{process:016x}"


def hold(run: Path, process: int) -> int:
    """Hold the lock of this process in the folder `run`; return the descriptor that holds it."""
    fd = os.open(run / name(process), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


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
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
