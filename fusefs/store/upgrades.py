"""Carrying an instance over to the present format.

====== ======================================================================================
format what is new
====== ======================================================================================
1      the first
2      values have a seal (`fusefs.store.seal`), large contents have checksums
       (`fusefs.store.blocks`), the redo log's checksums cover its batch, the number of
       each transaction is in it, rules and binds are there from the beginning
====== ======================================================================================

An upgrade works in short transactions and can be killed at any moment: until the format is
changed, the older program goes on with the instance; from then on the next open goes on with the
upgrade. Nobody else has the instance open meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import lmdb

from fusefs.store import blocks, keys, life
from fusefs.store.flocks import try_lock
from fusefs.store.lmdb_meta import look, page_damages
from fusefs.store.redo import RedoLog
from fusefs.store.seal import Damaged, seal
from fusefs.store.writer_lock import WriterLock

FORMAT = 2
"""The format this program reads and writes."""

Progress = Callable[[str], None]

_log = logging.getLogger(__name__)
_FIRST_MAP_BYTES = 64 << 30
_VALUES_AT_ONCE = 2000
_BYTES_AT_ONCE = 8 << 20
_PATIENCE = 20.0
_UNSEALED = (keys.META_FORMAT, keys.META_COMMIT, keys.META_UPGRADE)
_LEAK = "a leak"


class InUse(Exception):
    """Other processes have the instance open."""


def say_step(step: str) -> None:
    """Log a step of an upgrade, which a command shows on stderr where nothing else is set up."""
    _log.warning("%s", step)


def upgrade(folder: Path, progress: Progress) -> None:
    """Bring the instance in `folder` to format `FORMAT`; only one process does.

    Raises:
        InUse: another process has it open.
        Damaged: its file is damaged, and nothing was changed.
        OSError: the disk refused; what was done stays, and the next open goes on.
    """
    with alone(folder, progress):
        found = look(folder / "data.mdb")
        if found.format == FORMAT and not found.upgrading:
            return
        progress(f"Upgrading {folder} to format {FORMAT}; if stopped, the next command goes on.")
        # One environment at a time: see `fusefs.store.lmdb_kv`.
        env = lmdb.open(
            os.fspath(folder), map_size=_FIRST_MAP_BYTES, readahead=False, mode=0o600
        )
        try:
            step = _ToFormat2(folder, env, progress)
            if found.format != FORMAT:
                step.begin()
            step.seal_all()
        except lmdb.Error as error:
            full = os.strerror(errno.ENOSPC) in str(error)
            raise OSError(
                errno.ENOSPC if full else errno.EIO, f"the upgrade stopped: {error}"
            ) from error
        finally:
            env.close()
        progress(f"{folder} has format {FORMAT} now.")


@contextmanager
def alone(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold what keeps others from writing, and from changing the file as a whole.

    Raises:
        InUse: another process has the instance open.
    """
    fd = os.open(folder / "upgrade.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(fd):
            progress(f"Another process upgrades or mends {folder}; waiting for it.")
            fcntl.flock(fd, fcntl.LOCK_EX)
        _check_unused(folder)
        lock = WriterLock(
            folder / "writer.lock", process=0, on_wait=lambda _: None, deadline=_PATIENCE
        )
        try:
            try:
                lock.acquire()
            except TimeoutError:
                raise InUse from None
            yield
        finally:
            lock.close()
    finally:
        os.close(fd)


def _check_unused(folder: Path) -> None:
    if any(lives for _, lives in life.processes(folder / "run")):
        raise InUse


class _ToFormat2:
    def __init__(self, folder: Path, env: lmdb.Environment, progress: Progress) -> None:
        self._folder = folder
        self._env = env
        self._progress = progress

    def begin(self) -> None:
        """Do what leaves the instance in format 1, then claim it for format 2."""
        self._check_file()
        self._replay()
        self._sum_large()
        with self._commit() as txn:
            txn.put(keys.META_FORMAT, seal(keys.META_FORMAT, keys.number(FORMAT)))
            txn.put(keys.META_UPGRADE, b"")
            self._mark(txn)
        # Whoever opens it from now on finds format 2. Whoever did before is seen here.
        try:
            _check_unused(self._folder)
        except InUse:
            with self._commit() as txn:
                txn.put(keys.META_FORMAT, keys.number(1))
                txn.delete(keys.META_UPGRADE)
                txn.delete(keys.META_COMMIT)
            raise

    def _check_file(self) -> None:
        """Refuse a file whose pages are damaged: sealed, what is wrong in it would be right."""
        found = [text for text in page_damages(self._folder) if _LEAK not in text]
        if found:
            raise Damaged(f"the store's file data.mdb ({found[0]})")

    def _replay(self) -> None:
        """Store what a process that died left in the redo log of format 1."""
        log = RedoLog(self._folder / "redo.log", numbered=False)
        try:
            with self._commit() as txn:
                number = txn.id()
                for writes in log.mutations(number):
                    for key, value in writes.items():
                        if value is None:
                            txn.delete(key)
                        else:
                            txn.put(key, value)
                log.set_aside(number)
        finally:
            log.close()

    def _sum_large(self) -> None:
        """Store the checksums of all large contents that have none, one after the other.

        What is damaged already gets none: reading it is an error from now on.
        """
        files = sorted((self._folder / "objects").glob("*/*"))
        for number, file in enumerate(files, start=1):
            sha256 = bytes.fromhex(file.parent.name + file.name)
            with self._env.begin() as txn:
                if txn.get(blocks.first_key(sha256)) is not None:
                    continue
            if number == 1 or number == len(files) or number % 100 == 0:
                self._progress(f"Making checksums of large files: {number} of {len(files)}")
            with file.open("rb") as opened:
                found = blocks.digest(opened.fileno())
            if found.sha256 != sha256:
                _log.warning("the content %s is damaged (`fusefs check`)", sha256.hex())
                continue
            with self._commit() as txn:
                for key, value in blocks.chunks(found):
                    txn.put(key, value)

    def seal_all(self) -> None:
        """Seal every value, going on where an earlier upgrade has come to."""
        total, done = self._env.stat()["entries"], 0
        with self._env.begin() as txn:
            position = txn.get(keys.META_UPGRADE) or b""
        while pairs := self._behind(position):
            with self._commit() as txn:
                for key, value in pairs:
                    if key not in _UNSEALED and self._is_whole(key, value):
                        txn.put(key, seal(key, value))
                position = pairs[-1][0]
                txn.put(keys.META_UPGRADE, position)
                self._mark(txn)
            done += len(pairs)
            if done % (50 * _VALUES_AT_ONCE) == 0:
                self._progress(f"Making checksums of entries: {done:,} of {total:,}")
        with self._commit() as txn:
            for key, value in keys.ASKED_FOR_ALWAYS:
                txn.put(key, seal(key, value), overwrite=False)
            txn.delete(keys.META_UPGRADE)
            self._mark(txn)

    def _behind(self, position: bytes) -> list[tuple[bytes, bytes]]:
        """Return the next pairs to seal."""
        pairs, size = [], 0
        with self._env.begin() as txn, txn.cursor() as cursor:
            if cursor.set_range(position + b"\0"):
                for key, value in islice(cursor, _VALUES_AT_ONCE):
                    pairs.append((key, value))
                    size += len(value)
                    if size > _BYTES_AT_ONCE:
                        break
        return pairs

    def _is_whole(self, key: bytes, value: bytes) -> bool:
        """Tell whether a value may be sealed. Left as it is, reading it is an error."""
        if key[:1] != keys.CONTENT or hashlib.sha256(value).digest() == key[1:]:
            return True
        _log.warning("the content %s is damaged (`fusefs check`)", key[1:].hex())
        return False

    def _mark(self, txn: lmdb.Transaction) -> None:
        txn.put(keys.META_COMMIT, seal(keys.META_COMMIT, keys.number(txn.id())))

    def _commit(self) -> lmdb.Transaction:
        """Return a transaction that is committed durably when it is left."""
        try:
            return self._env.begin(write=True)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return self._env.begin(write=True)
