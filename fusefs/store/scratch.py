"""Scratch files: large content while it is being written.

A node's scratch is one sparse file that all handles of all processes share. Each process that
writes holds a shared lock on it; whoever closes last publishes it as content. Since everyone
joins and publishes inside a write transaction, an exclusive lock that can be had at once
proves that nobody else is writing. A process that dies loses its lock and nothing else: the
record in the store leads the next one to the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fusefs.store import keys
from fusefs.store.blocks import Digest, Each, digest
from fusefs.store.content import CHUNK
from fusefs.store.file_copy import copy_piece
from fusefs.store.flocks import try_lock
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.sparse import next_data

_RECORD = struct.Struct("<QQ")
_FICLONE = 0x40049409
_WRITABLE = 0o200


class ScratchRecord(NamedTuple):
    """Attributes:
    serial: names the file; never used again.
    joined: how often a process has joined; tells a publisher that its hash may be old.
    """

    serial: int
    joined: int


def scratch_record(txn: Reader, node_id: int) -> ScratchRecord | None:
    """Return the scratch record of a node, or None."""
    raw = txn.get(keys.scratch(node_id))
    return None if raw is None else ScratchRecord._make(_RECORD.unpack(raw))


def scratch_records(txn: Reader) -> Iterator[tuple[int, ScratchRecord]]:
    """Yield the nodes that have a scratch, with its record."""
    for key, raw in txn.range(keys.SCRATCHES, after_prefix(keys.SCRATCHES)):
        yield keys.to_number(key[1:]), ScratchRecord._make(_RECORD.unpack(raw))


def put_scratch_record(txn: Writer, node_id: int, record: ScratchRecord) -> None:
    """Store the scratch record of a node."""
    txn.put(keys.scratch(node_id), _RECORD.pack(*record))


class Scratch:
    """A scratch file this process writes, with its shared lock.

    Attributes:
        is_content: it was made content, and whoever did died before the record said so: it must
            not be written, for the content's name leads to the same file.
        alone_at: how often it had been joined when this process was last known for its only
            user; -1 before it ever was.
    """

    def __init__(self, path: Path, serial: int, fd: int, *, alone_at: int = -1) -> None:
        self.path = path
        self.serial = serial
        self.fd = fd
        self.alone_at = alone_at
        self.is_content = not os.fstat(fd).st_mode & _WRITABLE

    def try_own(self) -> bool:
        """Try to become the only user; on failure this process is no user any more."""
        return try_lock(self.fd)

    def share(self) -> None:
        """Let others join again, after `try_own`; this process stays a user."""
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def close(self) -> None:
        """Give up the file and its lock."""
        os.close(self.fd)


class ScratchFiles:
    """The scratch folder of an instance."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, serial: int) -> Path:
        """Return the scratch file called `serial`."""
        return self._folder / f"{serial:016x}"

    def begin(self, serial: int, base: Path | bytes) -> Scratch:
        """Create a scratch with the bytes `base`, or out of the prepared copy `base`."""
        path = self.path(serial)
        if isinstance(base, Path):
            base.rename(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if isinstance(base, bytes) and base:
            os.pwrite(fd, base, 0)
        return Scratch(path, serial, fd, alone_at=1)

    def join(self, serial: int) -> Scratch:
        """Open the scratch `serial` that exists (inside a write transaction).

        Raises:
            FileNotFoundError: the file is gone.
            BlockingIOError: it is being published by somebody outside a transaction.
        """
        path = self.path(serial)
        is_writable = os.stat(path).st_mode & _WRITABLE
        fd = os.open(path, (os.O_RDWR if is_writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        return Scratch(path, serial, fd)

    def copy(self, source: Path, size: int) -> Path:
        """Copy the first `size` bytes of `source` to a file for `begin`. May block."""
        target = self._folder / f"copy-{os.getpid()}-{os.urandom(6).hex()}"
        with source.open("rb") as reader, target.open("xb") as writer:
            target.chmod(0o600)
            try:
                fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
                os.ftruncate(writer.fileno(), size)
            except OSError:
                _copy_bytes(reader.fileno(), writer.fileno(), size)
        return target

    def discard(self, serial: int) -> None:
        """Remove the scratch file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.path(serial).unlink()

    def files(self) -> list[Path]:
        """Return all files in the folder."""
        return sorted(self._folder.iterdir())


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copy what is no hole; the target is empty."""
    size = min(size, os.fstat(source).st_size)
    begin, end = next_data(source, 0, size)
    while begin < size:
        copied = copy_piece(source, target, begin, min(CHUNK * 16, end - begin))
        begin += copied
        if copied == 0:
            break  # it was cut meanwhile
        if begin >= end:
            begin, end = next_data(source, begin, size)
    os.ftruncate(target, size)


def sync_and_hash(fd: int, each: Each = lambda done: None) -> Digest:
    """Sync and hash an open scratch file. May block.

    Raises:
        Exception: whatever `each` raises.
    """
    os.fdatasync(fd)
    return digest(fd, each)
