"""Copies of the ordered store: taken from one snapshot, and looked at without opening them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import lmdb

from fusefs.store import keys
from fusefs.store.kv import Reader
from fusefs.store.lmdb_file import as_os_error
from fusefs.store.lmdb_meta import look
from fusefs.store.lmdb_pages import BEHIND
from fusefs.store.lmdb_soundness import Soundness
from fusefs.store.seal import Damaged, seal, unseal
from fusefs.store.sealed_reader import SealedReader

_CHUNK_BYTES = 8 << 20


class FrozenStore:
    """The ordered store as it was at one moment.

    Close it soon: as long as it is there, the store's file grows by whatever is written.
    """

    def __init__(self, txn: lmdb.Transaction, soundness: Soundness, map_bytes: int) -> None:
        self._txn = txn
        self._soundness = soundness
        self._map_bytes = map_bytes
        self.reader: Reader = SealedReader(txn, _damaged, soundness)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._txn.abort()
        self._soundness.close()

    def copy_to(
        self, folder: Path, *, without: bytes, progress: Callable[[int], None]
    ) -> None:
        """Write a durable ``data.mdb`` into `folder`, without free pages.

        LMDB's own copying can neither be interrupted nor tell how far it is.

        Args:
            folder: where there is none yet.
            without: keys that begin with this are left out.
            progress: told how many bytes were copied since the last call.

        Raises:
            Damaged: what is to be copied is not what was stored.
            OSError: ENOSPC and the like.
        """
        with opened_alone(folder, map_bytes=2 * self._map_bytes) as target:
            for pairs, size in _chunks(self._txn, self._soundness, without):
                with target.begin(write=True) as txn, txn.cursor() as cursor:
                    cursor.putmulti(pairs, append=True)
                progress(size)
            with target.begin(write=True) as txn:
                _mark(txn)
            target.sync(True)


def _chunks(
    txn: lmdb.Transaction, soundness: Soundness, without: bytes
) -> Iterator[tuple[list[tuple[bytes, bytes]], int]]:
    """Yield all pairs in order, some at a time, with their size in bytes."""
    pairs: list[tuple[bytes, bytes]] = []
    size, sound = 0, b""
    with txn.cursor() as cursor:
        for raw_key, stored in cast("Iterator[tuple[memoryview, memoryview]]", iter(cursor)):
            key = bytes(raw_key)
            while sound <= key:
                sound = soundness.until(sound, txn)
            if key.startswith(without) or key == keys.META_COMMIT:
                continue
            unseal(key, stored)
            pairs.append((key, bytes(stored)))
            size += len(key) + len(stored)
            if size > _CHUNK_BYTES:
                yield pairs, size
                pairs, size = [], 0
    while sound < BEHIND:
        sound = soundness.until(sound, txn)
    if pairs:
        yield pairs, size


def _mark(txn: lmdb.Transaction) -> None:
    """Note in a copy which of its transactions this is (see `fusefs.store.lmdb_meta`)."""
    txn.put(keys.META_COMMIT, seal(keys.META_COMMIT, keys.number(txn.id())))


def _damaged(error: lmdb.Error) -> OSError:
    return Damaged(f"the store ({error})")


def drop_keys(folder: Path, dropped: Iterable[bytes]) -> None:
    """Remove keys from a copy that nobody has open."""
    with opened_alone(folder) as env:
        with env.begin(write=True) as txn:
            for key in dropped:
                txn.delete(key)
            _mark(txn)
        env.sync(True)


@contextmanager
def peek(folder: Path) -> Iterator[Reader]:
    """Read a copy that nobody writes, and change nothing, not even lock files.

    Raises:
        OSError: it cannot be read, or is damaged (EIO).
    """
    look(folder / "data.mdb")
    soundness = Soundness(folder / "data.mdb")
    try:
        with (
            lmdb.open(os.fspath(folder), readonly=True, lock=False, create=False) as env,
            env.begin(buffers=True) as txn,
        ):
            yield SealedReader(txn, _damaged, soundness)
    except lmdb.Error as error:
        raise as_os_error(error, folder) from error
    finally:
        soundness.close()


@contextmanager
def opened_alone(folder: Path, *, map_bytes: int = 0) -> Iterator[lmdb.Environment]:
    """Open a copy that nobody else has open; it is not durable before it is synced.

    Raises:
        OSError: ENOSPC and the like.
    """
    try:
        with lmdb.open(
            os.fspath(folder), map_size=map_bytes, lock=False, sync=False, mode=0o600
        ) as env:
            yield env
    except lmdb.Error as error:
        raise as_os_error(error, folder) from error
