"""What a working copy changed, told by comparing its nodes with its base.

Only what lies over tree objects is looked at, and where a tree object is not the base's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pygit2

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.store import keys
from fusefs.store.content import INLINE_MAX
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader
from fusefs.store.nodes import Located, locate
from fusefs.store.records import SUBMODULE, Record, State
from fusefs.store.scratch import scratch_record
from fusefs.tree.repository_errors import git_errors
from fusefs.tree.repository_nodes import Folded, is_folded
from fusefs.tree.repository_objects import BLOB, LINK, PROGRAM, TREE, TreeEntry
from fusefs.tree.repository_objects import SUBMODULE as GITLINK
from fusefs.tree.repository_tree import RepositoryTree

_NOT_HASHED = bytes(20)
"""The id of no object."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Changed:
    """A path of which the working copy differs from its base.

    Attributes:
        path: relative to the repository.
        old: what the base has, None where the path is new.
        new: what the working copy has, None where it was removed.
        node: the node there, for its bytes.
    """

    path: Path
    old: TreeEntry | None
    new: TreeEntry | None
    node: Record | None


class _Pair(NamedTuple):
    """What the base and the working copy have at a path."""

    path: Path
    old: TreeEntry | None
    new: Located | Folded | None


class Changes:
    """Compares a working copy with its base, in one transaction."""

    def __init__(
        self, instance: Instance, tree: RepositoryTree, txn: Reader, *, roughly: bool = False
    ) -> None:
        """Compare in `txn`; `roughly`, large files that were written count as changed, unread."""
        self._instance = instance
        self._roughly = roughly
        self._tree = tree
        self._objects = tree.objects
        self._txn = txn

    def all(self) -> Iterator[Changed]:
        """Yield what is changed, in path order within each directory."""
        top = locate(self._txn, self._tree.copy.top)
        base = TreeEntry(TREE, self._objects.commit(self._tree.copy.base).tree_id.raw)
        # Pairs yet to be compared, the next one last; directories may lie thousands deep.
        pending: list[Iterator[_Pair]] = [iter([_Pair((), base, top)])]
        while pending:
            pair = next(pending[-1], None)
            if pair is None:
                pending.pop()
                continue
            path, old, new = pair
            old_tree = old.oid if old is not None and old.is_tree else None
            new_tree = new if new is not None and _has_entries(new.record) else None
            if old_tree is None and new_tree is None:
                found = None if new is None else self.entry(new.record)
                if old != found:
                    yield Changed(path, old, found, None if new is None else new.record)
                continue
            if old_tree is None or new_tree is None:
                beside = _Pair(path, old if old_tree is None else None,
                               new if new_tree is None else None)  # fmt: skip
                pending.append(iter([beside]))
            pending.append(self._below(path, old_tree, new_tree))

    def _below(
        self, path: Path, old: bytes | None, new: Located | Folded | None
    ) -> Iterator[_Pair]:
        """Yield the pairs in two directories, or one, that may differ."""
        nodes = self._tree.nodes
        if new is None:
            for name, entry in self._entries(old).items():
                yield _Pair((*path, name), entry, None)
        elif old is None:
            for node in nodes.children(self._txn, new):
                yield _Pair((*path, node.name), None, node)
        else:
            before, names = self._entries(old), nodes.changed_names(self._txn, new)
            shown = new.record.tail if is_folded(new.record) else None
            if shown != old:
                now = self._entries(shown)
                names.update(
                    name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
                )
            for name in sorted(names):
                yield _Pair((*path, name), before.get(name), nodes.child(self._txn, new, name))

    def _entries(self, tree: bytes | None) -> dict[bytes, TreeEntry]:
        return {} if tree is None else self._objects.entries(tree)

    def at(self, path: Path) -> TreeEntry | None:
        """Return what is at a path below the top; None for a directory, and for nothing."""
        at: Located | Folded = locate(self._txn, self._tree.copy.top)
        for name in path:
            if not _has_entries(at.record):
                return None
            found = self._tree.nodes.child(self._txn, at, name)
            if found is None:
                return None
            at = found
        return self.entry(at.record)

    def entry(self, record: Record) -> TreeEntry | None:
        """Return the tree entry of a node that has none below it; None for what git cannot keep."""
        if record.state & SUBMODULE:
            return TreeEntry(GITLINK, record.tail)
        if record.kind == Kind.SYMLINK:
            is_object = record.content_state == State.OBJECT
            return TreeEntry(LINK, record.tail if is_object else pygit2.hash(record.tail).raw)
        if record.kind != Kind.FILE:
            return None
        mode = PROGRAM if record.mode & 0o100 else BLOB
        return TreeEntry(mode, self._oid(record))

    def _oid(self, record: Record) -> bytes:
        if record.content_state == State.OBJECT:
            return record.tail
        data = self._small(record)
        if data is not None:
            return pygit2.hash(data).raw
        if self._roughly:
            return _NOT_HASHED
        return self._of_file(record, pygit2.hashfile)

    def _of_file(self, record: Record, make: Callable[[str], pygit2.Oid]) -> bytes:
        """Make an object id of a large file; it may be published while that is done.

        Raises:
            OSError: EBUSY; it is being changed without end.
        """
        file = self._file(self._txn, record)
        for _ in range(_TRIES):
            try:
                return make(file).raw
            except (OSError, KeyError, pygit2.GitError):
                with self._instance.kv.read() as now:
                    file = self._file(now, locate(now, record.id).record)
        raise OSError(errno.EBUSY, "a file is being written: try again when it is closed")

    def _small(self, record: Record) -> bytes | None:
        if record.content_state == State.DRAFT:
            return self._txn.get(keys.draft(record.id)) or b""
        if record.content_state == State.CLEAN and record.size <= INLINE_MAX:
            return self._instance.content.small(self._txn, record.tail)
        return None

    def _file(self, txn: Reader, record: Record) -> str:
        if record.content_state == State.SCRATCH:
            found = scratch_record(txn, record.id)
            if found is not None:
                return os.fspath(self._instance.scratches.path(found.serial))
        return os.fspath(self._instance.content.path(record.tail))

    @git_errors()
    def write_blob(self, record: Record) -> TreeEntry | None:
        """See to it that the repository has a node's bytes, and return its tree entry.

        Raises:
            OSError: ENOENT; the file is gone since the record was read.
        """
        repository = self._objects.repository
        if record.kind == Kind.FILE and record.content_state in (State.DRAFT, State.SCRATCH):
            # Of an older transaction: meanwhile the file may have been closed, and stored.
            record = locate(self._txn, record.id).record
        entry = self.entry(record)
        is_stored = record.content_state != State.OBJECT and not record.state & SUBMODULE
        if entry is None or not is_stored:
            return entry
        data = record.tail if record.kind == Kind.SYMLINK else self._small(record)
        if data is not None:
            return entry._replace(oid=repository.create_blob(data).raw)
        # It may be written at this moment: what was read is what counts.
        return entry._replace(oid=self._of_file(record, repository.create_blob_fromdisk))


def _has_entries(record: Record) -> bool:
    return record.kind == Kind.DIR and not record.state & SUBMODULE
