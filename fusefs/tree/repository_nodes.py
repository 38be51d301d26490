"""Nodes of a working copy: those that are stored, and those that only the repository has.

A directory in the state `OBJECT` shows the entries of its tree object, and over them what is
stored: nodes of its own, and names at which the tree object counts no more. Entries that are not
stored have ids all the same, made of the directory's id and the name; they become the nodes' own
when those are stored, so nobody who holds one notices. A change stores what it is about and the
directories above, nothing beside them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Hashable, Iterator
from hashlib import blake2b

from fusefs.contract.kinds import Kind
from fusefs.contract.links import TARGET_MAX
from fusefs.store import keys, nodes
from fusefs.store.kv import Reader, Writer
from fusefs.store.nodes import Located
from fusefs.store.records import SUBMODULE, Record, State
from fusefs.tree.backend import Node, Scanned
from fusefs.tree.repository_objects import (
    BLOB,
    LINK,
    PROGRAM,
    TREE,
    RepositoryObjects,
    TreeEntry,
)
from fusefs.tree.repository_objects import SUBMODULE as GITLINK
from fusefs.tree.store_scan import scanned

_DERIVED = 1 << 63  # ids that are counted never come so far
_MOST_KNOWN = 100_000


class Folded:
    """A node that is not stored, as it was found in its directory's tree object.

    It equals its id, by which it is known once it is stored.

    Attributes:
        id: its id.
        parent: its directory's id, or its directory if that is not stored either.
        name: its name there.
        entry: what the tree object has there.
    """

    __slots__ = ("_nodes", "_record", "entry", "id", "name", "parent")

    def __init__(
        self,
        tree: RepositoryNodes,
        node_id: int,
        parent: int | Folded,
        name: bytes,
        entry: TreeEntry,
    ) -> None:
        self.id = node_id
        self.parent = parent
        self.name = name
        self.entry = entry
        self._nodes = tree
        self._record: Record | None = None

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return self.id == (other.id if isinstance(other, Folded) else other)

    @property
    def directory(self) -> int:
        """The id of its directory."""
        return self.parent.id if isinstance(self.parent, Folded) else self.parent

    @property
    def record(self) -> Record:
        """The record that it has once it is stored."""
        if self._record is None:
            self._record = self._nodes.record(self.id, self.entry)
        return self._record


class RepositoryNodes:
    """The nodes of one working copy, in a transaction."""

    def __init__(self, objects: RepositoryObjects) -> None:
        self._objects = objects
        self.owner = (os.geteuid(), os.getegid())
        """Whose it is, whatever became of the directory above."""
        self.when = 0
        """What is only in the repository shows this time, in nanoseconds."""
        self._stamp: Hashable = None
        self._not_stored: set[int] = set()

    def find(self, txn: Reader, key: Hashable) -> Located | Folded:
        """Return the node `key`, stored or not.

        Raises:
            FileNotFoundError: it is gone.
        """
        if not isinstance(key, Folded):
            assert isinstance(key, int)
            return nodes.locate(txn, key)
        known = self._known(txn)
        way: list[Folded] = []
        at: int | Folded = key
        while isinstance(at, Folded):
            if at.id in known:
                break
            if txn.get(keys.node(at.id)) is not None:
                if at is key:
                    return nodes.locate(txn, key.id)
                at = at.id
                break
            way.append(at)
            at = at.parent
        if way and isinstance(at, int):
            # The nearest stored one tells; below it nothing can have changed.
            found = self.child(txn, nodes.locate(txn, at), way[-1].name)
            if not isinstance(found, Folded) or found.entry != way[-1].entry:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        known.update(folded.id for folded in way)
        return key

    def _known(self, txn: Reader) -> set[int]:
        """Return ids that are known not to be stored, while all is as `txn` has it."""
        if txn.stamp is None:
            return set()
        if txn.stamp != self._stamp or len(self._not_stored) > _MOST_KNOWN:
            self._stamp, self._not_stored = txn.stamp, set()
        return self._not_stored

    def child(self, txn: Reader, parent: Located | Folded, name: bytes) -> Located | Folded | None:
        """Return the entry `name` of a directory, or None."""
        if isinstance(parent, Located):
            record = nodes.child(txn, parent.record.id, name)
            if record is not None:
                return Located(parent.record.id, name, record)
        if not is_folded(parent.record):
            return None
        entry = self._objects.entries(parent.record.tail).get(name)
        if entry is None:
            return None
        if isinstance(parent, Located) and nodes.is_superseded(txn, parent.record.id, name):
            return None
        return self._fold(parent, name, entry)

    def children(
        self, txn: Reader, parent: Located | Folded, after: bytes = b""
    ) -> Iterator[Located | Folded]:
        """Yield the entries of a directory in name order, those after the name `after`."""
        directory = parent.record.id
        for name, found in self._merged(txn, parent, after):
            if isinstance(found, Record):
                yield Located(directory, name, found)
            else:
                yield self._fold(parent, name, found)

    def scan(self, txn: Reader, parent: Located | Folded, after: bytes) -> Iterator[Scanned]:
        """Yield the entries of a directory, those after the name `after`, looking at no object."""
        for name, found in self._merged(txn, parent, after):
            if isinstance(found, Record):
                yield scanned(name, found.tail, found.kind, found.state, found.size, found.id)
            elif found.mode in (TREE, GITLINK):
                yield Scanned(name, Kind.DIR, self._fold(parent, name, found), None, None)
            else:
                yield Scanned(name, _SHOWN[found.mode][0], None, None, found.oid)

    def _merged(
        self, txn: Reader, parent: Located | Folded, after: bytes
    ) -> Iterator[tuple[bytes, Record | TreeEntry]]:
        """Yield the names of a directory, each with what counts there."""
        stored: Iterator[tuple[bytes, Record]] = iter(())
        superseded: Iterator[bytes] = iter(())
        tree: Iterator[tuple[bytes, TreeEntry]] = iter(())
        directory = parent.record.id
        if is_folded(parent.record):
            tree = self._objects.entries_after(parent.record.tail, after)
        if isinstance(parent, Located):
            stored = nodes.children(txn, directory, after)
            superseded = nodes.superseded(txn, directory, after)
        own, gone = next(stored, None), next(superseded, None)
        for name, entry in tree:
            while own is not None and own[0] <= name:
                yield own
                own = next(stored, None)
            while gone is not None and gone < name:
                gone = next(superseded, None)
            if gone != name:
                yield name, entry
        while own is not None:
            yield own
            own = next(stored, None)

    def changed_names(self, txn: Reader, directory: Located | Folded) -> set[bytes]:
        """Return the names of a directory at which its tree object may not be what counts."""
        if isinstance(directory, Folded):
            return set()
        directory_id = directory.record.id
        stored = {name for name, _ in nodes.children(txn, directory_id)}
        return stored.union(nodes.superseded(txn, directory_id))

    def store(self, txn: Writer, key: Hashable) -> Located:
        """See to it that a node is stored, with the directories above it, and return it.

        Raises:
            FileNotFoundError: it is gone.
        """
        found = self.find(txn, key)
        if isinstance(found, Located):
            return found
        way = [found]
        above = found.parent
        while isinstance(above, Folded) and txn.get(keys.node(above.id)) is None:
            way.append(above)
            above = above.parent
        for folded in reversed(way):
            nodes.supersede(txn, folded.directory, folded.name, folded.record)
        return Located(found.directory, found.name, found.record)

    def store_child(self, txn: Writer, directory: Located, name: bytes) -> Located | None:
        """See to it that the entry `name` of a directory is stored, and return it, or None."""
        found = self.child(txn, directory, name)
        if isinstance(found, Folded):
            nodes.supersede(txn, directory.record.id, name, found.record)
            return Located(directory.record.id, name, found.record)
        return found

    def is_empty(self, txn: Reader, directory: Located | Folded) -> bool:
        """Tell whether a directory has no entry."""
        return next(self.children(txn, directory), None) is None

    def _fold(self, parent: Located | Folded, name: bytes, entry: TreeEntry) -> Folded:
        if isinstance(parent, Folded):
            return Folded(self, _derived_id(parent.id, name), parent, name, entry)
        directory = parent.record.id
        return Folded(self, _derived_id(directory, name), directory, name, entry)

    def record(self, node_id: int, entry: TreeEntry) -> Record:
        """Return the record of a node that shows `entry`."""
        kind, state, mode, size, tail = Kind.FILE, int(State.OBJECT), 0o644, 0, entry.oid
        if entry.mode == GITLINK:
            kind, state, mode = Kind.DIR, SUBMODULE, 0o755
        elif entry.mode == TREE:
            kind, mode = Kind.DIR, 0o755
        else:
            size = self._objects.size(entry.oid)
        if entry.mode == PROGRAM:
            mode = 0o755
        elif entry.mode == LINK:
            kind, mode = Kind.SYMLINK, 0o777
            if size <= TARGET_MAX:
                state, tail = State.CLEAN, self._objects.read(entry.oid)
        return Record(
            kind, state, mode, *self.owner, size, self.when, self.when, self.when,
            self.when, node_id, tail,
        )  # fmt: skip

    def shown(self, folded: Folded) -> Node:
        """Return what a node that is not stored shows; `record` has the same and more."""
        mode, when = folded.entry.mode, self.when
        size, object_id = 0, None
        if mode in (TREE, GITLINK):
            kind, permissions = Kind.DIR, 0o755
        else:
            object_id = folded.entry.oid
            size = self._objects.size(object_id)
            kind, permissions = _SHOWN[mode]
        return Node(
            folded, kind, permissions, *self.owner, size, when, when, when, None, when, False,
            object_id,
        )  # fmt: skip


_SHOWN = {LINK: (Kind.SYMLINK, 0o777), PROGRAM: (Kind.FILE, 0o755), BLOB: (Kind.FILE, 0o644)}


def is_folded(record: Record) -> bool:
    """Tell whether a record is that of a directory that shows a tree object's entries."""
    return record.kind == Kind.DIR and record.content_state == State.OBJECT


def _derived_id(parent: int, name: bytes) -> int:
    digest = blake2b(parent.to_bytes(8, "big") + name, digest_size=8).digest()
    return int.from_bytes(digest, "big") | _DERIVED
