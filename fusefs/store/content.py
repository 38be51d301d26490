"""Content by SHA-256: small in the ordered store, large as files that never change."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from fusefs.store import blocks, keys
from fusefs.store.blocks import Digest, LargeContent
from fusefs.store.kv import Reader, Writer
from fusefs.store.records import EMPTY_SHA256
from fusefs.store.seal import Damaged

INLINE_MAX = 64 << 10
"""Content up to this many bytes is kept in the ordered store."""
CHUNK = 1 << 20
"""How many bytes of a file are handled at a time."""

LARGEST = 256 << 30
"""Bytes of the largest file, be it all holes: to hash it takes a core some minutes, its checksums
32 MiB of the ordered store."""


def check_size(size: int) -> None:
    """Refuse a file of `size` bytes that is too large to be content.

    Raises:
        OSError: EFBIG.
    """
    if size > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


class ContentStore:
    """The content of an instance."""

    def __init__(self, folder: Path) -> None:
        """Keep large content below `folder`."""
        self._folder = folder

    def put_small(self, txn: Writer, data: bytes) -> bytes:
        """Store at most `INLINE_MAX` bytes and return their SHA-256."""
        if not data:
            return EMPTY_SHA256
        sha256 = hashlib.sha256(data).digest()
        key = keys.CONTENT + sha256
        try:
            known = txn.get(key) is not None
        except Damaged:
            known = False  # writing it again mends it
        if not known:
            txn.put(key, data)
        return sha256

    def small(self, txn: Reader, sha256: bytes) -> bytes | None:
        """Return content that is kept in the ordered store, or None."""
        if sha256 == EMPTY_SHA256:
            return b""
        return txn.get(keys.CONTENT + sha256)

    def path(self, sha256: bytes) -> Path:
        """Return where large content of this hash is kept."""
        name = sha256.hex()
        return self._folder / name[:2] / name[2:]

    def open_large(self, sha256: bytes, size: int) -> LargeContent:
        """Open large content of `size` bytes for reading.

        Raises:
            FileNotFoundError: it is not there.
        """
        fd = os.open(self.path(sha256), os.O_RDONLY | os.O_CLOEXEC)
        return LargeContent(fd, sha256, size)

    def whole(self, txn: Reader, sha256: bytes, size: int) -> bytes | None:
        """Return content of `size` bytes, wherever it is kept, or None. May block.

        Raises:
            Damaged: it is not what was stored.
        """
        if size <= INLINE_MAX:
            return self.small(txn, sha256)
        try:
            large = self.open_large(sha256, size)
        except FileNotFoundError:
            return None
        try:
            large.prepare(txn, 0, size)
            return large.read(0, size)
        finally:
            large.close()

    def adopt(self, txn: Writer, source: Path, found: Digest) -> None:
        """Make the file `source` (synced, never written again) the content that was `found`.

        Called with the writer lock held, so that the collector cannot take it away between
        here and the record that refers to it. The file keeps its old name as well, and is
        read-only from here on: that tells whoever finds it without such a record. It takes the
        place of a file that has the content already, which may be damaged.
        """
        target = self.path(found.sha256)
        target.parent.mkdir(exist_ok=True)
        source.chmod(0o400)
        try:
            target.hardlink_to(source)
        except FileExistsError:
            beside = source.with_name(source.name + ".new")
            beside.unlink(missing_ok=True)
            beside.hardlink_to(source)
            beside.replace(target)
            beside.unlink(missing_ok=True)  # where the two were one file already
        sync_folder(target.parent)
        blocks.put(txn, found)

    def all_large(self) -> Iterator[tuple[bytes, Path]]:
        """Yield hash and file of all large content."""
        for shelf in sorted(self._folder.iterdir()):
            for file in sorted(shelf.iterdir()):
                yield bytes.fromhex(shelf.name + file.name), file


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive the loss of power."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
