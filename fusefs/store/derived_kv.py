"""Ordered keys for data that can be made again: a plain LMDB environment behind the same seam.

What an instance holds once is in `fusefs.store.lmdb_kv`, with checksums, group commit and a redo
log. An index needs none of that: damaged or lost, it is built anew. Kept apart, it never makes a
writer of the tree wait.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, cast

import lmdb

from fusefs.store.lmdb_file import as_os_error, complete

_MAP_BYTES = 64 << 30
_MAX_READERS = 1024


class DerivedDamaged(OSError):
    """What can be made again is damaged, and is to be."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, what)


class DerivedKV:
    """One LMDB environment, shared by processes. Readers may be in any thread."""

    _opened: ClassVar[dict[str, DerivedKV]] = {}

    @classmethod
    def open(cls, folder: Path) -> DerivedKV:
        """Open the environment in `folder`, which is made if need be, or share the open one.

        Raises:
            DerivedDamaged: it is no sound environment.
            OSError: it cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity = os.path.realpath(folder)
        kv = cls._opened.get(identity)
        if kv is None:
            kv = cls._opened[identity] = cls(folder, identity)
        kv._users += 1
        return kv

    def __init__(self, folder: Path, identity: str) -> None:
        file = folder / "data.mdb"
        if file.exists() and file.stat().st_size and not complete(file):
            raise DerivedDamaged(f"{file} has been cut short")
        self._folder = folder
        self._identity = identity
        self._users = 0
        try:
            self._env = lmdb.open(
                os.fspath(folder), map_size=_MAP_BYTES, max_readers=_MAX_READERS,
                readahead=False, mode=0o600,
            )  # fmt: skip
            self._env.reader_check()
        except lmdb.Error as error:
            raise _told(error, folder) from error

    def close(self) -> None:
        """Close the environment when its last user leaves."""
        self._users -= 1
        if not self._users:
            del self._opened[self._identity]
            self._env.close()

    @contextmanager
    def read(self) -> Iterator[DerivedReader]:
        """Open a snapshot; keep it short.

        Raises:
            DerivedDamaged: as it says.
        """
        try:
            with self._env.begin() as txn:
                yield DerivedReader(txn)
        except lmdb.Error as error:
            raise _told(error, self._folder) from error

    @contextmanager
    def write(self) -> Iterator[DerivedWriter]:
        """Open the one write transaction, durable when it is left; waits for other writers.

        Raises:
            DerivedDamaged: as it says.
            OSError: the disk refused; nothing was written.
        """
        try:
            with self._env.begin(write=True) as txn:
                yield DerivedWriter(txn)
        except lmdb.Error as error:
            raise _told(error, self._folder) from error


def _told(error: lmdb.Error, folder: Path) -> OSError:
    """Return what the system refused; all else means damage."""
    refused = as_os_error(error, folder)
    return DerivedDamaged(str(error)) if refused.errno == errno.EIO else refused


class DerivedReader:
    """A snapshot (see `fusefs.store.kv.Reader`)."""

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        return cast("bytes | None", self._txn.get(key))

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with ``start <= key < end`` in byte order."""
        with self._txn.cursor() as cursor:
            if not cursor.set_range(start):
                return
            for key, value in cast("Iterator[tuple[bytes, bytes]]", iter(cursor)):
                if key >= end:
                    return
                yield key, value


class DerivedWriter(DerivedReader):
    """A write transaction."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` (at most 511 bytes) to `value`."""
        self._txn.put(key, value)

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set many keys, given in ascending order."""
        with self._txn.cursor() as cursor:
            cursor.putmulti(list(pairs))

    def delete(self, key: bytes) -> None:
        """Remove `key` if it is there."""
        self._txn.delete(key)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove all keys with ``start <= key < end``."""
        with self._txn.cursor() as cursor:
            while cursor.set_range(start) and bytes(cursor.key()) < end:
                cursor.delete()
