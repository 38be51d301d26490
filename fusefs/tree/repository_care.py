"""Verifying working copies against their clones, and tidying up what ended ones have left."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import render
from fusefs.forge.ref_locks import drop_dead_locks
from fusefs.store import keys, nodes
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader
from fusefs.store.mounts import MountSpec, mounts_in
from fusefs.store.records import Record, State
from fusefs.store.retention import is_retained
from fusefs.store.working_copies import WorkingCopy, all_working_copies
from fusefs.tree.repository_errors import UnusableBranch
from fusefs.tree.repository_merge import MERGE_PREFIX
from fusefs.tree.repository_objects import RepositoryObjects

_STRAY_SECONDS = 24 * 3600
"""A clone that is not mounted yet, or a merge's folder, is left alone for so long."""


def check_repositories(instance: Instance) -> Iterator[str]:
    """Yield what is wrong with clones and working copies, a line each."""
    with instance.kv.read() as txn:
        mounts = {spec.id: (path, spec) for path, spec in mounts_in(txn).items()}
        checks: dict[int, _CloneCheck | None] = {}
        for mount, (path, spec) in mounts.items():
            checks[mount] = _opened(instance, spec)
            if checks[mount] is None:
                yield f"{render(path)}: the clone of {spec.url} is missing or damaged"
        tops = set()
        for mount, session, copy in all_working_copies(txn):
            tops.add(copy.top)
            name = f"working copy {copy.top} of {session}"
            if mount not in mounts:
                yield f"{name}: its repository is not mounted"
                continue
            clone = checks[mount]
            if clone is not None:
                yield from (f"{name}: {what}" for what in _check_copy(txn, mount, copy, clone))
        for _, record in nodes.children(txn, keys.WORKING_ID):
            if record.id not in tops:
                yield f"working copy {record.id}: it is no session's"


def _check_copy(
    txn: Reader, mount: int, copy: WorkingCopy, clone: _CloneCheck
) -> Iterator[str]:
    top = txn.get(keys.working_top(copy.top))
    if top is None or keys.to_number(top) != mount:
        yield "its top is not known as one"
    try:
        found = nodes.locate(txn, copy.top)
    except FileNotFoundError:
        yield "its top is missing"
        return
    if found.parent != keys.WORKING_ID:
        yield "its top stands elsewhere"
    for commit in copy.parents:
        try:
            tree = clone.objects.tree_of(commit)
        except OSError:
            yield f"the commit {commit.hex()} is not in the clone"
            return
        yield from clone.missing_in(tree, "")
    yield from clone.check_record(found.record, "")
    for located in nodes.subtree(txn, copy.top):
        yield from clone.check_record(located.record, os.fsdecode(located.name))


class _CloneCheck:
    """One clone; each tree is looked into once."""

    def __init__(self, objects: RepositoryObjects) -> None:
        self.objects = objects
        self._seen: set[bytes] = set()

    def check_record(self, record: Record, name: str) -> Iterator[str]:
        """Yield what is missing of a node that is in the repository."""
        if record.content_state != State.OBJECT:
            return
        if record.kind == Kind.DIR:
            yield from self.missing_in(record.tail, name)
            return
        try:
            size = self.objects.size(record.tail)
        except OSError as error:
            yield f"{name}: {error.strerror}"
            return
        if size != record.size:
            yield f"{name}: it has {size} bytes, not {record.size}"

    def missing_in(self, tree: bytes, name: str) -> Iterator[str]:
        """Yield what is missing of a tree with all below it."""
        pending = [(tree, name)]
        while pending:
            oid, path = pending.pop()
            if oid in self._seen:
                continue
            self._seen.add(oid)
            try:
                entries = self.objects.entries(oid)
            except OSError as error:
                yield f"{path or '/'}: {error.strerror}"
                continue
            for below, entry in entries.items():
                where = os.path.join(path, os.fsdecode(below))
                if entry.is_tree:
                    pending.append((entry.oid, where))
                elif not self.objects.has(entry):
                    yield f"{where}: object {entry.oid.hex()} is not in the repository's clone"


def _opened(instance: Instance, spec: MountSpec) -> _CloneCheck | None:
    """Return a clone, None where it cannot be opened or says no more what it keeps."""
    try:
        objects = RepositoryObjects(instance.mounts.folder(spec))
        any(objects.pins())
        with contextlib.suppress(FileNotFoundError, UnusableBranch):  # so it is at the remote
            objects.branch(spec.branch)
    except OSError:
        return None
    return _CloneCheck(objects)


def collect_repositories(instance: Instance) -> int:
    """Drop clones that are not mounted, and what they keep for working copies that ended.

    Returns:
        How many clones were removed.
    """
    top = instance.folder / "repositories"
    if not top.is_dir() or is_retained(instance.folder):
        return 0
    with instance.kv.read() as txn:
        mounts = list(mounts_in(txn).values())
        live = {copy.top for _, _, copy in all_working_copies(txn)}
    for spec in mounts:
        clone = _opened(instance, spec)
        if clone is not None:
            for working_copy, commit in clone.objects.pins():
                if working_copy not in live:
                    clone.objects.unpin(working_copy, commit)
            drop_dead_locks(Path(clone.objects.folder))
            for left in Path(clone.objects.folder).glob(f"{MERGE_PREFIX}*"):
                if _is_old(left):
                    shutil.rmtree(left, ignore_errors=True)
    known = {os.path.basename(instance.mounts.folder(spec)) for spec in mounts}
    removed = 0
    for folder in top.glob("*.git*"):
        if folder.name.partition(".git")[0] + ".git" in known or not _is_old(folder):
            continue
        if folder.is_dir():
            shutil.rmtree(folder)
            removed += folder.name.endswith(".git")
        else:
            folder.unlink(missing_ok=True)
    return removed


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _STRAY_SECONDS
    except FileNotFoundError:
        return False
