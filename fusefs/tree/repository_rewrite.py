"""Making a working copy show other objects at some paths: putting back, taking in."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.store import nodes, orphans
from fusefs.store.kv import Writer
from fusefs.store.nodes import Located
from fusefs.store.records import HAS_XATTRS, Record, State
from fusefs.tree.repository_nodes import RepositoryNodes
from fusefs.tree.repository_objects import TreeEntry

_BEING_WRITTEN = (State.DRAFT, State.SCRATCH)


class Rewrite:
    """Changes nodes of one working copy in one transaction. Nodes that stay keep their ids."""

    def __init__(self, tree: RepositoryNodes, txn: Writer, top: int, now: int) -> None:
        self._tree = tree
        self._txn = txn
        self._top = top
        self._now = now

    def apply(self, edits: Mapping[Path, TreeEntry | None], *, prune: bool) -> None:
        """Have each path show its entry, or nothing.

        Args:
            edits: paths below the top, and what they show from now on.
            prune: drop directories that are left empty.

        Raises:
            OSError: EBUSY where a file is open and being written; its path is the file name.
        """
        # What goes, goes first: a directory may stand where a file is to be.
        for path, entry in edits.items():
            if entry is None:
                self._remove(path, prune=prune)
        for path, entry in edits.items():
            if entry is not None:
                self._set(path, entry)

    def _remove(self, path: Path, *, prune: bool) -> None:
        way = [self._tree.unfold(self._txn, self._top)]
        for name in path[:-1]:
            below = nodes.child(self._txn, way[-1].record.id, name)
            if below is None or below.kind != Kind.DIR:
                return
            way.append(self._tree.unfold(self._txn, below.id))
        found = nodes.child(self._txn, way[-1].record.id, path[-1])
        if found is None or found.kind == Kind.DIR:
            return
        self._orphan(Located(way[-1].record.id, path[-1], found), path)
        while prune and len(way) > 1 and nodes.is_empty(self._txn, way[-1].record.id):
            orphans.orphan(self._txn, way.pop(), self._now)

    def _set(self, path: Path, entry: TreeEntry) -> None:
        directory = self._directory(path[:-1])
        name = path[-1]
        record = self._tree.record_of(directory, name, entry)
        found = nodes.child(self._txn, directory.record.id, name)
        if found is not None and found.kind == record.kind == Kind.FILE:
            located = Located(directory.record.id, name, found)
            self._check_idle(located, path)
            state = record.state | found.state & HAS_XATTRS
            kept = record._replace(id=found.id, uid=found.uid, gid=found.gid, state=state)
            nodes.update(self._txn, located, self._stamped(kept))
            return
        if found is not None:
            self._orphan(Located(directory.record.id, name, found), path)
        nodes.place(self._txn, directory.record.id, name, self._stamped(self._with_free_id(record)))

    def _directory(self, path: Path) -> Located:
        """Return a directory, made where there is none."""
        at = self._tree.unfold(self._txn, self._top)
        for depth, name in enumerate(path, start=1):
            found = nodes.child(self._txn, at.record.id, name)
            if found is not None and found.kind != Kind.DIR:
                self._orphan(Located(at.record.id, name, found), path[:depth])
                found = None
            if found is None:
                made = Record(
                    Kind.DIR, State.CLEAN, 0o755, at.record.uid, at.record.gid, 0, self._now,
                    self._now, self._now, self._now, nodes.new_id(self._txn), b"",
                )  # fmt: skip
                nodes.place(self._txn, at.record.id, name, made)
                found = made
            at = self._tree.unfold(self._txn, found.id)
        return at

    def _with_free_id(self, record: Record) -> Record:
        """Return the record with an id of its own: a node that was moved away keeps the one made
        of its old place."""
        try:
            nodes.locate(self._txn, record.id)
        except FileNotFoundError:
            return record
        return record._replace(id=nodes.new_id(self._txn))

    def _stamped(self, record: Record) -> Record:
        now = self._now
        return record._replace(atime=now, mtime=now, ctime=now, linked=now)

    def _orphan(self, located: Located, path: Path) -> None:
        self._check_idle(located, path)
        orphans.orphan(self._txn, located, self._now)

    def _check_idle(self, located: Located, path: Path) -> None:
        record = located.record
        if record.kind == Kind.FILE and record.content_state in _BEING_WRITTEN:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), os.fsdecode(b"/".join(path)))
