"""Kinds of node (contract section 4)."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a node is. The numbers are those on disk."""

    DIR = 1
    FILE = 2
    SYMLINK = 3
    FIFO = 4
    SOCKET = 5
    MOUNT = 6
