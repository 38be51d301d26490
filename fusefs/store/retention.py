"""Keeping what stands in an instance's folders in place while it is copied.

A backup reads a snapshot of the ordered store, and then takes its time over the files that the
snapshot refers to. Meanwhile it holds a shared lock on ``objects/``; whoever would remove large
content or what was removed from host folders asks first. The kernel drops the lock when the
backup ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusefs.store.flocks import try_lock


@contextmanager
def retained(folder: Path) -> Iterator[None]:
    """Keep large content and trash of the instance in `folder` from being removed meanwhile."""
    fd = _open(folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def is_retained(folder: Path) -> bool:
    """Tell whether somebody needs what stands in the folders of the instance in `folder`.

    For the writer lock's holder the answer holds as long as it has the lock: a snapshot that is
    taken later does not refer to what nobody refers to now.
    """
    fd = _open(folder)
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def _open(folder: Path) -> int:
    return os.open(folder / "objects", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
