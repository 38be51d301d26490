"""Checksums of large content, one for each block, so that a read verifies what it touches.

They are made in the pass that hashes the content, and stand in the ordered store (where they
have a seal), in chunks, so that a large file's need not all be read.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from xxhash import xxh3_64_digest

from fusefs.store import keys
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.seal import Damaged
from fusefs.store.sparse import next_data

BLOCK = 64 << 10
"""Bytes that one checksum covers."""
_PASS = 1 << 20
_SUM = 8
_CHUNK = 1024
"""Checksums in one value: 8 KiB for 64 MiB of content."""


class Digest(NamedTuple):
    """What identifies and what verifies a content: its SHA-256, its blocks' checksums."""

    sha256: bytes
    sums: bytes


Each = Callable[[int], None]
"""Called with the bytes done so far, for each MiB; may raise, which ends the work."""


def digest(fd: int, each: Each = lambda done: None) -> Digest:
    """Hash a whole open file; holes are not read. May block.

    Raises:
        Exception: whatever `each` raises.
    """
    whole, sums = hashlib.sha256(), bytearray()
    done = 0
    for piece, its_sums in _pieces(fd):
        whole.update(piece)
        sums += its_sums
        done += len(piece)
        each(done)
    return Digest(whole.digest(), bytes(sums))


def _pieces(fd: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield a whole open file, piece by piece, with the checksums of each."""
    size = os.fstat(fd).st_size
    offset = begin = end = 0
    while offset < size:
        if offset >= end:
            begin, end = next_data(fd, offset, size)
        if begin >= offset + _PASS:
            yield _ZEROS, _ZERO_SUMS
            offset += _PASS
            continue
        piece = _pread(fd, min(_PASS, size - offset), offset)
        if not piece:
            return  # it was cut meanwhile
        yield piece, b"".join(_sums(piece))
        offset += len(piece)


def _sums(piece: bytes) -> Iterator[bytes]:
    view = memoryview(piece)
    for at in range(0, len(piece), BLOCK):
        yield xxh3_64_digest(view[at : at + BLOCK])


_ZEROS = bytes(_PASS)
_ZERO_SUMS = b"".join(_sums(_ZEROS))


def _pread(fd: int, size: int, offset: int) -> bytes:
    """Read all of `size` bytes that the file has: a signal may cut a read short."""
    data = os.pread(fd, size, offset)
    while 0 < len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more
    return data


def _key(sha256: bytes, chunk: int) -> bytes:
    return keys.BLOCK_SUMS + sha256 + chunk.to_bytes(4, "big")


def first_key(sha256: bytes) -> bytes:
    """Return the key of a content's first checksums."""
    return _key(sha256, 0)


def chunks(found: Digest) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the checksums of a content."""
    step = _CHUNK * _SUM
    for number, at in enumerate(range(0, len(found.sums), step)):
        yield _key(found.sha256, number), found.sums[at : at + step]


def put(txn: Writer, found: Digest) -> None:
    """Store the checksums of a content."""
    for key, value in chunks(found):
        txn.put(key, value)


def forget(txn: Writer, sha256: bytes) -> None:
    """Remove the checksums of a content."""
    prefix = keys.BLOCK_SUMS + sha256
    for key, _ in list(txn.range(prefix, after_prefix(prefix))):
        txn.delete(key)


def stored(txn: Reader, sha256: bytes, size: int) -> bytes:
    """Return all checksums of a content of `size` bytes.

    Raises:
        Damaged: they are missing, or not what was stored.
    """
    sums = Sums(sha256, size)
    sums.load(txn, 0, size)
    return b"".join(sums.known[number] for number in sorted(sums.known))


def verify(fd: int, sums: bytes, sha256: bytes) -> None:
    """Hold a whole file against the checksums of a content. May block.

    Raises:
        Damaged: it is another.
    """
    offset = 0
    for piece, found in _pieces(fd):
        at = offset // BLOCK * _SUM
        if found != sums[at : at + len(found)]:
            raise Damaged(f"the content {sha256.hex()}")
        offset += len(piece)
    if -(-offset // BLOCK) * _SUM != len(sums):
        raise Damaged(f"the content {sha256.hex()}")


class Sums:
    """The checksums of one content, loaded as they are needed."""

    def __init__(self, sha256: bytes, size: int) -> None:
        self.sha256 = sha256
        self.size = size
        self.known: dict[int, bytes] = {}

    def load(self, txn: Reader, offset: int, size: int) -> None:
        """Load what verifies `size` bytes at `offset`.

        Raises:
            Damaged: it is missing, or not what was stored.
        """
        span = BLOCK * _CHUNK
        end = min(offset + size, self.size)
        for number in range(offset // span, -(-end // span)):
            if number not in self.known:
                value = txn.get(_key(self.sha256, number))
                here = min(self.size - number * span, span)
                if value is None or len(value) != -(-here // BLOCK) * _SUM:
                    raise Damaged(f"the content {self.sha256.hex()}")
                self.known[number] = value

    def of(self, block: int) -> bytes:
        """Return the checksum of one block, which is loaded."""
        chunk, at = divmod(block, _CHUNK)
        return self.known[chunk][at * _SUM : (at + 1) * _SUM]


class LargeContent:
    """Large content that is open: each block is verified when it is first read.

    Attributes:
        fd: its descriptor, which is closed with `close`.
    """

    def __init__(self, fd: int, sha256: bytes, size: int) -> None:
        self.fd = fd
        self._sums = Sums(sha256, size)
        self._verified = bytearray(-(-size // BLOCK))

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)

    def prepare(self, txn: Reader, offset: int, size: int) -> None:
        """Load what `read` needs for these bytes.

        Raises:
            Damaged: it is missing, or not what was stored.
        """
        self._sums.load(txn, offset, size)

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes that were prepared, or None where the disk would have to be waited for.

        Raises:
            Damaged: they are not what was stored.
        """
        return self._read(offset, size, os.RWF_NOWAIT)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes that were prepared. May block.

        Raises:
            Damaged: they are not what was stored.
        """
        data = self._read(offset, size, 0)
        assert data is not None
        return data

    def _read(self, offset: int, size: int, flags: int) -> bytes | None:
        end = min(offset + size, self._sums.size)
        if offset >= end:
            return b""
        first, last = offset // BLOCK, -(-end // BLOCK)
        if 0 not in self._verified[first:last]:
            return self._pieces(offset, end - offset, flags)
        start = first * BLOCK
        data = self._pieces(start, min(last * BLOCK, self._sums.size) - start, flags)
        if data is None:
            return None
        view = memoryview(data)
        for block in range(first, last):
            if not self._verified[block]:
                at = (block - first) * BLOCK
                if xxh3_64_digest(view[at : at + BLOCK]) != self._sums.of(block):
                    raise self._damaged()
                self._verified[block] = 1
        if len(data) == end - offset:
            return data
        return bytes(view[offset - start : end - start])

    def _pieces(self, offset: int, size: int, flags: int) -> bytes | None:
        """Return exactly `size` bytes, or None."""
        buffer = bytearray(size)
        try:
            done = os.preadv(self.fd, [buffer], offset, flags)
        except OSError as error:
            if flags and error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        while done < size:
            if flags:
                return None  # only a part is at hand; if the file is cut, `read` will tell
            more = os.preadv(self.fd, [memoryview(buffer)[done:]], offset + done)
            if not more:
                raise self._damaged()
            done += more
        return bytes(buffer)

    def _damaged(self) -> Damaged:
        return Damaged(f"the content {self._sums.sha256.hex()}")
