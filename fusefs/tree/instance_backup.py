"""Backups of an instance while it is used.

A backup is a plain instance folder. It is made from one snapshot of the ordered store, begun
while nobody could write, so that everything acknowledged before is in it. Contents never
change, so they are copied afterwards at leisure, kept from the collector meanwhile
(`fusefs.store.retention`), and taken over from an earlier backup by hard links. Files being
written (scratch files) are held open from the moment of the snapshot on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import render
from fusefs.store import journal, keys, nodes, trash
from fusefs.store.content import INLINE_MAX, ContentStore
from fusefs.store.definitions import binds_in
from fusefs.store.file_copy import clone, copy_file
from fusefs.store.instance import Instance, InstanceError
from fusefs.store.kv import Reader, after_prefix
from fusefs.store.kv_copy import FrozenStore, drop_keys
from fusefs.store.mounts import mounts_in
from fusefs.store.records import Record, State, unpack
from fusefs.store.retention import retained
from fusefs.store.scratch import ScratchFiles, scratch_record, scratch_records
from fusefs.store.trash_can import TrashCan
from fusefs.tree.backup_folder import FOLDERS, check_earlier, check_place, write_marker
from fusefs.tree.host_copy import copy_entry
from fusefs.tree.repository_backup import copy_clone
from fusefs.tree.staged_folder import staged

_TRIES = 5
_TRY_SECONDS = 5.0
_TICK = 20 * 10**6
"""Nanoseconds within which two changes may leave the same time on a file (Linux before 6.13)."""
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


class BackupProgress(NamedTuple):
    """How far a backup or restore is, in bytes of the step at hand."""

    step: str
    done: int
    total: int


Progress = Callable[[BackupProgress], None]


@dataclass(slots=True)
class BackupReport:
    """What a backup did. Sizes in bytes.

    Attributes:
        folder: where it is.
        files, directories: how many are in it, those in the trash included.
        bytes: of all files in it.
        bytes_copied: what had to be copied.
        objects_copied, objects_kept, objects_removed: large contents: new, taken over from the
            earlier backup, and gone since that.
        journal: number and hash of the newest change in it.
        seconds: how long it took.
        bound: host folders that are bound into the tree, and are not in the backup.
        being_written: files that were written while they were copied: they may hold parts of
            both states.
        missing: files whose content the instance has lost.
    """

    folder: str
    files: int = 0
    directories: int = 0
    bytes: int = 0
    bytes_copied: int = 0
    objects_copied: int = 0
    objects_kept: int = 0
    objects_removed: int = 0
    journal: str = ""
    seconds: float = 0.0
    bound: list[tuple[str, str]] = field(default_factory=list)
    being_written: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def backup(
    instance: Instance, folder: Path, *, progress: Progress = lambda step: None
) -> BackupReport:
    """Make a backup of `instance` in `folder`, or bring the one that is there up to date.

    Raises:
        InstanceError: `folder` cannot be a backup of this instance.
        OSError: ENOSPC and the like; an earlier backup is as it was.
    """
    began = time.monotonic()
    target = folder.expanduser().resolve()
    check_place(instance, target)
    with staged(target) as stage, retained(instance.folder):
        check_earlier(instance, target)
        copying = _Copying(instance, target, stage.path, progress)
        copying.run()
        write_marker(instance, stage.path, copying.report.journal)
        stage.publish()
    copying.report.seconds = time.monotonic() - began
    return copying.report


class _OpenScratch(NamedTuple):
    """A scratch file as of a snapshot; `is_clone` says that `fd` is one, which never changes."""

    node: int
    serial: int
    fd: int
    status: os.stat_result
    is_clone: bool


class _Copying:
    """One backup on its way."""

    def __init__(self, instance: Instance, target: Path, stage: Path, progress: Progress) -> None:
        self._instance = instance
        self._earlier = ContentStore(target / "objects")
        self._stage = stage
        self._objects = ContentStore(stage / "objects")
        self._scratches = ScratchFiles(stage / "scratch")
        self._progress = progress
        self._large: set[bytes] = set()
        self._external: list[int] = []
        self._clones: list[Path] = []
        self._earlier_clones = target / "repositories"
        self.report = BackupReport(str(target))

    def run(self) -> None:
        """Make everything that belongs to the backup in the stage."""
        for name in FOLDERS:
            (self._stage / name).mkdir(0o700)
        with self._frozen() as frozen:
            self._survey(frozen.reader)
            with self._step("store", self._instance.sizes()[0]) as count:
                frozen.copy_to(self._stage, without=keys.PINS, progress=count)
        self._copy_large()
        self._copy_trash()
        self._copy_clones()

    @contextlib.contextmanager
    def _step(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            self.report.bytes_copied += size
            self._progress(BackupProgress(name, done, max(total, done)))

        count(0)
        yield count

    # The snapshot, and files that are being written.

    @contextlib.contextmanager
    def _frozen(self) -> Iterator[FrozenStore]:
        """Take a snapshot, and copy the scratch files that belong to it.

        One that is written while it is copied may not fit the snapshot: then both are taken
        again, a few times.
        """
        give_up = time.monotonic() + _TRY_SECONDS
        for left in reversed(range(_TRIES)):
            with contextlib.ExitStack() as held:
                scratches: list[_OpenScratch] = []
                held.callback(_close_all, scratches)
                frozen = held.enter_context(self._instance.freeze(partial(self._hold, scratches)))
                changed = self._copy_scratches(scratches)
                if changed and left and time.monotonic() < give_up:
                    time.sleep(_TICK / 10**9)
                    continue
                self.report.being_written = [_path(frozen.reader, node) for node in changed]
                yield frozen
                return

    def _hold(self, scratches: list[_OpenScratch], txn: Reader) -> None:
        """Open every scratch file of a snapshot; where the file system can, an exact clone."""
        can_clone = True
        for node, found in scratch_records(txn):
            path = self._instance.scratches.path(found.serial)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # `fusefs check` says so, in the backup as well
            status = os.fstat(fd)
            copy = _clone_beside(path, fd) if can_clone else None
            can_clone = copy is not None
            if copy is not None:
                os.close(fd)
                fd = copy
            scratches.append(_OpenScratch(node, found.serial, fd, status, copy is not None))

    def _copy_scratches(self, scratches: list[_OpenScratch]) -> list[int]:
        """Copy scratch files; return the nodes of those that changed since the snapshot."""
        taken = time.time_ns()
        for old in self._scratches.files():
            old.unlink()
        changed = []
        with self._step("files being written", sum(s.status.st_size for s in scratches)) as count:
            for scratch in scratches:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                target = os.open(self._scratches.path(scratch.serial), flags, 0o600)
                try:
                    copy_file(scratch.fd, target, progress=count)
                    now = scratch.status if scratch.is_clone else os.fstat(scratch.fd)
                    os.utime(target, ns=(now.st_atime_ns, now.st_mtime_ns))
                finally:
                    os.close(target)
                if not scratch.is_clone and _was_written(scratch.status, now, taken):
                    changed.append(scratch.node)
        return changed

    # What the snapshot refers to.

    def _survey(self, txn: Reader) -> None:
        """Find out what a snapshot refers to."""
        report = self.report
        seq, chain = journal.head(txn)
        report.journal = f"{seq}:{chain.hex()}"
        report.bound = [(render(path), spec.source) for path, spec in binds_in(txn).items()]
        self._clones = [Path(self._instance.mounts.folder(m)) for m in mounts_in(txn).values()]
        self._external = [entry.id for entry in trash.records(txn) if not entry.node]
        for _, raw in txn.range(keys.ENTRIES, after_prefix(keys.ENTRIES)):
            try:
                record = unpack(raw)
            except ValueError:
                raise InstanceError(
                    f"{self._instance.folder} is damaged; `fusefs check` says where. "
                    "No backup was made."
                ) from None
            report.directories += record.kind == Kind.DIR
            if record.kind == Kind.FILE:
                report.files += 1
                self._survey_file(txn, record)

    def _survey_file(self, txn: Reader, record: Record) -> None:
        is_clean = record.content_state == State.CLEAN
        is_scratch = record.content_state == State.SCRATCH
        self.report.bytes += self._scratch_size(txn, record) if is_scratch else record.size
        if is_clean and record.size <= INLINE_MAX:
            return
        sha256 = record.tail
        if self._instance.content.path(sha256).exists() or self._earlier.path(sha256).exists():
            self._large.add(sha256)
        elif is_clean:
            self.report.missing.append(_path(txn, record.id))

    def _scratch_size(self, txn: Reader, record: Record) -> int:
        found = scratch_record(txn, record.id)
        path = None if found is None else self._scratches.path(found.serial)
        return path.stat().st_size if path is not None and path.exists() else 0

    # What never changes.

    def _copy_large(self) -> None:
        fresh = {}
        for sha256 in sorted(self._large):
            target = self._objects.path(sha256)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            source = self._instance.content.path(sha256)
            size = source.stat().st_size if source.exists() else None
            if self._take_over(self._earlier.path(sha256), target, size):
                self.report.objects_kept += 1
            else:
                fresh[source] = target, size or 0
        self.report.objects_copied = len(fresh)
        self.report.objects_removed = self._count_earlier() - self.report.objects_kept
        with self._step("contents", sum(size for _, size in fresh.values())) as count:
            for source, (target, _) in fresh.items():
                copy_whole(source, target, count)

    def _take_over(self, earlier: Path, target: Path, size: int | None) -> bool:
        """Link to a content of the earlier backup, if it is there and of that size."""
        try:
            if size is not None and earlier.stat().st_size != size:
                return False
            os.link(earlier, target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        return True

    def _count_earlier(self) -> int:
        try:
            return sum(1 for _ in self._earlier.all_large())
        except FileNotFoundError:
            return 0

    def _copy_clones(self) -> None:
        with self._step("repositories", 0) as count:
            for clone in self._clones:
                try:
                    copy_clone(
                        clone, self._stage / "repositories" / clone.name,
                        self._earlier_clones / clone.name,
                        lambda source, target: copy_whole(source, target, count),
                        partial(self._link_or_copy, count),
                    )  # fmt: skip
                except FileNotFoundError:
                    self.report.missing.append(f"the clone {clone}")

    def _link_or_copy(self, count: Callable[[int], None], earlier: Path, target: Path) -> None:
        if not self._take_over(earlier, target, None):
            copy_whole(earlier, target, count)

    def _copy_trash(self) -> None:
        """Copy what was removed from host folders; what was restored meanwhile is left out."""
        gone = []
        can = TrashCan(self._instance)
        for trash_id in self._external:
            source = can.payload_folder(trash_id)
            self._progress(BackupProgress("trash", 0, 0))
            if not self._copy_payload(source, self._stage / "trash" / source.name):
                gone.append(trash_id)
        if gone:
            drop_keys(self._stage, [key for trash_id in gone for key in trash.keys_of(trash_id, 0)])

    def _copy_payload(self, source: Path, target: Path) -> bool:
        """Copy the folder of a trash entry; False if what it held is not there (any more)."""
        target.mkdir(0o700)
        try:
            names = os.listdir(os.fsencode(source))
            with descriptor(source) as from_fd, descriptor(target) as to_fd:
                for name in names:
                    copy_entry(from_fd, name, to_fd, name)
                    os.stat(name, dir_fd=from_fd, follow_symlinks=False)
        except FileNotFoundError:
            names = []
        except PermissionError as error:
            where = error.filename or source
            self.report.missing.append(f"trash: {os.fsdecode(where)}: {error.strerror}")
            return True
        if not names:
            shutil.rmtree(target)
        return bool(names)


def copy_whole(source: Path, target: Path, count: Callable[[int], None]) -> None:
    """Copy a file of an instance, for its owner alone; `count` is told of the bytes."""
    with source.open("rb") as reader:
        status = os.fstat(reader.fileno())
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copy_file(reader.fileno(), fd, progress=count)
            os.fchmod(fd, status.st_mode & 0o600)
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(fd)


def _clone_beside(path: Path, fd: int) -> int | None:
    """Return a nameless clone of an open file, or None where the file system makes none."""
    try:
        copy = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    if clone(fd, copy):
        return copy
    os.close(copy)
    return None


def _was_written(before: os.stat_result, now: os.stat_result, taken: int) -> bool:
    """Tell whether a file may have been written since it was `before`.

    Args:
        taken: when `before` was, or a little later; nanoseconds since the epoch.
    """
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        return True
    if not now.st_mode & 0o222:
        return False  # it became content meanwhile, and is never written again
    return now.st_ctime_ns != before.st_ctime_ns or now.st_ctime_ns > taken - _TICK


def _close_all(scratches: list[_OpenScratch]) -> None:
    for scratch in scratches:
        os.close(scratch.fd)


@contextlib.contextmanager
def descriptor(folder: Path) -> Iterator[int]:
    """Open a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _path(txn: Reader, node_id: int) -> str:
    path = nodes.path_of(txn, node_id)
    return f"node {node_id} (not in the tree)" if path is None else render(path)
