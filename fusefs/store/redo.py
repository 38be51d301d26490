"""The redo log: acknowledged mutations of the batch that is not committed yet.

A durable commit at every mutation costs a disk flush; a batch of a few milliseconds shares
one. In between, each mutation is appended here first, with a plain write, which survives the
death of the process (not of the machine: that is what a commit is for). Whoever next holds
the writer lock replays what it finds.

A record is ``length, crc32, batch`` and the mutation's puts and deletes. The file is not
truncated between batches, so that its blocks stay allocated: records of an older batch are
told by their number and ignored.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

WriteSet = Mapping[bytes, bytes | None]
"""Keys to new values; None deletes."""

_HEADER = struct.Struct("<IIQ")
_ITEM = struct.Struct("<Hi")
_DELETED = -1
_KEEP_BYTES = 8 << 20


def _encode(writes: WriteSet) -> bytes:
    parts = []
    for key, value in writes.items():
        if value is None:
            parts.append(_ITEM.pack(len(key), _DELETED) + key)
        else:
            parts.append(_ITEM.pack(len(key), len(value)) + key)
            parts.append(value)
    return b"".join(parts)


def _decode(payload: bytes) -> dict[bytes, bytes | None]:
    writes: dict[bytes, bytes | None] = {}
    at = 0
    while at < len(payload):
        key_size, value_size = _ITEM.unpack_from(payload, at)
        at += _ITEM.size
        key = payload[at : at + key_size]
        at += key_size
        if value_size == _DELETED:
            writes[key] = None
        else:
            writes[key] = payload[at : at + value_size]
            at += value_size
    return writes


class RedoLog:
    """The log file of an instance; only the holder of the writer lock may touch it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = 0
        if os.fstat(self._fd).st_size < _KEEP_BYTES:
            # Blocks of its own: what frees space must be recorded on a full disk, too.
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._fd, 0, _KEEP_BYTES)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def append(self, batch: int, writes: WriteSet) -> None:
        """Record one mutation of the batch `batch`.

        Raises:
            OSError: the record could not be written whole; it does not count.
        """
        payload = _encode(writes)
        header = _HEADER.pack(len(payload), crc32(payload), batch)
        record = header + payload
        done = os.pwrite(self._fd, record, self._end)
        while done < len(record):
            done += os.pwrite(self._fd, record[done:], self._end + done)
        self._end += len(record)

    def reset(self) -> None:
        """Begin the next batch: everything recorded so far is committed."""
        if self._end > _KEEP_BYTES:
            os.ftruncate(self._fd, _KEEP_BYTES)
        self._end = 0

    def mutations(self, batch: int) -> Iterator[dict[bytes, bytes | None]]:
        """Yield the intact mutations of `batch`, up to the first record that is not one.

        What is appended afterwards goes behind them.
        """
        for payload, end in intact(self._fd, batch):
            self._end = end
            yield _decode(payload)


def intact(fd: int, batch: int) -> Iterator[tuple[bytes, int]]:
    """Yield the intact records of `batch` in the log `fd`, each with where it ends."""
    at = 0
    while True:
        header = os.pread(fd, _HEADER.size, at)
        if len(header) < _HEADER.size:
            return
        size, checksum, number = _HEADER.unpack(header)
        payload = os.pread(fd, size, at + _HEADER.size) if number == batch else b""
        if number != batch or len(payload) != size or crc32(payload) != checksum:
            return
        at += _HEADER.size + size
        yield payload, at
