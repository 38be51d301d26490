"""Making an instance from a backup."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from fusefs.store.check import CheckReport
from fusefs.store.content import ContentStore
from fusefs.store.instance import Instance, InstanceError, in_use
from fusefs.tree.backup_folder import FOLDERS, is_backup
from fusefs.tree.host_copy import copy_entry
from fusefs.tree.instance_backup import BackupProgress, Progress, copy_whole, descriptor
from fusefs.tree.instance_care import check
from fusefs.tree.repository_backup import copy_clone
from fusefs.tree.staged_folder import locked, staged

_STORE = ("data.mdb", "redo.log")


class DamagedBackup(InstanceError):
    """A backup is not whole, and nothing was restored.

    Attributes:
        problems: what is wrong with it, one line each.
    """

    def __init__(self, folder: Path, problems: list[str]) -> None:
        super().__init__(f"{folder} is damaged; nothing was restored.")
        self.problems = problems


@dataclass(slots=True)
class RestoreReport:
    """What a restore did. Sizes in bytes."""

    folder: str
    files: int
    directories: int
    bytes: int
    journal_records: int
    seconds: float


def restore(source: Path, target: Path, *, progress: Progress = lambda step: None) -> RestoreReport:
    """Make an instance at `target` from the backup in `source`, which stays as it is.

    What was copied is checked before it becomes the instance.

    Raises:
        DamagedBackup: the check found something.
        InstanceError: `source` is no backup, or `target` is neither missing nor empty.
        OSError: ENOSPC and the like; `target` is as it was.
    """
    began = time.monotonic()
    source, target = source.expanduser().resolve(), target.expanduser().resolve()
    _check_source(source)
    _check_target(source, target)
    with locked(source, shared=True), staged(target) as stage:
        _copy(source, stage.path, progress)
        found = _check_copy(source, stage.path, progress)
        if found.problems:
            raise DamagedBackup(source, found.problems)
        stage.publish()
    return RestoreReport(
        str(target), found.files, found.directories, found.bytes, found.journal_records,
        time.monotonic() - began,
    )  # fmt: skip


def _check_source(source: Path) -> None:
    if not is_backup(source):
        raise InstanceError(
            f"{source} is not a backup: give a folder that `fusefs backup` made. "
            "(What was removed from the tree comes back with `fusefs trash restore`.)"
        )
    if in_use(source):
        raise InstanceError(
            f"{source} is in use (`fusefs --instance {source} mounts` lists what is mounted): "
            "try again when it is not."
        )


def _check_target(source: Path, target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InstanceError(
            f"{target} is there already, and a restore overwrites nothing. Unmount what is "
            f"mounted, move it away (mv {target} {target}.old), then restore."
        )
    if target.is_relative_to(source) or source.is_relative_to(target):
        raise InstanceError(f"{target} and the backup {source} lie in one another.")


def _check_copy(source: Path, copied: Path, progress: Progress) -> CheckReport:
    try:
        with Instance.open(copied) as copy:
            return check(copy, progress=lambda step: progress(BackupProgress(step, 0, 0)))
    except InstanceError as error:
        raise InstanceError(str(error).replace(str(copied), str(source))) from error


def _copy(source: Path, target: Path, progress: Progress) -> None:
    for name in FOLDERS:
        (target / name).mkdir(0o700)
    stores = [source / name for name in _STORE if (source / name).exists()]
    scratches = sorted((source / "scratch").iterdir())
    objects = list(ContentStore(source / "objects").all_large())
    files = [*stores, *scratches, *(file for _, file in objects)]
    total = sum(file.stat().st_size for file in files)
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress(BackupProgress("copying", done, max(total, done)))

    for file in files:
        to = target / file.relative_to(source)
        to.parent.mkdir(mode=0o700, exist_ok=True)
        copy_whole(file, to, count)
    for clone in (source / "repositories").glob("*.git"):
        to = target / "repositories" / clone.name
        copy_clone(clone, to, to, lambda a, b: copy_whole(a, b, count), os.link)
    progress(BackupProgress("copying trash", 0, 0))
    with descriptor(source / "trash") as from_fd, descriptor(target / "trash") as to_fd:
        for entry in os.listdir(os.fsencode(source / "trash")):
            copy_entry(from_fd, entry, to_fd, entry)
