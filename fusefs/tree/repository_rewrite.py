"""Making a working copy show other objects at some paths: putting back, taking in."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Set
from functools import partial

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.store import nodes, orphans
from fusefs.store.journal import Op
from fusefs.store.kv import Writer
from fusefs.store.nodes import Located
from fusefs.store.records import HAS_XATTRS, SUBMODULE, Record, State
from fusefs.tree.repository_nodes import RepositoryNodes, is_folded
from fusefs.tree.repository_objects import TreeEntry

_BEING_WRITTEN = (State.DRAFT, State.SCRATCH)

Note = Callable[[Op, Located, Path, Record], None]
"""Told of each change: what it was, the node and where it is, its path below the top, and its
record before (for a new node, its record)."""


class Rewrite:
    """Changes nodes of one working copy in one transaction. Nodes that stay keep their ids."""

    def __init__(
        self,
        tree: RepositoryNodes,
        txn: Writer,
        top: int,
        now: int,
        note: Note,
        hidden: Callable[[Path], bool],
    ) -> None:
        self._tree = tree
        self._txn = txn
        self._top = top
        self._now = now
        self._note = note
        self._hidden = hidden

    def apply(self, edits: Mapping[Path, TreeEntry | None], *, prune: bool) -> None:
        """Have each path show its entry, or nothing.

        At a hidden path where something stands in the way, nothing is done.

        Args:
            edits: paths below the top, and what they show from now on.
            prune: drop directories that are left empty.

        Raises:
            OSError: its file name is the path of a file that is open and being written (EBUSY),
                or of something else that stands in the way (ENOTEMPTY, ENOTDIR).
        """
        # Somebody may stand in a directory that is left empty only until something comes.
        kept = {
            path[:depth]
            for path, entry in edits.items()
            if entry is not None
            for depth in range(1, len(path))
        }
        # What goes, goes first: a directory may stand where a file is to be.
        for path, entry in edits.items():
            if entry is None:
                self._unless_hidden(partial(self._remove, path, kept if prune else None))
        for path, entry in edits.items():
            if entry is not None:
                self._unless_hidden(partial(self._set, path, entry))

    def _unless_hidden(self, do: Callable[[], None]) -> None:
        """Do something, or nothing if what is in its way is hidden: that is not to be told.

        Raises:
            OSError: something that is not hidden is in the way.
        """
        try:
            do()
        except _InTheWay as found:
            if not self._hidden(found.path):
                raise

    def _remove(self, path: Path, kept: Set[Path] | None) -> None:
        """Take out what is at a path, and the directories that are left empty, but for `kept`
        (None: for all)."""
        way = [self._tree.unfold(self._txn, self._top)]
        for name in path[:-1]:
            below = nodes.child(self._txn, way[-1].record.id, name)
            if below is None or not _has_entries(below):
                return
            way.append(self._tree.unfold(self._txn, below.id))
        found = nodes.child(self._txn, way[-1].record.id, path[-1])
        if found is None or _has_entries(found):
            return
        self._drop(Located(way[-1].record.id, path[-1], found), path)
        above = path[:-1]
        while kept is not None and above and above not in kept:
            if not nodes.is_empty(self._txn, way[-1].record.id):
                break
            self._drop(way.pop(), above)
            above = above[:-1]

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
            nodes.update(self._txn, located, self._stamped(kept)._replace(linked=found.linked))
            self._note(Op.WRITE, located, path, found)
            return
        if found is not None:
            self._drop(Located(directory.record.id, name, found), path)
        self._make(directory, path, record)

    def _directory(self, path: Path) -> Located:
        """Return a directory, made where there is none."""
        at = self._tree.unfold(self._txn, self._top)
        for depth, name in enumerate(path, start=1):
            found = nodes.child(self._txn, at.record.id, name)
            if found is not None and not _has_entries(found):
                raise _InTheWay(errno.ENOTDIR, path[:depth])
            if found is None:
                owner = at.record
                found = self._make(at, path[:depth], Record(
                    Kind.DIR, State.CLEAN, 0o755, owner.uid, owner.gid, 0, 0, 0, 0, 0, 0, b""
                ))  # fmt: skip
            at = self._tree.unfold(self._txn, found.id)
        return at

    def _make(self, directory: Located, path: Path, record: Record) -> Record:
        """Place a new node. Its id is a new one: what stood there before may be open yet."""
        made = self._stamped(record)._replace(id=nodes.new_id(self._txn))
        nodes.place(self._txn, directory.record.id, path[-1], made)
        nodes.touch_directory(self._txn, directory.record.id, self._now)
        self._note(Op.CREATE, Located(directory.record.id, path[-1], made), path, made)
        return made

    def _stamped(self, record: Record) -> Record:
        now = self._now
        return record._replace(atime=now, mtime=now, ctime=now, linked=now)

    def _drop(self, located: Located, path: Path) -> None:
        self._check_idle(located, path)
        if located.record.kind == Kind.DIR and (
            # Below a hidden directory even an empty one may be the session's.
            next(self._tree.children(self._txn, located, b""), None) is not None
            if self._hidden(path)
            else self._holds_files(located)
        ):
            raise _InTheWay(errno.ENOTEMPTY, path)
        orphans.orphan(self._txn, located, self._now)
        nodes.touch_directory(self._txn, located.parent, self._now)
        self._note(Op.REMOVE, located, path, located.record)

    def _holds_files(self, directory: Located) -> bool:
        if is_folded(directory.record):
            return next(self._tree.children(self._txn, directory, b""), None) is not None
        return any(
            record.kind != Kind.DIR
            or self._holds_files(Located(directory.record.id, name, record))
            for name, record in nodes.children(self._txn, directory.record.id)
        )

    def _check_idle(self, located: Located, path: Path) -> None:
        record = located.record
        if record.kind == Kind.FILE and record.content_state in _BEING_WRITTEN:
            raise _InTheWay(errno.EBUSY, path)


def _has_entries(record: Record) -> bool:
    return record.kind == Kind.DIR and not record.state & SUBMODULE


class _InTheWay(OSError):
    def __init__(self, number: int, path: Path) -> None:
        super().__init__(number, os.strerror(number), os.fsdecode(b"/".join(path)))
        self.path = path
