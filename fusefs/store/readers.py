"""Readers of large files, one for each place where the bytes can be."""

from __future__ import annotations

import errno
import os
import threading
from typing import Protocol

from fusefs.store.kv import Writer
from fusefs.store.nodes import Located


class Reading(Protocol):
    """An open large file."""

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes, or None where the disk would have to be waited for."""
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes. May block; in any thread."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Objects(Protocol):
    """Where the bytes of files in the state `OBJECT` are."""

    def small(self, oid: bytes, size: int) -> bytes | None:
        """Return the bytes of an object of `size` bytes, None where that would take long."""

    def open(self, oid: bytes) -> int:
        """Return a new descriptor to read an object from. May block; in any thread."""

    def store(self, txn: Writer) -> Located:
        """Store the node, which only the repository has, before its first change."""


class ScratchReader:
    """Reads a scratch file, which is being written and has no checksums."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes, or None where the disk would have to be waited for."""
        return _read_cached(self._fd, offset, size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes. May block."""
        return os.pread(self._fd, size, offset)


class ObjectReader:
    """Reads a large object of a repository, which is taken out of there at the first read."""

    def __init__(self, objects: Objects, oid: bytes) -> None:
        self._objects = objects
        self._oid = oid
        self._fd = -1
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes, or None where the object would have to be waited for."""
        return None if self._fd < 0 else _read_cached(self._fd, offset, size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes. May block; of several threads that ask, one takes the object out."""
        with self._opening:
            if self._fd < 0:
                self._fd = self._objects.open(self._oid)
        return os.pread(self._fd, size, offset)


def _read_cached(fd: int, offset: int, size: int) -> bytes | None:
    buffer = bytearray(size)
    try:
        count = os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return None
        raise
    if count < size and offset + count < os.fstat(fd).st_size:
        return None
    return bytes(buffer) if count == size else bytes(buffer[:count])
