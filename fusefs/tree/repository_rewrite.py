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
from fusefs.tree.repository_nodes import Folded, RepositoryNodes
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
        # What goes, goes first: a directory may stand where a file is to be.
        emptier: set[Path] = set()
        for path, entry in edits.items():
            if entry is None:
                self._unless_hidden(partial(self._remove, path, emptier))
        if prune:
            # Somebody may stand in a directory that is left empty only until something comes.
            coming = (path for path, entry in edits.items() if entry is not None)
            kept = {path[:depth] for path in coming for depth in range(1, len(path))}
            self._prune(emptier, kept)
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

    def _remove(self, path: Path, emptier: set[Path]) -> None:
        """Remove what is at a path, but no directory, and note the one in which it was."""
        found = self._stored_at(path)
        if found is not None and not _has_entries(found.record):
            self._drop(found, path)
            emptier.add(path[:-1])

    def _prune(self, directories: Set[Path], kept: Set[Path]) -> None:
        """Drop directories that are empty, and those above that are by then, but none of `kept`."""
        by_depth: dict[int, set[Path]] = {}
        for path in directories:
            by_depth.setdefault(len(path), set()).add(path)
        for depth in range(max(by_depth, default=0), 0, -1):
            for path in sorted(by_depth.get(depth, set()) - kept):
                found = self._stored_at(path)
                if found is not None and self._tree.is_empty(self._txn, found):
                    self._drop(found, path)
                    by_depth.setdefault(depth - 1, set()).add(path[:-1])

    def _stored_at(self, path: Path) -> Located | None:
        """Return what is at a path, stored; None for nothing."""
        at: Located | None = nodes.locate(self._txn, self._top)
        for name in path:
            if at is None or not _has_entries(at.record):
                return None
            at = self._tree.store_child(self._txn, at, name)
        return at

    def _set(self, path: Path, entry: TreeEntry) -> None:
        directory = self._directory(path[:-1])
        name = path[-1]
        record = self._tree.record(0, entry)
        located = self._tree.store_child(self._txn, directory, name)
        if located is not None and located.record.kind == record.kind == Kind.FILE:
            self._check_idle(located, path)
            found = located.record
            state = record.state | found.state & HAS_XATTRS
            kept = record._replace(id=found.id, uid=found.uid, gid=found.gid, state=state)
            nodes.update(self._txn, located, self._stamped(kept)._replace(linked=found.linked))
            self._note(Op.WRITE, located, path, found)
            return
        if located is not None:
            self._drop(located, path)
        self._make(directory, path, record)

    def _directory(self, path: Path) -> Located:
        """Return a directory, made where there is none."""
        at = nodes.locate(self._txn, self._top)
        for depth, name in enumerate(path, start=1):
            found = self._tree.store_child(self._txn, at, name)
            if found is not None and not _has_entries(found.record):
                raise _InTheWay(errno.ENOTDIR, path[:depth])
            if found is None:
                owner = at.record
                found = self._make(at, path[:depth], Record(
                    Kind.DIR, State.CLEAN, 0o755, owner.uid, owner.gid, 0, 0, 0, 0, 0, 0, b""
                ))  # fmt: skip
            at = found
        return at

    def _make(self, directory: Located, path: Path, record: Record) -> Located:
        """Place a new node. Its id is a new one: what stood there before may be open yet."""
        made = self._stamped(record)._replace(id=nodes.new_id(self._txn))
        nodes.place(self._txn, directory.record.id, path[-1], made)
        nodes.touch_directory(self._txn, directory.record.id, self._now)
        located = Located(directory.record.id, path[-1], made)
        self._note(Op.CREATE, located, path, made)
        return located

    def _stamped(self, record: Record) -> Record:
        now = self._now
        return record._replace(atime=now, mtime=now, ctime=now, linked=now)

    def _drop(self, located: Located, path: Path) -> None:
        self._check_idle(located, path)
        if located.record.kind == Kind.DIR and (
            # Below a hidden directory even an empty one may be the session's.
            not self._tree.is_empty(self._txn, located)
            if self._hidden(path)
            else self._holds_files(located)
        ):
            raise _InTheWay(errno.ENOTEMPTY, path)
        orphans.orphan(self._txn, located, self._now)
        nodes.touch_directory(self._txn, located.parent, self._now)
        self._note(Op.REMOVE, located, path, located.record)

    def _holds_files(self, directory: Located) -> bool:
        pending: list[Located | Folded] = [directory]
        while pending:
            for found in self._tree.children(self._txn, pending.pop()):
                if found.record.kind != Kind.DIR:
                    return True
                pending.append(found)
        return False

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
