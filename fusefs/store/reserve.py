"""Disk space kept back, so that a full disk never keeps what was acknowledged from being stored.

A reserve is a file of real blocks. When a commit finds the disk full, the blocks are given up
and the commit is done again. There are two: one for what was acknowledged before it was
committed, and one for removals, which take some space before they free it. Until both can be
had again, every mutation is committed before it is acknowledged.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

ACKNOWLEDGED_BYTES = 16 << 20
REMOVALS_BYTES = 8 << 20
RESERVES = {"reserve": ACKNOWLEDGED_BYTES, "reserve-for-removals": REMOVALS_BYTES}
"""Names and sizes of both in an instance."""

_RETRY_SECONDS = 1.0


class Reserve:
    """One reserve of an instance. Used with the writer lock held."""

    def __init__(self, path: Path, size: int) -> None:
        """Keep `size` bytes in the file `path`."""
        self._path = path
        self._size = size
        self._tried = -_RETRY_SECONDS
        self.held = path.exists() and path.stat().st_size == size

    def give_up(self) -> bool:
        """Free the blocks; tell whether there were any."""
        held, self.held = self.held, False
        if held:
            os.truncate(self._path, 0)
        return held

    def restore(self) -> bool:
        """Try to have the blocks; tell whether they are there. Tried once a second at most."""
        if not self.held and time.monotonic() - self._tried > _RETRY_SECONDS:
            self._tried = time.monotonic()
            self.allocate()
        return self.held

    def allocate(self) -> None:
        """Try to have the blocks, also where the file is there already but may have none."""
        self.held = self._allocate()

    def _allocate(self) -> bool:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size)
        except OSError as error:
            os.ftruncate(fd, 0)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            return False
        finally:
            os.close(fd)
        return True
