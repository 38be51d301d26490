"""Nodes of a working copy: those that are stored, and those that only the repository has.

Of a directory in the state `OBJECT` no entry is stored. What is in it has ids all the same, made
of the directory's id and the name; they become the nodes' own when the entries are stored
(*unfolded*), so nobody who holds one notices.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from fusefs.contract.kinds import Kind
from fusefs.contract.links import TARGET_MAX
from fusefs.store import keys, nodes
from fusefs.store.kv import Reader, Writer
from fusefs.store.nodes import Located
from fusefs.store.records import SUBMODULE, Record, State
from fusefs.tree.repository_objects import (
    LINK,
    PROGRAM,
    TREE,
    RepositoryObjects,
    TreeEntry,
)
from fusefs.tree.repository_objects import SUBMODULE as GITLINK

_DERIVED = 1 << 63  # ids that are counted never come so far


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A node that is not stored, as it was found in its directory's tree object.

    It equals its id, by which it is known once it is stored.
    """

    id: int
    parent: int | Folded
    name: bytes
    record: Record

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        return self.id == (other.id if isinstance(other, Folded) else other)


class RepositoryNodes:
    """The nodes of one working copy, in a transaction."""

    def __init__(self, objects: RepositoryObjects) -> None:
        self._objects = objects
        self.owner = (os.geteuid(), os.getegid())
        """Whose it is, whatever became of the directory above."""
        self.when = 0
        """What is only in the repository shows this time, in nanoseconds."""

    def find(self, txn: Reader, key: Hashable) -> Located | Folded:
        """Return the node `key`, stored or not.

        Raises:
            FileNotFoundError: it is gone.
        """
        if not isinstance(key, Folded):
            assert isinstance(key, int)
            return nodes.locate(txn, key)
        if txn.get(keys.node(key.id)) is not None:
            return nodes.locate(txn, key.id)
        # Its directory may show another tree by now, or none; so from the nearest stored one down.
        names: list[bytes] = []
        at: int | Folded = key
        while isinstance(at, Folded) and txn.get(keys.node(at.id)) is None:
            names.append(at.name)
            at = at.parent
        found: Located | Folded = nodes.locate(txn, at.id if isinstance(at, Folded) else at)
        for name in reversed(names):
            below = self.child(txn, found, name) if is_folded(found.record) else None
            if not isinstance(below, Folded):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            found = below
        return found

    def child(self, txn: Reader, parent: Located | Folded, name: bytes) -> Record | Folded | None:
        """Return the entry `name` of a directory, or None."""
        if not is_folded(parent.record):
            return nodes.child(txn, parent.record.id, name)
        entry = self._objects.entries(parent.record.tail).get(name)
        return None if entry is None else self._fold(parent, name, entry)

    def children(
        self, txn: Reader, parent: Located | Folded, after: bytes
    ) -> Iterator[tuple[bytes, Record | Folded]]:
        """Yield the entries of a directory in name order, those after the name `after`."""
        if not is_folded(parent.record):
            yield from nodes.children(txn, parent.record.id, after)
            return
        for name, entry in self._objects.entries_after(parent.record.tail, after):
            yield name, self._fold(parent, name, entry)

    def unfold(self, txn: Writer, key: Hashable) -> Located:
        """Store the entries of a directory, and of those above it; nothing changes by it.

        Raises:
            FileNotFoundError: it is gone.
        """
        found = self.find(txn, key)
        if isinstance(found, Folded):
            self.unfold(txn, found.parent)
            found = nodes.locate(txn, found.id)
        if is_folded(found.record):
            for name, entry in self._objects.entries(found.record.tail).items():
                record = self._fold(found, name, entry).record
                nodes.place(txn, found.record.id, name, record)
            plain = found.record._replace(state=found.record.state & ~State.OBJECT, tail=b"")
            nodes.update(txn, found, plain)
            found = found._replace(record=plain)
        return found

    def store(self, txn: Writer, key: Hashable) -> Located:
        """See to it that a node is stored, and return it.

        Raises:
            FileNotFoundError: it is gone.
        """
        found = self.find(txn, key)
        if isinstance(found, Folded):
            self.unfold(txn, found.parent)
            found = nodes.locate(txn, found.id)
        return found

    def record_of(self, parent: Located, name: bytes, entry: TreeEntry) -> Record:
        """Return the record of a node that shows `entry` as `name` in `parent`."""
        return self._fold(parent, name, entry).record

    def _fold(self, parent: Located | Folded, name: bytes, entry: TreeEntry) -> Folded:
        node_id = _derived_id(parent.record.id, name)
        key = parent if isinstance(parent, Folded) else parent.record.id
        return Folded(node_id, key, name, self._record(node_id, entry))

    def _record(self, node_id: int, entry: TreeEntry) -> Record:
        """Return the record of an entry."""
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


def is_folded(record: Record) -> bool:
    """Tell whether a record is that of a directory whose entries are not stored."""
    return record.kind == Kind.DIR and record.content_state == State.OBJECT


def _derived_id(parent: int, name: bytes) -> int:
    digest = blake2b(parent.to_bytes(8, "big") + name, digest_size=8).digest()
    return int.from_bytes(digest, "big") | _DERIVED
