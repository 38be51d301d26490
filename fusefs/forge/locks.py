"""Locks between the threads and processes of an instance, one for each name, in one file.

Byte-range locks of an open file description (``F_OFD_SETLK`` of fcntl(2)): the kernel gives them up
when their holder dies, and the file never grows. Two names may share a byte by chance; then one
waits for the other, and nothing else happens.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
_PAUSE = 0.02
"""Seconds between two tries: there is no wait with a deadline for these locks."""


@contextmanager
def locked(path: Path, name: bytes, wait: float) -> Iterator[bool]:
    """Hold the lock called `name` in the file `path`, made when missing.

    Args:
        wait: seconds after which it is given up; the block is then entered with False.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _acquire(fd, name, time.monotonic() + wait)
    finally:
        os.close(fd)


def _acquire(fd: int, name: bytes, give_up: float) -> bool:
    at = int.from_bytes(hashlib.sha256(name).digest()[:7], "big") >> 1
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            if time.monotonic() > give_up:
                return False
            time.sleep(_PAUSE)
        else:
            return True
