"""Lock files of refs that processes left which were killed: nobody else removes those.

git and libgit2 hold one for the moment in which a ref is written. In a clone of an instance
nobody holds one for long, so age tells.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

DEAD_SECONDS = 5.0
"""So old, a lock file is nobody's any more."""

_OWN = "fusefs"
"""What our own lock files begin with: the kernel gives their locks up, they stay."""


def drop_dead_locks(clone: Path) -> None:
    """Remove the lock files in a clone that are nobody's any more."""
    for lock in (*clone.glob("*.lock"), *(clone / "refs").rglob("*.lock")):
        if not lock.name.startswith(_OWN) and _is_dead(lock):
            lock.unlink(missing_ok=True)


def past_locks(clone: Path, do: Callable[[], Found], error: type[Exception]) -> Found:
    """Do what a lock file may stand in the way of, again and again until one that is there at
    first is dead, and removed.

    Args:
        clone: where the lock files are.
        do: is done at least once.
        error: what it raises where one is in the way.

    Raises:
        error: there still is one in the way, or no room on the disk, which no waiting makes.
    """
    pause, give_up = 0.02, time.monotonic() + DEAD_SECONDS + 1
    while True:
        try:
            return do()
        except error as refused:
            if is_full(refused) or time.monotonic() > give_up:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
        drop_dead_locks(clone)


def is_full(error: Exception) -> bool:
    """Tell whether a disk is full by what libgit2 says, which has no errno."""
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def _is_dead(lock: Path) -> bool:
    try:
        age = time.time() - lock.stat().st_mtime
    except FileNotFoundError:
        return False
    return abs(age) > DEAD_SECONDS  # whichever way the clock was set meanwhile
