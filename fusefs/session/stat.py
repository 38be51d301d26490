"""What a session is told about a node."""

from __future__ import annotations

from typing import NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.levels import Level

DIRECTORY_KINDS = (Kind.DIR, Kind.MOUNT)
"""Kinds that have entries."""


class Stat(NamedTuple):
    """What a session is told about a node. Times are nanoseconds since the epoch.

    Attributes:
        ino: inode number, the same in every mount of this session.
        mode: permission bits as shown: none to write at level ``ro``.
        size: bytes.
        level: what the session may do.
        volatile: may change without this program having a part in it.
    """

    ino: int
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    atime: int
    mtime: int
    ctime: int
    level: Level
    volatile: bool
