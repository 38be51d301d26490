"""Folders that hold a backup: where one may be, and whose backup it is."""

from __future__ import annotations

import json
import time
from pathlib import Path

from fusefs.contract.paths import render
from fusefs.store import journal, keys
from fusefs.store.instance import Instance, InstanceError, in_use
from fusefs.store.kv_copy import peek
from fusefs.store.lmdb_file import complete

FOLDERS = ("objects", "scratch", "trash", "run")
"""What an instance has, beside its ordered store."""
MARKER = "backup.json"
"""Tells a backup from an instance that is at work, which nothing may overwrite."""


def write_marker(instance: Instance, folder: Path, head: str) -> None:
    """Say in `folder` that it is a backup, of which instance, and from when."""
    with instance.kv.read() as txn:
        identity = txn.get(keys.META_INSTANCE) or b""
    taken = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    marker = {"instance": identity.hex(), "taken": taken, "journal": head}
    file = folder / MARKER
    file.touch(0o600)
    file.write_text(json.dumps(marker, indent=2) + "\n")


def is_backup(folder: Path) -> bool:
    """Tell whether `folder` holds a backup."""
    return (folder / MARKER).is_file() and (folder / "data.mdb").is_file()


def check_place(instance: Instance, target: Path) -> None:
    """Check that `target` (without symbolic links) is apart from the instance.

    Raises:
        InstanceError: it is not, or a session could read it.
    """
    folder = instance.folder.resolve()
    if target.exists() and not target.is_dir():
        raise InstanceError(f"{target} is not a folder: give another one.")
    if target == folder:
        raise InstanceError(f"{target} is the instance itself: give another folder.")
    if target.is_relative_to(folder):
        raise InstanceError(f"{target} lies in the instance {folder}: give a folder outside it.")
    if folder.is_relative_to(target):
        raise InstanceError(f"{target} contains the instance {folder}: give a folder beside it.")
    for path, spec in instance.binds.all().items():
        if target.is_relative_to(Path(spec.source).resolve()):
            raise InstanceError(
                f"{target} lies in {spec.source}, which is bound at {render(path)}: sessions "
                "could read the backup. Give a folder elsewhere."
            )


def check_earlier(instance: Instance, target: Path) -> None:
    """Check that `target` may be replaced by a new backup: nothing is lost by it.

    Raises:
        InstanceError: it holds something else, or changes that the instance does not have.
        OSError: it cannot be read.
    """
    if not target.exists():
        return
    if not is_backup(target):
        if (target / "data.mdb").exists():
            raise InstanceError(f"{target} is an instance, not a backup: give another folder.")
        if any(target.iterdir()):
            raise InstanceError(f"{target} is neither empty nor a backup: give another folder.")
        return
    if in_use(target):
        raise InstanceError(
            f"{target} is in use (`fusefs --instance {target} mounts` lists what is mounted): "
            "wait, or give another folder."
        )
    if not complete(target / "data.mdb"):
        raise InstanceError(f"{target} is damaged: move it away, or give another folder.")
    if (target / "redo.log").exists():
        Instance.open(target).close()  # what somebody did in it and did not end is looked at, too
    with peek(target) as earlier:
        identity = earlier.get(keys.META_INSTANCE)
        seq, chain = journal.head(earlier)
    with instance.kv.read() as txn:
        if identity != txn.get(keys.META_INSTANCE):
            raise InstanceError(
                f"{target} is a backup of another instance: give another folder."
            )
        if chain != journal.hash_at(txn, seq):
            raise InstanceError(
                f"{target} holds changes that the instance does not have: it was used itself, or "
                "the instance was restored from an older backup. Give another folder."
            )
