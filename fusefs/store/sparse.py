"""Holes in files: where there is something to read or copy at all."""

from __future__ import annotations

import errno
import os


def next_data(fd: int, offset: int, size: int) -> tuple[int, int]:
    """Return where the next data of a file of `size` bytes begin and end, `offset` or behind it.

    Both are `size` where there are none. Moves the descriptor's own offset.
    """
    try:
        begin = os.lseek(fd, offset, os.SEEK_DATA)
        return min(begin, size), min(os.lseek(fd, begin, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size, size
