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
import logging
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

WriteSet = Mapping[bytes, bytes | None]
"""Keys to new values; None deletes."""

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("<IIQ")
_ITEM = struct.Struct("<Hi")
_DELETED = -1
_BATCH_AT = 8
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

    def __init__(self, path: Path, *, numbered: bool = True) -> None:
        """Open the log at `path`.

        Args:
            path: the file; it is made if it is missing.
            numbered: checksums are over the number of the batch as well (since format 2).
        """
        self._path = path
        self._numbered = numbered
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = 0
        self._keep_blocks()

    def _keep_blocks(self) -> None:
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
        header = _HEADER.pack(len(payload), _sum(batch, payload, numbered=self._numbered), batch)
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

        What is appended afterwards goes behind them. The last record may be torn, by a process
        that died while it wrote; where intact ones follow, the disk has changed it.
        """
        self._end = 0
        while (payload := self._record(self._end, batch)) is not None:
            self._end += _HEADER.size + len(payload)
            yield _decode(payload)

    def set_aside(self, batch: int) -> None:
        """Set aside what stands of `batch` behind a record that is not intact.

        It goes to the file ``redo.damaged``, which is logged, and in the log it is no more: what
        it builds on is lost. To be called when `mutations` has come to its end.
        """
        header = os.pread(self._fd, _HEADER.size, self._end)
        if not header.strip(b"\0") or self._is_older(header, batch):
            return
        log = os.pread(self._fd, os.fstat(self._fd).st_size - self._end, self._end)
        found = 0
        at = log.find(struct.pack("<Q", batch), 1)
        while at >= 0:
            start = at - _BATCH_AT
            payload = self._record(self._end + start, batch) if start > 0 else None
            found += payload is not None
            at = log.find(struct.pack("<Q", batch), at + (len(payload) if payload else 1))
        if found:
            aside = damaged_log(self._path.parent)
            with open(f"{self._path}.tmp", "wb") as file:
                file.write(log.rstrip(b"\0"))
                os.fsync(file.fileno())
            os.rename(f"{self._path}.tmp", aside)
            _log.error(
                "redo.log is damaged: %d or more of the last changes are lost. What is left "
                "of them is in %s.", found + 1, aside
            )  # fmt: skip
            os.ftruncate(self._fd, self._end)
            self._keep_blocks()

    def _is_older(self, header: bytes, batch: int) -> bool:
        """Tell whether an intact record of an older batch stands at the end of this one."""
        if len(header) < _HEADER.size:
            return True
        number = int(_HEADER.unpack(header)[2])
        return number < batch and self._record(self._end, number) is not None

    def _record(self, at: int, batch: int) -> bytes | None:
        return _record(self._fd, at, batch, numbered=self._numbered)


def damaged_log(folder: Path) -> Path:
    """Return where the end of a damaged log of the instance `folder` is set aside."""
    return folder / "redo.damaged"


def intact(fd: int, batch: int) -> Iterator[tuple[bytes, int]]:
    """Yield the intact records of `batch` in the log `fd`, each with where it ends."""
    at = 0
    while (payload := _record(fd, at, batch, numbered=True)) is not None:
        at += _HEADER.size + len(payload)
        yield payload, at


def _record(fd: int, at: int, batch: int, *, numbered: bool) -> bytes | None:
    """Return the payload of the record at `at` if it is an intact one of `batch`."""
    header = os.pread(fd, _HEADER.size, at)
    if len(header) < _HEADER.size:
        return None
    size, checksum, number = _HEADER.unpack(header)
    if number != batch or at + _HEADER.size + size > os.fstat(fd).st_size:
        return None
    payload = os.pread(fd, size, at + _HEADER.size)
    is_whole = len(payload) == size and _sum(batch, payload, numbered=numbered) == checksum
    return payload if is_whole else None


def _sum(batch: int, payload: bytes, *, numbered: bool) -> int:
    return crc32(payload, batch & 0xFFFFFFFF if numbered else 0)
