"""System calls that Python's os module does not have."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)
_libc.opendir.restype = ctypes.c_void_p
_libc.readdir.restype = ctypes.c_void_p
_libc.readdir.argtypes = _libc.rewinddir.argtypes = _libc.closedir.argtypes = [ctypes.c_void_p]
_libc.telldir.argtypes = [ctypes.c_void_p]
_libc.telldir.restype = ctypes.c_long
_libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def renameat2(old: Path, new: Path, flags: int) -> None:
    if _libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class DirectoryStream:
    """A stream of opendir(3), with positions."""

    def __init__(self, path: Path) -> None:
        self._stream = _libc.opendir(os.fsencode(path))
        assert self._stream

    def read(self) -> bytes | None:
        """Return the next name, or None at the end."""
        entry = _libc.readdir(self._stream)
        return None if not entry else ctypes.string_at(entry + 19)

    def names(self) -> list[bytes]:
        return list(iter(self.read, None))

    def tell(self) -> int:
        return int(_libc.telldir(self._stream))

    def seek(self, position: int) -> None:
        _libc.seekdir(self._stream, position)

    def rewind(self) -> None:
        _libc.rewinddir(self._stream)

    def close(self) -> None:
        _libc.closedir(self._stream)


def getdents(path: Path) -> list[tuple[int, bytes, int]]:
    """Return (inode number, name, type) of all entries that getdents64(2) gives."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    buffer = ctypes.create_string_buffer(4096)
    found: list[tuple[int, bytes, int]] = []
    try:
        while True:
            size = _libc.syscall(217, fd, buffer, len(buffer))
            assert size >= 0
            if not size:
                return found
            at = 0
            while at < size:
                number, _, length, kind = struct.unpack_from("<QqHB", buffer.raw, at)
                name = ctypes.string_at(ctypes.addressof(buffer) + at + 19)
                found.append((number, name, kind))
                at += length
    finally:
        os.close(fd)
