"""A session's working copy of a mounted repository, as a backend.

What is stored of it are nodes like the instance's own, and handled by their backend; this adds
what only the repository has. Nothing is checked out: an unchanged file is read from the object
database, and stored is what changed with the directories above it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice, takewhile

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path
from fusefs.store import keys, nodes, orphans
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Reader, Writer
from fusefs.store.nodes import Located
from fusefs.store.records import SUBMODULE, Record, State, journal_hash
from fusefs.store.working_copies import WorkingCopy
from fusefs.tree import store_scan
from fusefs.tree.backend import (
    PERSON,
    SCAN_PAGE,
    Actor,
    Change,
    Directory,
    Entry,
    File,
    Found,
    Node,
    Owner,
    Read,
    Scanned,
    publish,
    read_some,
)
from fusefs.tree.repository_blobs import Blobs
from fusefs.tree.repository_names import is_refused
from fusefs.tree.repository_nodes import Folded, RepositoryNodes, is_folded
from fusefs.tree.repository_objects import RepositoryObjects, TreeEntry
from fusefs.tree.repository_rewrite import Rewrite
from fusefs.tree.store_names import entry_in, live_path, os_error, touch
from fusefs.tree.store_tree import StoreTree

_SHA256_BYTES = 32


class RepositoryTree:
    """One working copy. Keys are node ids, or `Folded` nodes, which equal theirs."""

    volatile = False

    def __init__(
        self,
        instance: Instance,
        store: StoreTree,
        objects: RepositoryObjects,
        begin: Callable[[], WorkingCopy],
    ) -> None:
        """Show the working copy that `begin` finds or makes, when it is first looked at."""
        self.objects = objects
        self._instance = instance
        self._kv = instance.kv
        self._store = store
        self._folder = instance.folder / "run"
        self.nodes = RepositoryNodes(objects)
        self._begin = begin
        self._copy: WorkingCopy | None = None

    @property
    def copy(self) -> WorkingCopy:
        """The working copy."""
        if self._copy is None:
            self.follow()
            assert self._copy is not None
        return self._copy

    def follow(self) -> None:
        """Look up anew which commit the working copy is based on."""
        self._copy = self._begin()
        with self._kv.read() as txn:
            self.nodes.when = nodes.locate(txn, self._copy.top).record.linked

    # Looking.

    def identity(self, key: Hashable) -> bytes:
        """Return the node's id, which it keeps when it is stored."""
        return keys.number(_id(key))

    def root(self) -> Node:
        """Return the top directory."""
        return self.stat(self.copy.top)

    def stat(self, key: Hashable) -> Node:
        """Return the node `key`; a node that is gone but open here still answers."""
        with self._kv.read() as txn:
            try:
                return self._shown(txn, self.nodes.find(txn, key))
            except FileNotFoundError:
                pass
        return self._store.stat(_id(key))

    def _shown(self, txn: Reader, found: Located | Folded) -> Node:
        if isinstance(found, Folded):
            return self.nodes.shown(found)
        node = self._store.node_in(txn, found.record)
        return node._replace(kind=Kind.MOUNT) if node.key == self.copy.top else node

    def lookup(self, parent: Hashable, name: bytes) -> Node:
        """Return the node called `name` in `parent`."""
        with self._kv.read() as txn:
            directory = self.nodes.find(txn, parent)
            if directory.record.kind != Kind.DIR:
                raise os_error(errno.ENOTDIR)
            found = self.nodes.child(txn, directory, name)
            if found is None:
                raise os_error(errno.ENOENT)
            return self._shown(txn, found)

    def open_directory(self, key: Hashable) -> Directory:
        """Open a directory; it is listed page by page."""
        if self.stat(key).kind not in (Kind.DIR, Kind.MOUNT):
            raise os_error(errno.ENOTDIR)
        return _RepositoryDirectory(self, key)

    def entries(self, directory: Hashable, after: bytes, limit: int) -> list[Entry]:
        """Return at most `limit` entries after the name `after`."""
        with self._kv.read() as txn:
            try:
                found = self.nodes.find(txn, directory)
            except FileNotFoundError:
                return []
            listed = islice(self.nodes.children(txn, found, after), limit)
            return [Entry(node.name, self._shown(txn, node)) for node in listed]

    def scan(self, key: Hashable, after: bytes = b"") -> Sequence[Scanned]:
        """Return entries of a directory, none of one that is gone."""
        with self._kv.read() as txn:
            try:
                found = self.nodes.find(txn, key)
            except FileNotFoundError:
                return []
            return list(islice(self.nodes.scan(txn, found, after), SCAN_PAGE))

    def read_files(self, files: Sequence[Found], limit: int) -> list[Read]:
        """Return what is in files that `scan` found."""
        if not _is_object(files[0]):
            stored = list(takewhile(lambda file: not _is_object(file), files))
            return store_scan.read_files(self, self._instance, stored, limit)
        return read_some(self._read_object(file[1], limit) for file in takewhile(_is_object, files))

    def _read_object(self, entry: Scanned, limit: int) -> Read:
        assert entry.content is not None
        try:
            size = self.objects.size(entry.content)
            return size if size > limit else self.objects.read(entry.content)
        except OSError as error:
            return error

    def open_file(self, key: Hashable, *, write: bool, actor: Actor = PERSON) -> File:
        """Open a regular file."""
        with self._kv.read() as txn:
            found = self.nodes.find(txn, key)
        blobs = Blobs(self.objects, self._folder, lambda txn: self.nodes.store(txn, key))
        if isinstance(found, Folded):
            found = Located(0, found.name, found.record)
        return self._store.open_located(found, write=write, actor=actor, objects=blobs)

    def read_link(self, key: Hashable) -> bytes:
        """Return the target of a symbolic link, which may be any bytes."""
        with self._kv.read() as txn:
            record = self.nodes.find(txn, key).record
        if record.kind != Kind.SYMLINK:
            raise os_error(errno.EINVAL)
        is_object = record.content_state == State.OBJECT
        return self.objects.read(record.tail) if is_object else record.tail

    def is_submodule(self, key: Hashable) -> bool:
        """Tell whether a node stands for another repository, whose files are not here."""
        with self._kv.read() as txn:
            return bool(self.nodes.find(txn, key).record.state & SUBMODULE)

    # Changing names. What changes is stored first.

    def _stored(self, key: Hashable) -> Located:
        """Return a node, stored."""
        with self._kv.write() as txn:
            return self.nodes.store(txn, key)

    def _ready(self, key: Hashable, name: bytes) -> int:
        """Return the id of a directory that is stored, as is its entry `name` if there is one."""
        with self._kv.read() as txn:
            directory = self.nodes.find(txn, key)
            if directory.record.kind != Kind.DIR:
                raise os_error(errno.ENOTDIR)
            if directory.record.state & SUBMODULE:
                raise os_error(errno.EROFS)  # it belongs to another repository
            entry = self.nodes.child(txn, directory, name)
        if isinstance(directory, Folded) or isinstance(entry, Folded):
            with self._kv.write() as txn:
                directory = self.nodes.store(txn, key)
                self.nodes.store_child(txn, directory, name)
        return directory.record.id

    def create(
        self,
        parent: Hashable,
        name: bytes,
        kind: Kind,
        mode: int,
        owner: Owner,
        actor: Actor,
        *,
        target: bytes = b"",
    ) -> Node:
        """Make a node."""
        _check_name(name, kind)
        directory = self._ready(parent, name)
        return self._store.create(directory, name, kind, mode, owner, actor, target=target)

    def remove(
        self, parent: Hashable, name: bytes, actor: Actor, *, directory: bool | None
    ) -> None:
        """Take an entry out of the working copy, for good: the base has it."""
        holder_id = self._ready(parent, name)
        now = time.time_ns()
        with self._kv.write(freeing=True) as txn:
            holder = nodes.locate(txn, holder_id)
            located = entry_in(txn, holder, name)
            is_directory = located.record.kind == Kind.DIR
            if directory is False and is_directory:
                raise os_error(errno.EISDIR)
            if directory is True:
                if not is_directory:
                    raise os_error(errno.ENOTDIR)
                if not self.nodes.is_empty(txn, located):
                    raise os_error(errno.ENOTEMPTY)
            path = (*live_path(txn, holder_id), name)
            orphans.orphan(txn, located, now)
            touch(txn, holder, now)
            self._store.journal(
                txn, actor, Op.REMOVE, now, node=located.record.id, parent=holder_id, name=name,
                path=b"/" + b"/".join(path), before=journal_hash(located.record),
            )  # fmt: skip
        self._store.pin_orphans()

    def rename(
        self,
        parent: Hashable,
        name: bytes,
        new_parent: Hashable,
        new_name: bytes,
        actor: Actor,
        *,
        replace: bool,
        exchange: bool = False,
    ) -> None:
        """Move an entry as rename(2) says."""
        source, target = self._ready(parent, name), self._ready(new_parent, new_name)
        with self._kv.read() as txn:
            moved = nodes.child(txn, source, name)
            taken = nodes.child(txn, target, new_name)
            inside = None
            if taken is not None and is_folded(taken):
                replaced = Located(target, new_name, taken)
                inside = next(self.nodes.children(txn, replaced), None)
        if moved is not None:
            _check_name(new_name, moved.kind)
        if exchange and taken is not None:
            _check_name(name, taken.kind)
        if isinstance(inside, Folded):
            self._stored(inside)  # so that its directory is seen not to be empty
        self._store.rename(
            source, name, target, new_name, actor, replace=replace, exchange=exchange
        )

    # Changing nodes.

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        """Apply `change`; a new size is that of truncate(2)."""
        located = self._stored(key)
        if change.size is not None:
            file = self.open_file(key, write=True, actor=actor)
            try:
                file.truncate(change.size)
            finally:
                publish(file.close())
        node = self._store.set_attributes(located.record.id, _without_size(change), actor)
        return node._replace(kind=Kind.MOUNT) if _id(node.key) == self.copy.top else node

    def rewrite(
        self,
        txn: Writer,
        edits: Mapping[Path, TreeEntry | None],
        actor: Actor,
        mount: Path,
        *,
        prune: bool,
        hidden: Callable[[Path], bool],
    ) -> None:
        """Have paths show other objects, or nothing (see `Rewrite.apply`).

        Args:
            txn: the transaction.
            edits: paths below the top.
            actor: who wants it.
            mount: where the working copy is mounted, for the journal.
            prune: drop directories that are left empty.
            hidden: tells what the one who wants it does not see.

        Raises:
            OSError: something is in the way.
        """
        now = time.time_ns()

        def note(op: Op, located: Located, path: Path, before: Record) -> None:
            is_name = op != Op.WRITE
            self._store.journal(
                txn, actor, op, now, node=located.record.id,
                parent=located.parent if is_name else 0, name=located.name if is_name else b"",
                path=b"/" + b"/".join((*mount, *path)), before=journal_hash(before),
            )  # fmt: skip

        rewrite = Rewrite(self.nodes, txn, self.copy.top, now, note, hidden)
        rewrite.apply(edits, prune=prune)

    def get_xattr(self, key: Hashable, name: bytes) -> bytes:
        """Return an extended attribute."""
        return self._store.get_xattr(_id(key), name)

    def list_xattrs(self, key: Hashable) -> Sequence[bytes]:
        """Return the names of all extended attributes."""
        return self._store.list_xattrs(_id(key))

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        """Set an extended attribute."""
        self._store.set_xattr(self._stored(key).record.id, name, value, actor)

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        """Remove an extended attribute."""
        self._store.remove_xattr(self._stored(key).record.id, name, actor)

    def sync(self) -> None:
        """Commit."""
        self._store.sync()


class _RepositoryDirectory:
    def __init__(self, tree: RepositoryTree, key: Hashable) -> None:
        self._tree = tree
        self._key = key

    def entries(self, after: bytes, limit: int) -> Sequence[Entry]:
        return self._tree.entries(self._key, after, limit)

    def close(self) -> None:
        """Nothing is held."""


def _check_name(name: bytes, kind: int) -> None:
    if is_refused(name, link=kind == Kind.SYMLINK):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _is_object(file: Found) -> bool:
    """Tell whether the repository has the bytes of a file."""
    content = file[1].content
    return content is not None and len(content) != _SHA256_BYTES


def _without_size(change: Change) -> Change:
    return Change(change.mode, change.uid, change.gid, None, change.atime, change.mtime)


def _id(key: Hashable) -> int:
    if isinstance(key, Folded):
        return key.id
    assert isinstance(key, int)
    return key
