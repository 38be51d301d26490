"""Node records and how they are packed into an entry's value."""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import NamedTuple

from fusefs.contract.kinds import Kind

EMPTY_SHA256 = hashlib.sha256().digest()
"""The hash of no bytes; empty content is never stored."""

_FIXED = struct.Struct("<BBHIIQqqqqQ")
SUMMARY = struct.Struct("<BB10xQ32xQ")
"""Kind, state, size and id of a packed record; its tail is at `TAIL`."""
TAIL = _FIXED.size


class State(IntEnum):
    """Where the current bytes of a file stand."""

    CLEAN = 0
    """In the content store, by hash."""
    DRAFT = 1
    """Small and being written: in the ordered store, by node."""
    SCRATCH = 2
    """Large and being written: in a scratch file; its size and mtime are the file's."""
    OBJECT = 3
    """In a repository's object database, by object id: a file's bytes, unchanged, or the entries
    of a directory, but for those that are stored or superseded."""


class Record(NamedTuple):
    """A node as it is stored in its directory entry. Times are nanoseconds since the epoch.

    Attributes:
        kind: a `fusefs.contract.kinds.Kind` value.
        state: bits 0-1 a `State`; bit 7 set when the node has extended attributes; bit 6 when
            it is a submodule of a repository.
        linked: when the node got its present name.
        tail: SHA-256 of a file's content, a link's target, or an object id of a repository
            (of a file or directory in the state `OBJECT`, and of a submodule).
    """

    kind: int
    state: int
    mode: int
    uid: int
    gid: int
    size: int
    atime: int
    mtime: int
    ctime: int
    linked: int
    id: int
    tail: bytes

    @property
    def content_state(self) -> int:
        """The `State` of a file."""
        return self.state & _STATE_BITS

    @property
    def has_xattrs(self) -> bool:
        """The node has extended attributes."""
        return bool(self.state & HAS_XATTRS)

    def with_content(self, state: State, size: int, sha256: bytes, now: int) -> Record:
        """Return the record after its content changed."""
        return self._replace(
            state=(self.state & ~_STATE_BITS) | state,
            size=size,
            tail=sha256,
            mtime=now,
            ctime=now,
        )


def journal_hash(record: Record) -> bytes:
    """Return what the journal says of a node's content: a hash of it, b"" where it has none."""
    if record.kind == Kind.FILE:
        return b"" if record.content_state == State.OBJECT else record.tail
    return hashlib.sha256(record.tail).digest() if record.kind == Kind.SYMLINK else b""


HAS_XATTRS = 0x80
SUBMODULE = 0x40
_STATE_BITS = 0x03
_LAST_TIME = 2**63 - 1


def pack(record: Record) -> bytes:
    """Return the bytes of `record`."""
    return _FIXED.pack(*record[:11]) + record.tail


def to_time(nanoseconds: int) -> int:
    """Return the nearest time that a record can hold: the years 1678 to 2261."""
    return max(-_LAST_TIME - 1, min(nanoseconds, _LAST_TIME))


def unpack(raw: bytes) -> Record:
    """Return the record in `raw`.

    Raises:
        ValueError: `raw` is too short to be one.
    """
    try:
        return Record._make((*_FIXED.unpack_from(raw), raw[TAIL:]))
    except struct.error:
        raise ValueError("a node record is damaged") from None
