"""The instance's own tree as a backend: nodes and content of `fusefs.store`."""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import cast

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import decode
from fusefs.store import journal, keys, nodes, orphans, trash
from fusefs.store.files import OpenFiles, current
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.nodes import Located
from fusefs.store.readers import Objects
from fusefs.store.records import (
    EMPTY_SHA256,
    HAS_XATTRS,
    Record,
    State,
    journal_hash,
    to_time,
)
from fusefs.tree import store_scan
from fusefs.tree.backend import (
    PERSON,
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
)
from fusefs.tree.store_files import StoreFile, to_node
from fusefs.tree.store_names import (
    attribute_changes,
    check_replace,
    directory_in,
    entry_in,
    live_path,
    os_error,
    refuse_cycle,
    touch,
    value_hash,
)

XATTR_MAX = 64 << 10
"""The longest value of an extended attribute, in bytes (as XATTR_SIZE_MAX of Linux)."""


class StoreTree:
    """The nodes of an instance. Keys are node ids."""

    volatile = False

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._kv = instance.kv
        self._files = OpenFiles(instance)
        self._listings = store_scan.Listings(instance.kv)

    # Looking.

    def identity(self, key: Hashable) -> bytes:
        """Return the node's id."""
        return keys.number(_id(key))

    def root(self) -> Node:
        """Return the top directory."""
        return self.stat(keys.ROOT_ID)

    def stat(self, key: Hashable) -> Node:
        """Return the node `key`; a node that is gone but open here still answers."""
        node_id = _id(key)
        with self._kv.read() as txn:
            try:
                return self.node_in(txn, nodes.locate(txn, node_id).record)
            except FileNotFoundError:
                if not self._files.is_open(node_id):
                    raise
        return to_node(self._files.known(node_id))

    def lookup(self, parent: Hashable, name: bytes) -> Node:
        """Return the node called `name` in `parent`."""
        with self._kv.read() as txn:
            record = nodes.child(txn, _id(parent), name)
            if record is None:
                directory_in(txn, _id(parent))
                raise os_error(errno.ENOENT)
            return self.node_in(txn, record)

    def open_directory(self, key: Hashable) -> Directory:
        """Open a directory; it is listed from the store page by page."""
        node = self.stat(key)
        if node.kind != Kind.DIR:
            raise os_error(errno.ENOTDIR)
        return _StoreDirectory(self, _id(key))

    def entries(self, directory: int, after: bytes, limit: int) -> list[Entry]:
        """Return at most `limit` entries after the name `after`."""
        with self._kv.read() as txn:
            page = list(islice(nodes.children(txn, directory, after), limit))
            return [Entry(name, self.node_in(txn, record)) for name, record in page]

    def scan(self, key: Hashable, after: bytes = b"") -> Sequence[Scanned]:
        """Return entries of a directory, none of one that is gone."""
        return self._listings.scan(_id(key), after)

    def read_files(self, files: Sequence[Found], limit: int) -> list[Read]:
        """Return what is in files that `scan` found."""
        return store_scan.read_files(self, self._instance, files, limit)

    def open_file(self, key: Hashable, *, write: bool, actor: Actor = PERSON) -> File:
        """Open a regular file."""
        with self._kv.read() as txn:
            located = nodes.locate(txn, _id(key))
        return self.open_located(located, write=write, actor=actor)

    def open_located(
        self, located: Located, *, write: bool, actor: Actor, objects: Objects | None = None
    ) -> File:
        """Open a regular file that was found; `objects` are those of its repository."""
        if located.record.kind == Kind.DIR:
            raise os_error(errno.EISDIR)
        if located.record.kind != Kind.FILE:
            raise os_error(errno.ENXIO)
        opened = self._files.open(located, objects)
        if write:
            opened.actor = actor.session
        return StoreFile(opened)

    def read_link(self, key: Hashable) -> bytes:
        """Return the target of a symbolic link."""
        with self._kv.read() as txn:
            record = nodes.locate(txn, _id(key)).record
        if record.kind != Kind.SYMLINK:
            raise os_error(errno.EINVAL)
        return record.tail

    def node_in(self, txn: Reader, record: Record) -> Node:
        """Return what a record says, as it is now."""
        if record.content_state == State.SCRATCH:
            record = current(self._instance, txn, record)
        return to_node(record)

    # Changing names.

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
        """Make a node; set-group-id directories pass on their group (inode(7))."""
        now = time.time_ns()
        with self._kv.write() as txn:
            directory = directory_in(txn, _id(parent))
            path = live_path(txn, directory.record.id)
            if nodes.child(txn, directory.record.id, name) is not None:
                raise os_error(errno.EEXIST)
            gid = owner.gid
            if directory.record.mode & stat.S_ISGID:
                gid = directory.record.gid
                if kind == Kind.DIR:
                    mode |= stat.S_ISGID
            tail = EMPTY_SHA256 if kind == Kind.FILE else target
            record = Record(
                kind, State.CLEAN, mode & 0o7777, owner.uid, gid, len(target), now, now, now, now,
                nodes.new_id(txn), tail,
            )  # fmt: skip
            nodes.place(txn, directory.record.id, name, record)
            touch(txn, directory, now)
            self.journal(
                txn, actor, Op.CREATE, now, node=record.id, parent=directory.record.id, name=name,
                path=_join(path, name), after=journal_hash(record),
            )  # fmt: skip
        return to_node(record)

    def remove(
        self, parent: Hashable, name: bytes, actor: Actor, *, directory: bool | None
    ) -> None:
        """Move an entry to the trash."""
        now = time.time_ns()
        with self._kv.write(freeing=True) as txn:
            holder = directory_in(txn, _id(parent))
            located = entry_in(txn, holder, name)
            is_directory = located.record.kind == Kind.DIR
            if directory is True:
                if not is_directory:
                    raise os_error(errno.ENOTDIR)
                if not nodes.is_empty(txn, located.record.id):
                    raise os_error(errno.ENOTEMPTY)
            elif directory is False and is_directory:
                raise os_error(errno.EISDIR)
            path = (*live_path(txn, holder.record.id), name)
            size = current(self._instance, txn, located.record).size
            removed = trash.record_removal(
                txn, located, now=now, actor=actor.session, path=path, size=size
            )
            touch(txn, holder, now)
            self.journal(
                txn, actor, Op.REMOVE, now, node=located.record.id, parent=holder.record.id,
                name=name, path=_join(path), before=journal_hash(located.record),
                detail=journal.describe({"trash": removed.id}),
            )  # fmt: skip

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
        now = time.time_ns()
        with self._kv.write() as txn:
            source_dir = directory_in(txn, _id(parent))
            target_dir = directory_in(txn, _id(new_parent))
            source = entry_in(txn, source_dir, name)
            taken = nodes.child(txn, target_dir.record.id, new_name)
            if exchange and taken is None:
                raise os_error(errno.ENOENT)
            if taken is not None and taken.id == source.record.id:
                if not replace and not exchange:
                    raise os_error(errno.EEXIST)
                return
            target_id = target_dir.record.id
            path = (*live_path(txn, source_dir.record.id), name)
            new_path = (*live_path(txn, target_id), new_name)
            refuse_cycle(txn, source.record, target_id)
            replaced = None if taken is None else Located(target_id, new_name, taken)
            if exchange:
                assert replaced is not None
                refuse_cycle(txn, replaced.record, source_dir.record.id)
                moved = replaced.record._replace(ctime=now, linked=now)
                nodes.place(txn, source_dir.record.id, name, moved)
            else:
                if replaced is not None:
                    check_replace(txn, source.record, replaced.record, replace)
                    orphans.orphan(txn, replaced, now)
                nodes.take(txn, source_dir.record.id, name)
            moved = source.record._replace(ctime=now, linked=now)
            nodes.place(txn, target_id, new_name, moved)
            for directory in {source_dir.record.id, target_id}:
                nodes.touch_directory(txn, directory, now)
            self.journal(
                txn, actor, Op.EXCHANGE if exchange else Op.RENAME, now, node=source.record.id,
                parent=source_dir.record.id, name=name, new_parent=target_id, new_name=new_name,
                replaced=0 if replaced is None else replaced.record.id,
                path=_join(path) + b"\0" + _join(new_path),
                before=b"" if replaced is None else journal_hash(replaced.record),
                after=journal_hash(source.record),
            )  # fmt: skip
        if replaced is not None and not exchange and self._files.is_open(replaced.record.id):
            self.pin_orphans()

    # Changing nodes.

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        """Apply `change`; a new size is that of truncate(2)."""
        node_id = _id(key)
        if change.size is not None:
            self._truncate(node_id, change.size, actor)
        now = time.time_ns()
        with self._kv.write() as txn:
            located = nodes.locate(txn, node_id)
            record = current(self._instance, txn, located.record)
            updates = {
                field: value
                for field in ("mode", "uid", "gid", "atime", "mtime")
                if (value := getattr(change, field)) is not None
            }
            for field in ("atime", "mtime"):
                if field in updates:
                    updates[field] = to_time(updates[field])
            changed = record._replace(ctime=now, **updates)
            nodes.update(txn, located, changed)
            self.journal(
                txn, actor, Op.ATTRIBUTES, now, node=node_id, path=_path_of(txn, node_id),
                detail=attribute_changes(record, updates),
            )  # fmt: skip
            if record.content_state == State.SCRATCH and change.mtime is not None:
                self._files.set_scratch_times(txn, node_id, changed.atime, changed.mtime)
            return self.node_in(txn, changed)

    def _truncate(self, node_id: int, size: int, actor: Actor) -> None:
        with self._kv.read() as txn:
            located = nodes.locate(txn, node_id)
        if located.record.kind != Kind.FILE:
            raise os_error(errno.EISDIR if located.record.kind == Kind.DIR else errno.EINVAL)
        file = self._files.open(located)
        file.actor = actor.session
        try:
            file.truncate(size)
        finally:
            publish(file.release())

    def get_xattr(self, key: Hashable, name: bytes) -> bytes:
        """Return an extended attribute."""
        with self._kv.read() as txn:
            value = txn.get(keys.xattr(_id(key), name))
        if value is None:
            raise os_error(errno.ENODATA)
        return value

    def list_xattrs(self, key: Hashable) -> Sequence[bytes]:
        """Return the names of all extended attributes."""
        prefix = keys.xattr(_id(key), b"")
        with self._kv.read() as txn:
            return [found[len(prefix) :] for found, _ in txn.range(prefix, after_prefix(prefix))]

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        """Set an extended attribute."""
        if name == b"user.":
            raise os_error(errno.EINVAL)
        if len(name) > 255:
            raise os_error(errno.ERANGE)
        if len(value) > XATTR_MAX:
            raise os_error(errno.E2BIG)

        self._change_xattr(_id(key), name, value, actor)

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        """Remove an extended attribute."""
        self._change_xattr(_id(key), name, None, actor)

    def _change_xattr(
        self, node_id: int, name: bytes, value: bytes | None, actor: Actor
    ) -> None:
        now = time.time_ns()
        with self._kv.write() as txn:
            located = nodes.locate(txn, node_id)
            record, where = located.record, keys.xattr(node_id, name)
            before = txn.get(where)
            if value is not None:
                txn.put(where, value)
                record = record._replace(state=record.state | HAS_XATTRS)
            elif before is None:
                raise os_error(errno.ENODATA)
            else:
                txn.delete(where)
            nodes.update(txn, located, record._replace(ctime=now))
            self.journal(
                txn, actor, Op.XATTR, now, node=node_id, path=_path_of(txn, node_id),
                before=value_hash(before), after=value_hash(value),
                detail=journal.describe({"attribute": decode(name)}),
            )  # fmt: skip

    def pin_orphans(self) -> None:
        """Keep alive what is in no directory any more but open here; let go of the rest."""
        orphans.pin_open(self._instance, self._files.open_nodes())

    def sync(self) -> None:
        """Commit."""
        self._instance.commit()

    def journal(
        self,
        txn: Writer,
        actor: Actor,
        op: Op,
        now: int,
        *,
        node: int,
        path: bytes,
        parent: int = 0,
        name: bytes = b"",
        new_parent: int = 0,
        new_name: bytes = b"",
        replaced: int = 0,
        before: bytes = b"",
        after: bytes = b"",
        detail: bytes = b"",
    ) -> None:
        """Append a record to the journal (see `JournalRecord`)."""
        journal.append(
            txn, time=now, process=self._instance.process, actor=actor.session, op=op, node=node,
            parent=parent, name=name, new_parent=new_parent, new_name=new_name, replaced=replaced,
            path=path, before=before, after=after, detail=detail,
        )  # fmt: skip
        self._instance.journalled()


class _StoreDirectory:
    def __init__(self, tree: StoreTree, directory: int) -> None:
        self._tree = tree
        self._directory = directory

    def entries(self, after: bytes, limit: int) -> Sequence[Entry]:
        return self._tree.entries(self._directory, after, limit)

    def close(self) -> None:
        """Nothing is held."""


def _id(key: Hashable) -> int:
    return cast(int, key)


def _path_of(txn: Reader, node_id: int) -> bytes:
    path = nodes.path_of(txn, node_id)
    return b"" if path is None else _join(path)


def _join(path: tuple[bytes, ...], *names: bytes) -> bytes:
    return b"/" + b"/".join((*path, *names))
