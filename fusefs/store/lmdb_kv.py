"""The ordered store on LMDB, with group commit.

A process opens the environment once (LMDB's rule), so `LmdbKV.open` hands out one object per
folder and counts its users. A write transaction collects its puts and deletes in memory;
leaving it applies them together. With *immediate* commits every transaction is durable when it
is left. With *deferred* ones (a mounted session) it is recorded in the redo log and joins the
open batch, which `commit` makes durable a few milliseconds later.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, cast

import lmdb

from fusefs.store.redo import RedoLog, WriteSet
from fusefs.store.reserve import ACKNOWLEDGED_BYTES, REMOVALS_BYTES, Reserve
from fusefs.store.writer_lock import WriterLock

_log = logging.getLogger(__name__)

_FIRST_MAP_BYTES = 64 << 30
_MAX_READERS = 1024
_WRITER_DEADLINE = 20.0
_BATCH_SECONDS = 0.005
_LONGEST_BATCH_SECONDS = 0.025
_BATCH_BYTES = 4 << 20
_FULL_BELOW = 4 << 20
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS)


class _Snapshot:
    """A reader over an LMDB transaction."""

    __slots__ = ("_txn", "get")

    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn
        self.get = cast("Callable[[bytes], bytes | None]", txn.get)

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                for key, value in cast("Iterator[tuple[bytes, bytes]]", iter(cursor)):
                    if key >= end:
                        return
                    yield key, value

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        with self._txn.cursor() as cursor:
            found = cursor.prev() if cursor.set_range(end) else cursor.last()
            key, value = cast("tuple[bytes, bytes]", cursor.item())
            return (key, value) if found and key >= start else None


class _ReadTransaction:
    """Context manager of one snapshot, or of the open batch where there is one."""

    __slots__ = ("_kv", "_own")

    def __init__(self, kv: LmdbKV) -> None:
        self._kv = kv
        self._own: lmdb.Transaction | None = None

    def __enter__(self) -> _Snapshot:
        batch = self._kv.batch
        if batch is not None:
            return _Snapshot(batch)
        self._own = self._kv.begin(write=False)
        return _Snapshot(self._own)

    def __exit__(self, *exc: object) -> None:
        if self._own is not None:
            self._own.abort()


class _WriteTransaction:
    """Context manager that collects writes over the batch, then applies them together."""

    __slots__ = ("_freeing", "_kv", "_txn", "writes")

    def __init__(self, kv: LmdbKV, *, freeing: bool) -> None:
        self._kv = kv
        self._freeing = freeing
        self.writes: dict[bytes, bytes | None] = {}

    def __enter__(self) -> Self:
        self._txn = self._kv.enter_batch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            self._kv.leave(self.writes, freeing=self._freeing)
        else:
            self._kv.leave({}, freeing=True)

    def get(self, key: bytes) -> bytes | None:
        if key in self.writes:
            return self.writes[key]
        return cast("bytes | None", self._txn.get(key))

    def put(self, key: bytes, value: bytes) -> None:
        self.writes[key] = value

    def delete(self, key: bytes) -> None:
        self.writes[key] = None

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        base = _Snapshot(self._txn).range(start, end)
        written = {key: value for key, value in self.writes.items() if start <= key < end}
        if not written:
            return base
        kept = ((key, value) for key, value in base if key not in written)
        new = [(key, value) for key, value in sorted(written.items()) if value is not None]
        return merge(kept, new)

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        if not any(start <= key < end for key in self.writes):
            return _Snapshot(self._txn).last(start, end)
        return next(iter(deque(self.range(start, end), maxlen=1)), None)


class LmdbKV:
    """An LMDB environment shared by the processes of an instance. Not for several threads."""

    _opened: ClassVar[dict[str, LmdbKV]] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        deferred: bool,
        on_wait: Callable[[], None],
        map_bytes: int = _FIRST_MAP_BYTES,
    ) -> LmdbKV:
        """Open the environment in `folder`, or share the one this process has open.

        Args:
            folder: holds ``data.mdb``, ``redo.log`` and ``writer.lock``.
            deferred: group commits (see the module's text).
            on_wait: called before this process waits for another one's batch.
            map_bytes: first size of the memory map; it grows by itself.
        """
        identity = os.path.realpath(folder)
        kv = cls._opened.get(identity)
        if kv is None:
            kv = cls(folder, on_wait=on_wait, map_bytes=map_bytes)
            cls._opened[identity] = kv
            kv._identity = identity
            kv._replay()
        kv._users += 1
        kv._deferred = kv._deferred or deferred
        return kv

    def __init__(self, folder: Path, *, on_wait: Callable[[], None], map_bytes: int) -> None:
        self._env = lmdb.open(
            os.fspath(folder), map_size=map_bytes, max_readers=_MAX_READERS,
            readahead=False, mode=0o600
        )
        self._env.reader_check()
        self._redo = RedoLog(folder / "redo.log")
        self._lock = WriterLock(
            folder / "writer.lock", on_wait=on_wait, deadline=_WRITER_DEADLINE
        )
        self._reserve = Reserve(folder / "reserve", ACKNOWLEDGED_BYTES)
        self._removals = Reserve(folder / "reserve-for-removals", REMOVALS_BYTES)
        self._folder = folder
        self._identity = ""
        self._users = 0
        self._deferred = False
        self._inside = False
        self._batch_number = 0
        self._batch_writes: list[WriteSet] = []
        self._batch_bytes = 0
        self._commit_seconds = _BATCH_SECONDS / 4
        self.batch: lmdb.Transaction | None = None
        self.on_commit: list[Callable[[], None]] = []

    def close(self) -> None:
        """Commit what is open and close the environment when its last user leaves.

        Raises:
            OSError: the disk refused the commit; what was acknowledged is in the redo log, and
                whoever opens the instance next finds it there.
        """
        self._users -= 1
        try:
            self.commit()
        finally:
            if self._users == 0:
                self._close()

    def _close(self) -> None:
        if self.batch is not None:
            self.batch.abort()
            self.batch = None
        del self._opened[self._identity]
        self._lock.close()
        self._redo.close()
        self._env.close()

    def read(self) -> _ReadTransaction:
        """Open a snapshot (see `fusefs.store.kv.KV`)."""
        return _ReadTransaction(self)

    def write(self, *, freeing: bool = False) -> _WriteTransaction:
        """Open the write transaction (see `fusefs.store.kv.KV`)."""
        return _WriteTransaction(self, freeing=freeing)

    def try_lock_writer(self) -> bool:
        """Take the writer lock if it is free; the next `write` then does not wait."""
        return self._lock.try_acquire()

    @property
    def pending(self) -> bool:
        """There are mutations in the open batch, or the writer lock is held for one."""
        return self._lock.held

    @property
    def commit_after(self) -> float:
        """Seconds that a batch may stay open: some multiple of what a commit costs here."""
        return min(max(_BATCH_SECONDS, 4 * self._commit_seconds), _LONGEST_BATCH_SECONDS)

    def commit(self) -> None:
        """End the open batch durably and let other writers in.

        Raises:
            OSError: the disk refused; the batch stays acknowledged in the redo log.
        """
        self._commit(freeing=False, doomed=False)

    def _commit(self, *, freeing: bool, doomed: bool) -> None:
        """Commit; `doomed` says that the last mutation is dropped if that fails."""
        if self.batch is not None:
            began = time.monotonic()
            batch, self.batch = self.batch, None
            try:
                batch.commit()
            except lmdb.Error as error:
                self._commit_again(self._as_os_error(error), freeing=freeing, doomed=doomed)
            self._commit_seconds = time.monotonic() - began
            self._redo.reset()
            self._batch_writes.clear()
            self._batch_bytes = 0
            self._lock.release()
            for tell in self.on_commit:
                tell()
        self._lock.release()

    def sizes(self) -> tuple[int, int]:
        """Return (bytes in use, bytes of the map)."""
        info, stat = self._env.info(), self._env.stat()
        return (info["last_pgno"] + 1) * stat["psize"], info["map_size"]

    # The transactions above come through these.

    def begin(self, *, write: bool) -> lmdb.Transaction:
        """Begin an LMDB transaction, following a map that another process let grow."""
        try:
            return self._env.begin(write=write)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return self._env.begin(write=write)

    def enter_batch(self) -> lmdb.Transaction:
        """Return the batch to write in, opened and brought up to date if need be."""
        if self._inside:
            raise RuntimeError("a write transaction is already open")
        self._lock.acquire()
        if self.batch is None:
            self.batch = self.begin(write=True)
            self._batch_number = self.batch.id()
            self._recover()
        self._inside = True
        return self.batch

    def leave(self, writes: WriteSet, *, freeing: bool) -> None:
        """Acknowledge `writes`: they are committed, or recorded and in the open batch.

        Raises:
            OSError: the disk refused; nothing of `writes` is left.
        """
        self._inside = False
        if not self._deferred or not self._reserves_are_held():
            if writes:
                self._apply(writes)
            self._commit(freeing=freeing, doomed=bool(writes))
            return
        if writes:
            self._redo.append(self._batch_number, writes)
            self._apply(writes)
        if self._batch_bytes > _BATCH_BYTES:
            self.commit()

    def _reserves_are_held(self) -> bool:
        return self._removals.restore() and self._reserve.restore()

    def _apply(self, writes: WriteSet) -> None:
        self._batch_writes.append(writes)
        self._batch_bytes += sum(len(value) for value in writes.values() if value)
        try:
            self._put_all(writes)
        except lmdb.MapFullError:
            self._grow()
        except lmdb.Error as error:
            self._batch_writes.pop()
            self._reopen_batch()
            raise self._as_os_error(error) from error

    def _put_all(self, writes: WriteSet) -> None:
        assert self.batch is not None
        put, delete = self.batch.put, self.batch.delete
        for key, value in writes.items():
            if value is None:
                delete(key)
            else:
                put(key, value)

    def _grow(self) -> None:
        """Double the map and do the batch again: LMDB gives up a transaction that hit the end."""
        while True:
            assert self.batch is not None
            self.batch.abort()
            self.batch = None
            self._env.set_mapsize(self._env.info()["map_size"] * 2)
            try:
                self._reopen_batch()
            except lmdb.MapFullError:
                continue
            return

    def _reopen_batch(self) -> None:
        """Begin the batch again and do its mutations once more."""
        if self.batch is not None:
            self.batch.abort()
        self.batch = self.begin(write=True)
        for writes in self._batch_writes:
            self._put_all(writes)

    def _commit_again(self, error: OSError, *, freeing: bool, doomed: bool) -> None:
        """After a failed commit: try again with the space that is kept back for it."""
        acknowledged = len(self._batch_writes) - doomed
        reserves = [self._reserve] if acknowledged or freeing else []
        if freeing:
            reserves.append(self._removals)
        for reserve in reserves:
            if reserve.give_up():
                self._reopen_batch()
                batch, self.batch = self.batch, None
                assert batch is not None
                try:
                    batch.commit()
                except lmdb.Error as again:
                    error = self._as_os_error(again)
                else:
                    return
        del self._batch_writes[acknowledged:]
        if acknowledged:
            self._reopen_batch()
        else:
            self._batch_bytes = 0
            self._lock.release()
        raise error

    def _replay(self) -> None:
        """At opening: store what a process that died left in the redo log, if none writes now.

        On a full disk it stays in the batch, through which this process reads.
        """
        if self.try_lock_writer():
            self.enter_batch()
            self._inside = False
            try:
                self._reserves_are_held()
                self.commit()
            except OSError as error:
                _log.warning("cannot store what the last process left: %s", error.strerror)

    def _recover(self) -> None:
        """Replay what a process that died left in the redo log."""
        for writes in self._redo.mutations(self._batch_number):
            self._apply(writes)

    def _as_os_error(self, error: lmdb.Error) -> OSError:
        """Return what the system refused; LMDB calls a write that came out short EIO."""
        number = next((n for n in _DISK_ERRNOS if os.strerror(n) in str(error)), None)
        if number is None:
            return OSError(errno.EIO, f"the store failed: {error}")
        if number == errno.EIO:
            free = os.statvfs(self._folder)
            if free.f_bavail * free.f_frsize < _FULL_BELOW:
                number = errno.ENOSPC
        return OSError(number, os.strerror(number))
