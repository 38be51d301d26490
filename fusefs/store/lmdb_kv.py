"""The ordered store on LMDB, with group commit.

A process opens the environment once (LMDB's rule), so `LmdbKV.open` hands out one object per
folder and counts its users. A write transaction collects its puts and deletes in memory;
leaving it applies them together. With *immediate* commits every transaction is durable when it
is left. With *deferred* ones (a mounted session) it is recorded in the redo log and joins the
open batch, which `commit` makes durable a few milliseconds later.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import lmdb

from fusefs.store import keys
from fusefs.store.kv import Reader
from fusefs.store.lmdb_file import Margin, as_os_error
from fusefs.store.lmdb_meta import page_damages
from fusefs.store.lmdb_soundness import Soundness
from fusefs.store.lmdb_transactions import ReadTransaction, WriteTransaction
from fusefs.store.redo import RedoLog, WriteSet
from fusefs.store.reserve import ACKNOWLEDGED_BYTES, REMOVALS_BYTES, Reserve
from fusefs.store.seal import Damaged, seal
from fusefs.store.sealed_reader import SealedReader
from fusefs.store.writer_lock import WriterLock

_log = logging.getLogger(__name__)

_FIRST_MAP_BYTES = 64 << 30
_MAX_READERS = 1024
_WRITER_DEADLINE = 20.0
_BATCH_SECONDS = 0.005
_LONGEST_BATCH_SECONDS = 0.025
_LONGEST_BATCH_ALONE = 0.1
_BATCH_BYTES = 4 << 20
_LAZY_SECONDS = 1.0
_WALKS = 3


class LmdbKV:
    """An LMDB environment shared by the processes of an instance. Not for several threads."""

    _opened: ClassVar[dict[str, LmdbKV]] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        deferred: bool,
        process: int,
        on_wait: Callable[[int], None],
        map_bytes: int = _FIRST_MAP_BYTES,
    ) -> LmdbKV:
        """Open the environment in `folder`, or share the one this process has open.

        Args:
            folder: holds ``data.mdb``, ``redo.log`` and ``writer.lock``.
            deferred: group commits (see the module's text).
            process: the id of this process.
            on_wait: called with the id of another process before its batch is waited for.
            map_bytes: first size of the memory map; it grows by itself.

        Raises:
            Damaged: the file's pages do not hang together.
        """
        identity = os.path.realpath(folder)
        kv = cls._opened.get(identity)
        if kv is None:
            kv = cls(folder, process=process, on_wait=on_wait, map_bytes=map_bytes)
            cls._opened[identity] = kv
            kv._identity = identity
            try:
                with kv._env.begin() as txn:
                    kv.soundness.check_free(txn)
                kv._replay()
            except BaseException:
                kv._close()
                raise
        kv._users += 1
        kv._deferred = kv._deferred or deferred
        return kv

    def __init__(
        self, folder: Path, *, process: int, on_wait: Callable[[int], None], map_bytes: int
    ) -> None:
        self._env = lmdb.open(
            os.fspath(folder), map_size=map_bytes, max_readers=_MAX_READERS,
            readahead=False, mode=0o600
        )
        # As far as it has ever grown.
        self._env.set_mapsize(0)
        if self._env.info()["map_size"] < map_bytes:
            self._env.set_mapsize(map_bytes)
        self._env.reader_check()
        self.soundness = Soundness(folder / "data.mdb")
        self._redo = RedoLog(folder / "redo.log")
        self._lock = WriterLock(
            folder / "writer.lock", process=process, on_wait=on_wait, deadline=_WRITER_DEADLINE
        )
        self._reserve = Reserve(folder / "reserve", ACKNOWLEDGED_BYTES)
        self._removals = Reserve(folder / "reserve-for-removals", REMOVALS_BYTES)
        self._folder = folder
        self._margin = Margin(folder / "data.mdb")
        self._identity = ""
        self._users = 0
        self._deferred = False
        self._inside = False
        self._batch_number = 0
        self._batch_writes: list[WriteSet] = []
        self._batch_bytes = 0
        self._commit_seconds = _BATCH_SECONDS / 4
        self._lazy_until = 0.0
        self.batch: lmdb.Transaction | None = None
        self.changes = 1
        """Grows with whatever becomes of the open batch; never 0, which stands for a snapshot."""
        self.on_commit: list[Callable[[], None]] = []
        self.recovered = False
        """Something was replayed that nobody was told of yet."""

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
        self._drop_batch()
        del self._opened[self._identity]
        self._lock.close()
        self._redo.close()
        self.soundness.close()
        self._env.close()

    def read(self) -> ReadTransaction:
        """Open a snapshot (see `fusefs.store.kv.KV`)."""
        return ReadTransaction(self)

    def write(self, *, freeing: bool = False, lazy: bool = False) -> WriteTransaction:
        """Open the write transaction (see `fusefs.store.kv.KV`)."""
        return WriteTransaction(self, freeing=freeing, lazy=lazy)

    @property
    def writer_lock(self) -> WriterLock:
        """The lock that a write transaction takes, and a commit gives back."""
        return self._lock

    @property
    def pending(self) -> bool:
        """There are mutations in the open batch, or the writer lock is held for one."""
        return self._lock.held

    @property
    def may_wait(self) -> bool:
        """The open batch has lazy mutations alone, and is not old."""
        return self.batch is not None and time.monotonic() < self._lazy_until

    def commit_after(self, *, alone: bool) -> float:
        """Return the seconds that a batch may stay open: some multiple of what a commit costs
        here, a larger one if nobody else would see it sooner."""
        if alone:
            return min(max(_BATCH_SECONDS, 20 * self._commit_seconds), _LONGEST_BATCH_ALONE)
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
            try:
                self._commit_batch()
            except lmdb.Error as error:
                self._commit_again(self._as_os_error(error), freeing=freeing, doomed=doomed)
            self._commit_seconds = time.monotonic() - began
            # With the writer lock held: nobody else lets the file grow.
            self._margin.keep(self.sizes()[0])
            self._redo.reset()
            self._batch_writes.clear()
            self._batch_bytes = 0
            self._lock.release()
            for tell in self.on_commit:
                tell()
        self._lock.release()

    def damages(self) -> list[str]:
        """Return what is damaged in the file: its pages, then the values that can be reached."""
        found = self._damaged_pages()
        with self.read() as txn:
            return found + list(txn.damages())

    def _damaged_pages(self) -> list[str]:
        """Walk all pages; while others write, until they leave the file alone."""
        for _ in range(_WALKS):
            before = self._env.info()["last_txnid"]
            found = page_damages(self._folder)
            if not found or self._env.info()["last_txnid"] == before:
                return found
        with self.write(freeing=True):
            return page_damages(self._folder)

    def sizes(self) -> tuple[int, int]:
        """Return (bytes in use, bytes of the map)."""
        info, stat = self._env.info(), self._env.stat()
        return (info["last_pgno"] + 1) * stat["psize"], info["map_size"]

    def freeze(self, note: Callable[[Reader], None]) -> tuple[lmdb.Transaction, Soundness]:
        """Begin a snapshot of everything that is acknowledged by now, in any process.

        Args:
            note: called with the snapshot while nobody else can write; it must be quick.

        Returns:
            The snapshot, and what tells whether its pages are sound.

        Raises:
            TimeoutError: another process kept the writer lock past the deadline.
            OSError: what was acknowledged cannot be committed.
        """
        while True:
            self.commit()
            self.enter_batch()
            try:
                # Where a process died, its mutations were replayed: they must be committed first.
                if not self._batch_writes:
                    snapshot = self.begin(write=False)
                    soundness = Soundness(self._folder / "data.mdb", only=snapshot)
                    try:
                        note(SealedReader(snapshot, self.reading_failed, soundness))
                    except BaseException:
                        snapshot.abort()
                        soundness.close()
                        raise
                    return snapshot, soundness
            finally:
                self._inside = False
                self.commit()

    def make_room(self) -> None:
        """Double the map, for this process and for those that open the instance later."""
        with self.write(freeing=True) as txn:
            something = next(txn.range(b"", b"\xff"), None)
            self._grow()
            if something is not None:  # only a commit that writes keeps the size
                txn.put(*something)

    def restore_reserves(self) -> None:
        """Have the space that is kept back, if the disk has it."""
        self._lock.acquire()
        try:
            self._removals.allocate()
            self._reserve.allocate()
        finally:
            self.commit()

    # The transactions above come through these.

    def begin(self, *, write: bool) -> lmdb.Transaction:
        """Begin an LMDB transaction, following a map that another process let grow."""
        try:
            return self._env.begin(write=write, buffers=True)
        except lmdb.MapResizedError:
            self._env.set_mapsize(0)
            return self._env.begin(write=write, buffers=True)

    def enter_batch(self) -> lmdb.Transaction:
        """Return the batch to write in, opened and brought up to date if need be."""
        if self._inside:
            raise RuntimeError("a write transaction is already open")
        self._lock.acquire()
        if self.batch is None:
            self.batch = self.begin(write=True)
            self._batch_number = self.batch.id()
            self._lazy_until = time.monotonic() + _LAZY_SECONDS
            try:
                self._recover(self.batch)
            except BaseException:
                self._drop_batch()  # the redo log keeps what it is about
                raise
        self._inside = True
        return self.batch

    def leave(self, writes: WriteSet, *, freeing: bool, lazy: bool = False) -> None:
        """Acknowledge `writes`: they are committed, or recorded and in the open batch.

        Raises:
            OSError: the disk refused; nothing of `writes` is left.
        """
        self._inside = False
        assert self.batch is not None
        self.soundness.check_writes(writes, self.batch)
        if writes and not lazy:
            self._lazy_until = 0.0
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
        self.changes += 1
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
                put(key, seal(key, value))
        if writes is self._batch_writes[0]:
            number = keys.number(self.batch.id())
            put(keys.META_COMMIT, seal(keys.META_COMMIT, number))

    def _commit_batch(self) -> None:
        """Commit the open batch; committing takes pages too, and may hit the end of the map."""
        while self.batch is not None:
            batch, self.batch = self.batch, None
            try:
                batch.commit()
            except lmdb.MapFullError:
                self._grow()

    def _grow(self) -> None:
        """Double the map and do the batch again: LMDB gives up a transaction that hit the end."""
        while True:
            if self.batch is not None:
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
        self.changes += 1
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
                try:
                    self._commit_batch()
                except lmdb.Error as again:
                    error = self._as_os_error(again)
                else:
                    return
        del self._batch_writes[acknowledged:]
        if acknowledged:
            self._reopen_batch()
        else:
            self._drop_batch()
        raise error

    def _drop_batch(self) -> None:
        """Let go of the open batch, of which nothing was acknowledged by this process."""
        if self.batch is not None:
            self.batch.abort()
            self.batch = None
        self._batch_writes.clear()
        self._batch_bytes = 0
        self._lock.release()

    def _replay(self) -> None:
        """At opening: store what a process that died left in the redo log, if none writes now.

        On a full disk it stays in the batch, through which this process reads.
        """
        if self._lock.try_acquire():
            self.enter_batch()
            self._inside = False
            self._redo.set_aside(self._batch_number)
            try:
                self._reserves_are_held()
                self.commit()
            except OSError as error:
                _log.warning("cannot store what the last process left: %s", error.strerror)

    def _recover(self, batch: lmdb.Transaction) -> None:
        """Replay what a process that died left in the redo log."""
        for writes in self._redo.mutations(self._batch_number):
            self.soundness.check_writes(writes, batch)
            self._apply(writes)
            self.recovered = True

    def reading_failed(self, error: lmdb.Error) -> OSError:
        """Return what to raise when LMDB cannot read; keep the batch usable."""
        if self.batch is not None:
            # LMDB does nothing any more in a transaction in which it met damage.
            self._reopen_batch()
        return Damaged(f"the store ({error})")

    def _as_os_error(self, error: lmdb.Error) -> OSError:
        return as_os_error(error, self._folder)
