"""An instance: one folder that holds one tree, shared by all processes that open it.

::

    data.mdb, lock.mdb      the ordered store (LMDB)
    redo.log                the batch that is not committed yet
    writer.lock, .gate      who may write; who may next
    reserve*                space for what was acknowledged when the disk is full
    objects/ab/cdef...      large content by SHA-256, never changed
    scratch/                large content being written
    trash/                  what was removed from host directories
    repositories/           bare clones of mounted repositories
    run/                    bells and locks of live processes, logs
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import lmdb

from fusefs.contract.kinds import Kind
from fusefs.store import bell as bells
from fusefs.store import keys, life, nodes, residency
from fusefs.store.bell import Bell
from fusefs.store.content import ContentStore
from fusefs.store.definitions import BindTable, SessionTable
from fusefs.store.journal import Journal
from fusefs.store.kv import KV, Reader, Writer
from fusefs.store.kv_copy import FrozenStore
from fusefs.store.lmdb_file import complete
from fusefs.store.lmdb_kv import LmdbKV
from fusefs.store.lmdb_meta import look
from fusefs.store.mounts import MountTable
from fusefs.store.records import Record
from fusefs.store.scratch import ScratchFiles, scratch_records
from fusefs.store.upgrades import FORMAT, InUse, Progress, say_step, upgrade
from fusefs.store.writer_lock import WriterLock

__all__ = ["FORMAT", "Instance", "InstanceError", "check_exists", "check_lock_file"]

_FOLDERS = ("objects", "scratch", "trash", "run")
_LONGEST_TOUCH = 500


class InstanceError(Exception):
    """The instance cannot be used as asked; the message is for people."""


class Instance:
    """One open instance. For one thread; use it as a context manager.

    Attributes:
        folder: where it is.
        process: this process's random id among those that have the instance open.
        kv: the ordered store.
        content: content by hash.
        scratches: large content being written.
        journal, sessions, binds, mounts: see their classes.
        bell: wakes other processes and is rung by them.
    """

    @classmethod
    def init(cls, folder: Path | str) -> Instance:
        """Make a new instance in `folder`, which is empty or missing, and open it.

        Raises:
            InstanceError: there is one already, or the folder holds other things.
        """
        folder = Path(folder).absolute()
        if (folder / "data.mdb").exists():
            raise InstanceError(f"{folder} is an instance already.")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InstanceError(f"{folder} is not an empty folder: give a new one.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            for name in _FOLDERS:
                (folder / name).mkdir()
        except OSError as error:
            raise InstanceError(f"Cannot make {folder}: {error.strerror}.") from error
        instance = cls(folder, deferred=False)
        with instance.kv.write() as txn:
            _lay_out(txn)
        return instance

    @classmethod
    def open(
        cls, folder: Path | str, *, deferred: bool = False, progress: Progress | None = say_step
    ) -> Instance:
        """Open the instance in `folder`, which is upgraded first if it is of an older format.

        Args:
            folder: the instance.
            deferred: group commits and log mutations meanwhile (a mounted session does).
            progress: is told of an upgrade, step by step; None: an older format is refused.

        Raises:
            InstanceError: it is none, or of a format this program does not know, or damaged.
        """
        folder = Path(folder).absolute()
        try:
            check_exists(folder)
            if not complete(folder / "data.mdb"):
                raise InstanceError(
                    f"{folder / 'data.mdb'} has been cut short: restore it from a backup."
                )
            (folder / "run").mkdir(exist_ok=True)
            _bring_up(folder, progress)
            check_lock_file(folder)
            instance = cls(folder, deferred=deferred)
            try:
                instance._check_format()
            except BaseException:
                instance.close()
                raise
        except OSError as error:
            raise InstanceError(f"Cannot open {folder}: {error.strerror or error}.") from error
        except lmdb.Error as error:
            raise InstanceError(f"{folder} is not a sound instance: {error}.") from error
        return instance

    def __init__(self, folder: Path, *, deferred: bool) -> None:
        self.folder = folder
        self.process = secrets.randbits(63)
        self._touched: set[int] = set()
        self._journal_rung = False
        self.bell = Bell(folder / "run", self.process)
        self._life = life.hold(folder / "run", self.process)
        self.kv: KV
        self._lmdb = LmdbKV.open(
            folder,
            deferred=deferred,
            process=self.process,
            on_wait=lambda holder: self.bell.ring_one(holder, bells.HURRY),
        )
        self.kv = self._lmdb
        self._lmdb.on_commit.append(self._tell_others)
        self.content = ContentStore(folder / "objects")
        self.scratches = ScratchFiles(folder / "scratch")
        self.journal = Journal(self.kv)
        self.sessions = SessionTable(self)
        self.binds = BindTable(self)
        self.mounts = MountTable(self)
        if self._lmdb.recovered:
            self._tell_others()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Commit what is open and close the instance.

        Raises:
            OSError: as `commit`; the instance is closed all the same.
        """
        try:
            self._lmdb.close()
        finally:
            self._lmdb.recovered = False  # whoever replays it again tells of it
            self._tell_others()
            self._lmdb.on_commit.remove(self._tell_others)
            self.bell.close()
            os.close(self._life)
            with contextlib.suppress(FileNotFoundError):
                (self.folder / "run" / life.name(self.process)).unlink()

    def _check_format(self) -> None:
        with self.kv.read() as txn:
            check_format(self.folder, txn)

    # Group commit.

    @property
    def writer_lock(self) -> WriterLock:
        """The lock that a mutation takes, and a commit gives back."""
        return self._lmdb.writer_lock

    @property
    def pending(self) -> bool:
        """There are mutations that are not committed yet."""
        return self._lmdb.pending

    @property
    def may_wait(self) -> bool:
        """What is not committed yet is nothing that anybody waits for."""
        return self._lmdb.may_wait and not self._touched

    def commit_after(self) -> float:
        """Return the seconds that a batch of mutations may stay open."""
        return self._lmdb.commit_after(alone=self.bell.is_alone())

    def commit(self) -> None:
        """Make all mutations durable and tell the other processes.

        Raises:
            OSError: the disk refused; acknowledged mutations are kept and tried again.
        """
        self._lmdb.commit()
        self._tell_others()

    def freeze(self, note: Callable[[Reader], None]) -> FrozenStore:
        """Return the ordered store with all that is acknowledged by now; see `LmdbKV.freeze`."""
        return FrozenStore(*self._lmdb.freeze(note), self._lmdb.sizes()[1])

    def _tell_others(self) -> None:
        """Ring for what was committed, or written to scratch files."""
        if self._lmdb.recovered:
            self._tell_all()
        if self._journal_rung:
            self._journal_rung = False
            self.bell.ring(bells.JOURNAL)
        if self._touched:
            touched, self._touched = self._touched, set()
            for message in _touches(touched):
                self.bell.ring(message)

    def _tell_all(self) -> None:
        """Ring for what a process that died did and told nobody of; this process hears it too."""
        self._lmdb.recovered = False
        with self.kv.read() as txn:
            written = {node for node, _ in scratch_records(txn)}
        for message in (bells.JOURNAL, *_touches(written)):
            self.bell.ring(message)
            self.bell.ring_one(self.process, message)

    def journalled(self) -> None:
        """Note that the open batch has journal records: others are told at its commit."""
        self._journal_rung = True

    def touch(self, node_id: int) -> None:
        """Note that a file's bytes changed without a journal record."""
        self._touched.add(node_id)

    def catch_up(self, seconds: float) -> None:
        """See to it that everything is seen that was acknowledged by now, in any process.

        Args:
            seconds: how long to wait at most for the process that has mutations uncommitted.

        Raises:
            TimeoutError: it did not commit them in that time.
            OSError: what a process that died left cannot be committed.
        """
        self.writer_lock.acquire(seconds)
        try:
            with self.kv.write(freeing=True):
                pass  # beginning it does what a process that died has left to be done
        finally:
            self.commit()

    @property
    def touched(self) -> bool:
        """There are changes that the other processes were not told of."""
        return bool(self._touched) or self._journal_rung

    def give_back_memory(self) -> None:
        """Let go of what this process has mapped of the ordered store, if that is much.

        Raises:
            OSError: the system refused.
        """
        residency.give_back(self.folder / "data.mdb")

    # Processes.

    def bury(self) -> bool:
        """Sweep up after processes that died; tell whether there were any (see `recover`)."""
        before = sum(1 for _ in life.processes(self.folder / "run"))
        return len(self.live_processes()) < before

    def recover(self) -> None:
        """Take up what processes that died left, and tell everybody.

        Raises:
            OSError: the disk refused.
        """
        with self.kv.write(freeing=True):
            self._lmdb.recovered = True
        self.commit()

    def live_processes(self) -> set[int]:
        """Return the ids of all processes that have the instance open; sweep up after others."""
        alive = set()
        run = self.folder / "run"
        for process, lives in life.processes(run):
            if process == self.process or lives:
                alive.add(process)
            else:
                (run / life.name(process)).unlink(missing_ok=True)
                (run / f"bell.{process:016x}").unlink(missing_ok=True)
        return alive

    def damages(self) -> list[str]:
        """Return what is damaged in the ordered store's file, as lines for people."""
        return self._lmdb.damages()

    # Upkeep of the ordered store.

    def sizes(self) -> tuple[int, int]:
        """Return (bytes used, bytes reserved) of the ordered store."""
        return self._lmdb.sizes()

    def make_room(self) -> None:
        """Let the ordered store grow to twice the size it may have now.

        Raises:
            OSError: the system refused.
        """
        self._lmdb.make_room()

    def restore_reserves(self) -> None:
        """Have the space that is kept back for a full disk, if the disk has it.

        Raises:
            TimeoutError: another process kept the writer lock.
        """
        self._lmdb.restore_reserves()


def check_format(folder: Path, txn: Reader) -> None:
    """Check that this program knows the format of the instance in `folder`.

    Raises:
        InstanceError: it has none, or a newer one.
    """
    raw = txn.get(keys.META_FORMAT)
    if raw is None:
        raise InstanceError(f"{folder} is not a whole instance: it has no format.")
    found = keys.to_number(raw)
    if found > FORMAT:
        raise InstanceError(_newer(folder, found))


def _touches(node_ids: Iterable[int]) -> Iterator[bytes]:
    """Yield messages that tell of touched nodes, so many in each as fit."""
    ids = sorted(node_ids)
    for at in range(0, len(ids), _LONGEST_TOUCH):
        yield bells.TOUCHED + b"".join(map(keys.number, ids[at : at + _LONGEST_TOUCH]))


def in_use(folder: Path) -> bool:
    """Tell whether any process has the instance in `folder` open, without opening it."""
    return any(alive for _, alive in life.processes(folder / "run"))


def check_exists(folder: Path) -> None:
    """Refuse a folder that is no instance.

    Raises:
        InstanceError: it is none.
    """
    if not (folder / "data.mdb").exists():
        raise InstanceError(
            f"{folder} is not an instance. Make one with: fusefs --instance {folder} init"
        )


def check_lock_file(folder: Path) -> None:
    """Refuse an instance in use whose ``lock.mdb`` is gone: a new one would lock out nobody.

    Raises:
        InstanceError: it was removed.
    """
    if not (folder / "lock.mdb").exists():
        users = sum(lives for _, lives in life.processes(folder / "run"))
        if users:
            raise InstanceError(
                f"{folder / 'lock.mdb'} was removed while the instance is in use (processes: "
                f"{users}). Nothing is lost so far: end them, unmounting their views (fusefs "
                "umount), then try again."
            )


def _bring_up(folder: Path, progress: Progress | None) -> None:
    """Look at the store before LMDB does, and upgrade it if need be."""
    found = look(folder / "data.mdb")
    if found.format is None:
        return
    if found.format > FORMAT:
        raise InstanceError(_newer(folder, found.format))
    if found.format == FORMAT and not found.upgrading:
        return
    if progress is None:
        raise InstanceError(f"{folder} has an older format and is not upgraded now.")
    try:
        upgrade(folder, progress)
    except InUse:
        raise InstanceError(
            f"{folder} has an older format and must be upgraded, but other programs have it "
            "open. Unmount its views first (`fusefs mounts` lists them)."
        ) from None


def _newer(folder: Path, found: int) -> str:
    return (
        f"{folder} has format {found}; this fusefs knows formats up to {FORMAT}. "
        "Install a newer fusefs."
    )


def _lay_out(txn: Writer) -> None:
    now = time.time_ns()
    txn.put(keys.META_FORMAT, keys.number(FORMAT))
    txn.put(keys.META_INSTANCE, secrets.token_bytes(16))
    for key, value in keys.ASKED_FOR_ALWAYS:
        txn.put(key, value)
    for node_id in (keys.ROOT_ID, keys.TRASH_ID, keys.ORPHANS_ID):
        mode = 0o755 if node_id == keys.ROOT_ID else 0o700
        record = Record(
            Kind.DIR, 0, mode, os.geteuid(), os.getegid(), 0, now, now, now, now, node_id, b""
        )
        nodes.place(txn, 0, keys.number(node_id), record)
