"""Copying the bytes of a file: shared by the file system where it can, holes kept where not."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

_FICLONE = 0x40049409
_PIECE = 16 << 20
_NOT_HERE = (
    errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY, errno.EPERM,
    errno.EBADF,
)  # fmt: skip


def clone(source: int, target: int) -> bool:
    """Make `target` share all bytes of `source`, as of one moment; tell whether that works here."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def copy_file(
    source: int, target: int, *, progress: Callable[[int], None] = lambda count: None
) -> int:
    """Copy all bytes of one open file to another, an empty one; return the size.

    Args:
        source: descriptor to read from; its offset is moved.
        target: descriptor to write to.
        progress: told how many bytes were dealt with since the last call.

    Raises:
        OSError: ENOSPC and the like.
    """
    size = os.fstat(source).st_size
    if clone(source, target):
        progress(size)
        return size
    at = 0
    while at < size:
        start = _next_data(source, at, size)
        end = os.lseek(source, start, os.SEEK_HOLE) if start < size else size
        progress(start - at)
        at = start
        while at < end:
            count = copy_piece(source, target, at, min(end - at, _PIECE))
            if not count:  # somebody made it shorter
                os.ftruncate(target, at)
                return at
            progress(count)
            at += count
    os.ftruncate(target, size)
    return size


def _next_data(fd: int, at: int, size: int) -> int:
    try:
        return min(os.lseek(fd, at, os.SEEK_DATA), size)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def copy_piece(source: int, target: int, at: int, size: int) -> int:
    """Copy up to `size` bytes at `at` to the same place, whatever file systems the two are on;
    return how many: 0 at the end."""
    try:
        return os.copy_file_range(source, target, size, at, at)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    os.lseek(target, at, os.SEEK_SET)
    return os.sendfile(target, source, at, size)
