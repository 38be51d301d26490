"""Listing, restoring and emptying the trash of an instance."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path as TreePath
from fusefs.store import journal, keys, nodes, orphans, trash
from fusefs.store.files import current
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Writer
from fusefs.store.records import journal_hash
from fusefs.store.retention import is_retained
from fusefs.store.trash import TrashRecord

MAX_AGE = 30 * 24 * 3600
"""Seconds after which removed things are dropped for good (contract section 6)."""
MAX_BYTES = 10 << 30
"""Bytes that the trash may hold; past that the oldest things go first."""


class TrashCan:
    """The trash of an instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._folder = instance.folder / "trash"

    def entries(self) -> list[TrashRecord]:
        """Return what can be restored, oldest first; a folder removed file by file is one."""
        with self._instance.kv.read() as txn:
            found = trash.records(txn)
            return [entry for entry in found if not trash.comes_with_parent(txn, entry)]

    def get(self, trash_id: int) -> TrashRecord:
        """Return one entry.

        Raises:
            KeyError: there is none with this id.
        """
        with self._instance.kv.read() as txn:
            entry = trash.get(txn, trash_id)
        if entry is None:
            raise KeyError(trash_id)
        return entry

    def old_place(self, entry: TrashRecord) -> TreePath:
        """Return where `entry` belongs now: in its old directory, wherever that was moved."""
        with self._instance.kv.read() as txn:
            directory = nodes.path_of(txn, entry.parent) if entry.parent else None
        if directory is None:
            return tuple(entry.path[1:].split(b"/"))
        return (*directory, entry.name)

    def restore(
        self, entry: TrashRecord, parent: int, name: bytes, path: TreePath, actor: str
    ) -> None:
        """Put a node back into the directory `parent`.

        Raises:
            FileExistsError: the name is taken.
            FileNotFoundError: the node was dropped meanwhile.
        """
        now = time.time_ns()
        with self._instance.kv.write(freeing=True) as txn:
            record = trash.put_back(txn, entry, parent, name, now)
            nodes.touch_directory(txn, parent, now)
            journal.append(
                txn, time=now, process=self._instance.process, actor=actor, op=Op.RESTORE,
                node=record.id, new_parent=parent, new_name=name, path=b"/" + b"/".join(path),
                after=journal_hash(record), detail=journal.describe({"trash": entry.id}),
            )  # fmt: skip
            self._instance.journalled()

    # What host directories put here lies in a folder of its own, one for each entry.

    def add_external(self, *, actor: str, path: TreePath, kind: Kind, size: int) -> TrashRecord:
        """Record something removed from a host directory and make the folder for it."""
        with self._instance.kv.write(freeing=True) as txn:
            entry = trash.record_external(
                txn, now=time.time_ns(), actor=actor, path=path, kind=kind, size=size
            )
        self.payload_folder(entry.id).mkdir(mode=0o700)
        return entry

    def payload_folder(self, trash_id: int) -> Path:
        """Return the folder that holds what a host directory's entry was."""
        return self._folder / f"{trash_id:016x}"

    def forget_external(self, entry: TrashRecord) -> None:
        """Remove the record and folder of an entry whose payload never came."""
        with self._instance.kv.write(freeing=True) as txn:
            trash.forget(txn, entry)
        self.remove_payload(entry.id)

    def restored_external(self, entry: TrashRecord, path: TreePath, actor: str) -> None:
        """Remove the record and folder of an entry whose payload was moved back to `path`."""
        self._end_external(entry, Op.RESTORE, b"/" + b"/".join(path), actor)

    def _end_external(self, entry: TrashRecord, op: Op, path: bytes, actor: str) -> None:
        with self._instance.kv.write(freeing=True) as txn:
            trash.forget(txn, entry)
            self._journal(txn, op, entry, path, actor)
        self.remove_payload(entry.id)

    def _journal(
        self, txn: Writer, op: Op, entry: TrashRecord, path: bytes, actor: str, before: bytes = b""
    ) -> None:
        journal.append(
            txn, time=time.time_ns(), process=self._instance.process, actor=actor, op=op,
            node=entry.node, replaced=entry.node, path=path, before=before,
            detail=journal.describe({"trash": entry.id}),
        )  # fmt: skip
        self._instance.journalled()

    def remove_payload(self, trash_id: int) -> None:
        """Remove a payload folder with whatever it holds; `collect` does, if a backup reads it."""
        if is_retained(self._instance.folder):
            return
        shutil.rmtree(self.payload_folder(trash_id), ignore_errors=True)

    # Emptying.

    def purge(self, entry: TrashRecord, actor: str = journal.UPKEEP) -> None:
        """Drop an entry for good, with all that was removed from it one by one."""
        pending = [entry]
        while pending:
            at = pending.pop()
            if at.node == 0:
                self._end_external(at, Op.PURGE, at.path, actor)
            else:
                pending.extend(self._purge_node(at, actor))

    def _purge_node(self, entry: TrashRecord, actor: str) -> list[TrashRecord]:
        """Drop one node's entry; return those of what was removed from it."""
        with self._instance.kv.write(freeing=True) as txn:
            inner = trash.removed_from(txn, entry.node)
            trash.forget(txn, entry)
            txn.delete(keys.REMOVAL_RUNS + keys.number(entry.node))
            before = b""
            with contextlib.suppress(FileNotFoundError):
                located = nodes.locate(txn, entry.node)
                before = journal_hash(located.record)
                orphans.orphan(txn, located, time.time_ns())
            self._journal(txn, Op.PURGE, entry, entry.path, actor, before)
        return inner

    def purge_older_than(self, seconds: float, actor: str = journal.UPKEEP) -> int:
        """Drop everything removed more than `seconds` ago; return how many entries."""
        cutoff = time.time_ns() - int(seconds * 10**9)
        old = [entry for entry in self.entries() if entry.time <= cutoff]
        for entry in old:
            self.purge(entry, actor)
        return len(old)

    def enforce_bounds(self, *, max_age: float = MAX_AGE, max_bytes: int = MAX_BYTES) -> int:
        """Drop what is too old or too much, the oldest first; return how many entries."""
        purged = self.purge_older_than(max_age)
        total = 0
        for entry in reversed(self.entries()):
            total += self.size(entry)
            if total > max_bytes:
                self.purge(entry)
                purged += 1
        return purged

    def size(self, entry: TrashRecord) -> int:
        """Return the bytes of the files that an entry would bring back."""
        total = 0
        pending = [entry]
        with self._instance.kv.read() as txn:
            while pending:
                at = pending.pop()
                if at.node == 0:
                    total += _folder_bytes(self.payload_folder(at.id))
                elif at.kind != Kind.DIR:
                    total += at.size
                else:
                    for inner in nodes.subtree(txn, at.node):
                        total += current(self._instance, txn, inner.record).size
                    pending.extend(trash.removed_from(txn, at.node))
        return total


def _folder_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total
