"""An instance looked at from outside: what dead processes left, and whether there is room.

Opening an instance mends much of that on the way. So nothing is opened for writing here, and
this process must not have the instance open.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lmdb

from fusefs.store import bell, keys, life, orphans, redo
from fusefs.store.flocks import try_lock
from fusefs.store.instance import FORMAT, InstanceError, check_format, check_lock_file
from fusefs.store.kv import Reader, after_prefix
from fusefs.store.lmdb_file import complete
from fusefs.store.lmdb_meta import look
from fusefs.store.lmdb_soundness import Soundness
from fusefs.store.maintenance import stray_scratches
from fusefs.store.reserve import RESERVES
from fusefs.store.scratch import ScratchFiles, scratch_records
from fusefs.store.seal import Damaged
from fusefs.store.sealed_reader import SealedReader

PATIENCE = 3.0
"""Seconds to wait for whoever writes. A batch takes milliseconds."""

_PAUSE = 0.001
_FLOCK = struct.Struct("hhqqi")  # struct flock (fcntl(2))


@dataclass(slots=True)
class Left:
    """What dead processes left in the store. Only seen while the writer lock can be had.

    Attributes:
        changes: mutations in the redo log that are not in the store.
        drafts: small files being written, if no process is there that could write them.
        scratches: large files being written by nobody.
        scratch_bytes: their size.
        strays: files in ``scratch/`` that nothing refers to.
        orphans: replaced files that dead processes had open, if no process is there that is going
            to drop them. Others are no remains: each collection drops what was replaced.
    """

    changes: int = 0
    drafts: int = 0
    scratches: int = 0
    scratch_bytes: int = 0
    strays: int = 0
    orphans: int = 0


@dataclass(slots=True)
class Condition:
    """How an instance is. Sizes in bytes.

    Attributes:
        alive: ids of the processes that have it open.
        dead_files: names in ``run/`` of processes that died.
        dead_readers: process ids in LMDB's table of readers.
        sessions: names of those that are defined.
        used: the ordered store.
        room: what it may grow to.
        free: of the disk.
        lacking: names of reserves that are missing or have no blocks, and whether they look whole.
        left: None while the writer lock cannot be had.
        writer: process id of who keeps the writer lock, 0 if it cannot be told.
    """

    alive: set[int] = field(default_factory=set)
    dead_files: list[str] = field(default_factory=list)
    dead_readers: list[int] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    used: int = 0
    room: int = 0
    free: int = 0
    lacking: dict[str, bool] = field(default_factory=dict)
    left: Left | None = None
    writer: int = 0


def inspect(folder: Path) -> Condition:
    """Look at the instance in `folder`.

    Raises:
        InstanceError: it is none, or cannot be used.
    """
    try:
        if not (folder / "data.mdb").exists():
            raise InstanceError(f"{folder} is not an instance.")
        # Reading past the end would kill. What this adds to the file means nothing.
        if not complete(folder / "data.mdb"):
            raise InstanceError(f"{folder / 'data.mdb'} has been cut short.")
        looked = look(folder / "data.mdb")
        if looked.format is not None and (looked.format < FORMAT or looked.upgrading):
            raise InstanceError(f"{folder} has an older format: fusefs check upgrades it.")
        check_lock_file(folder)
        return _inspect(folder)
    except OSError as error:
        raise InstanceError(f"Cannot look at {folder}: {error.strerror or error}.") from error
    except (lmdb.Error, ValueError) as error:
        raise InstanceError(f"{folder} is not a sound instance: {error}.") from error


def _inspect(folder: Path) -> Condition:
    found = Condition()
    _look_at_processes(folder / "run", found)
    _look_at_disk(folder, found)
    with _writer_lock(folder / "writer.lock") as locked:
        with _reading(folder) as (environment, txn):
            info = environment.info()
            readers = _reader_pids(environment)
            found.room = info["map_size"]
            found.used = (info["last_pgno"] + 1) * environment.stat()["psize"]
            found.sessions = [
                key[len(keys.SESSIONS) :].decode()
                for key, _ in txn.range(keys.SESSIONS, after_prefix(keys.SESSIONS))
            ]
            if locked:
                found.left = _what_is_left(folder, txn, info["last_txnid"], found.alive)
        # After closing: whoever closes any descriptor of this file loses all locks on it.
        found.dead_readers = _dead(folder / "lock.mdb", readers)
    if not locked:
        found.writer = _flock_holder(folder / "writer.lock")
    return found


@contextmanager
def _reading(folder: Path) -> Iterator[tuple[lmdb.Environment, Reader]]:
    environment = lmdb.open(
        os.fspath(folder), map_size=0, readonly=True, max_readers=1024, readahead=False
    )
    soundness = Soundness(folder / "data.mdb")
    try:
        with environment.begin(buffers=True) as transaction:
            soundness.check_free(transaction)
            txn = SealedReader(
                transaction, lambda error: Damaged(f"the store ({error})"), soundness
            )
            check_format(folder, txn)
            yield environment, txn
    finally:
        soundness.close()
        environment.close()


def _look_at_processes(run: Path, found: Condition) -> None:
    if not run.is_dir():
        return
    directory = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found.dead_files += bell.deserted(directory)
    finally:
        os.close(directory)
    for process, lives in life.processes(run):
        if lives:
            found.alive.add(process)
        elif (run / life.name(process)).exists():
            found.dead_files.append(life.name(process))


def _look_at_disk(folder: Path, found: Condition) -> None:
    disk = os.statvfs(folder)
    found.free = disk.f_bavail * disk.f_frsize
    for name, size in RESERVES.items():
        try:
            status = os.stat(folder / name)
        except FileNotFoundError:
            found.lacking[name] = False
            continue
        if status.st_size < size or status.st_blocks * 512 < size:
            # A copy of an instance may have holes here.
            found.lacking[name] = status.st_size >= size


@contextmanager
def _writer_lock(path: Path) -> Iterator[bool]:
    """Hold the writer lock, so that nobody changes anything; tell whether it could be had."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True  # nobody has written yet
        return
    try:
        yield _wait_for_lock(fd)
    finally:
        os.close(fd)


def _wait_for_lock(fd: int) -> bool:
    give_up = time.monotonic() + PATIENCE
    while not try_lock(fd):
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE)
    return True


def _flock_holder(path: Path) -> int:
    """Return the process that holds the lock on a file, 0 if it cannot be told (proc_locks(5))."""
    inode = str(path.stat().st_ino)
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].split(":")[2] == inode:
            return max(int(fields[4]), 0)
    return 0


def _reader_pids(environment: lmdb.Environment) -> set[int]:
    """Return the processes in the table of readers: lines of process, thread, transaction."""
    lines = environment.readers().splitlines()[1:]
    return {int(line.split()[0]) for line in lines if line.strip()} - {os.getpid()}


def _dead(lock_file: Path, pids: set[int]) -> list[int]:
    """Return those of `pids` that died: each reader holds a lock on the byte of its number."""
    fd = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    try:
        return [pid for pid in sorted(pids) if _is_unlocked(fd, pid)]
    finally:
        os.close(fd)


def _is_unlocked(fd: int, at: int) -> bool:
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, wanted)
    kind: int = _FLOCK.unpack(answer)[0]
    return kind == fcntl.F_UNLCK


def _what_is_left(folder: Path, txn: Reader, last: int, alive: set[int]) -> Left:
    left = Left(changes=_unreplayed(folder / "redo.log", last + 1))
    if not alive:
        left.drafts = _count(txn, keys.DRAFTS)
    scratches = ScratchFiles(folder / "scratch")
    for _, record in scratch_records(txn):
        size = _size_if_unused(scratches.path(record.serial))
        if size is not None:
            left.scratches += 1
            left.scratch_bytes += size
    left.strays = len(stray_scratches(txn, scratches))
    if not alive:
        left.orphans = len({node for node, _ in orphans.dead_pins(txn, alive)})
    return left


def grace(alive: set[int], nanoseconds: int) -> int:
    """Return how long something that may be in use is left alone: only if anybody lives."""
    return nanoseconds if alive else 0


def _unreplayed(path: Path, batch: int) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return sum(1 for _ in redo.intact(fd, batch))
    finally:
        os.close(fd)


def _count(txn: Reader, prefix: bytes) -> int:
    return sum(1 for _ in txn.range(prefix, after_prefix(prefix)))


def _size_if_unused(path: Path) -> int | None:
    """Return the size of a scratch file that nobody writes."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(fd).st_size if try_lock(fd) else None
    finally:
        os.close(fd)
