"""Nodes and directory entries in a transaction.

A node's record stands in its entry, keyed ``(parent, name)``, and the node's id leads there.
There are no hard links, so the two always agree, a listing is one scan, and a move rewrites
two keys whatever lies below.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from fusefs.store import keys
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.records import HAS_XATTRS, Record, pack, unpack


class Located(NamedTuple):
    """A node's record and the entry in which it stands."""

    parent: int
    name: bytes
    record: Record


def locate(txn: Reader, node_id: int) -> Located:
    """Return the node `node_id`.

    Raises:
        FileNotFoundError: there is no such node any more.
    """
    place = txn.get(keys.node(node_id))
    raw = txn.get(keys.ENTRIES + place) if place is not None else None
    if place is None or raw is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Located(int.from_bytes(place[:8], "big"), place[8:], unpack(raw))


def child(txn: Reader, parent: int, name: bytes) -> Record | None:
    """Return the record of the entry `name` in the directory `parent`, or None."""
    raw = txn.get(keys.ENTRIES + parent.to_bytes(8, "big") + name)
    return None if raw is None else unpack(raw)


def children(txn: Reader, parent: int, after: bytes = b"") -> Iterator[tuple[bytes, Record]]:
    """Yield the entries of a directory in name order, those after the name `after`."""
    prefix = keys.entries(parent)
    start = prefix + after + b"\0" if after else prefix
    for key, raw in txn.range(start, after_prefix(prefix)):
        yield key[9:], unpack(raw)


def superseded(txn: Reader, directory: int, after: bytes = b"") -> Iterator[bytes]:
    """Yield the names, in order and after the name `after`, at which the tree object of a
    directory in the state `OBJECT` counts no more: what is stored there does, or nothing is."""
    prefix = keys.superseded(directory, b"")
    start = prefix + after + b"\0" if after else prefix
    for key, _ in txn.range(start, after_prefix(prefix)):
        yield key[9:]


def is_superseded(txn: Reader, directory: int, name: bytes) -> bool:
    """Tell whether a directory's tree object counts no more at `name` (see `superseded`)."""
    return txn.get(keys.superseded(directory, name)) is not None


def supersede(txn: Writer, parent: int, name: bytes, record: Record) -> None:
    """Store the node that a directory's tree object has at `name`, which counts from now on."""
    place(txn, parent, name, record)
    txn.put(keys.superseded(parent, name), b"")


def is_empty(txn: Reader, parent: int) -> bool:
    """Tell whether a directory has no entry."""
    return next(children(txn, parent), None) is None


def new_id(txn: Writer) -> int:
    """Return an id that was never used before."""
    return reserve_ids(txn, 1)


def reserve_ids(txn: Writer, count: int) -> int:
    """Return the first of `count` consecutive ids that were never used before."""
    raw = txn.get(keys.META_NEXT_ID)
    first = keys.FIRST_FREE_ID if raw is None else keys.to_number(raw)
    txn.put(keys.META_NEXT_ID, keys.number(first + count))
    return first


def place(txn: Writer, parent: int, name: bytes, record: Record) -> None:
    """Put the node into the directory `parent` under `name`."""
    txn.put(keys.entry(parent, name), pack(record))
    txn.put(keys.node(record.id), keys.number(parent) + name)


def update(txn: Writer, located: Located, record: Record) -> None:
    """Replace the record of a node where it stands."""
    txn.put(keys.entry(located.parent, located.name), pack(record))


def take(txn: Writer, parent: int, name: bytes) -> None:
    """Take an entry out of its directory; the node must be placed anew or dropped."""
    txn.delete(keys.entry(parent, name))


def drop(txn: Writer, located: Located) -> None:
    """Remove a node for good, with its attributes and draft (not its children)."""
    node_id = located.record.id
    txn.delete(keys.entry(located.parent, located.name))
    txn.delete(keys.node(node_id))
    txn.delete(keys.draft(node_id))
    txn.delete(keys.scratch(node_id))
    if located.record.state & HAS_XATTRS:
        prefix = keys.xattr(node_id, b"")
        for key, _ in list(txn.range(prefix, after_prefix(prefix))):
            txn.delete(key)


def touch_directory(txn: Writer, directory: int, now: int) -> None:
    """Set a directory's mtime and ctime after its entries changed."""
    located = locate(txn, directory)
    update(txn, located, located.record._replace(mtime=now, ctime=now))


def path_of(txn: Reader, node_id: int) -> tuple[bytes, ...] | None:
    """Return the path of a node, None for one that is not in the tree (removed, replaced)."""
    found = ancestry(txn, node_id)
    if found is None:
        return None
    top, way = found
    names = tuple(name for _, name in way)
    if top == keys.ROOT_ID:
        return names
    raw = txn.get(keys.working_top(top))
    return None if raw is None else (*_split(raw[8:]), *names)


def ancestry(txn: Reader, node_id: int) -> tuple[int, list[tuple[int, bytes]]] | None:
    """Return the top above a node (the root's id, or that of a working copy's top), and ids and
    names from below it down to the node; None if it is not in the tree."""
    way: list[tuple[int, bytes]] = []
    at = node_id
    while at != keys.ROOT_ID:
        raw = txn.get(keys.node(at))
        if raw is None or at in (keys.TRASH_ID, keys.ORPHANS_ID):
            return None
        parent = keys.to_number(raw)
        if parent == keys.WORKING_ID:
            break
        way.append((at, raw[8:]))
        at = parent
    return at, way[::-1]


def _split(path: bytes) -> tuple[bytes, ...]:
    return tuple(path.split(b"/")) if path else ()


def is_inside(txn: Reader, node_id: int, ancestor: int) -> bool:
    """Tell whether `node_id` is `ancestor` or below it."""
    at = node_id
    while at != ancestor:
        raw = txn.get(keys.node(at))
        if raw is None or at == keys.ROOT_ID:
            return False
        at = keys.to_number(raw)
    return True


def subtree(txn: Reader, node_id: int) -> Iterator[Located]:
    """Yield every node below `node_id`, children before their directory's siblings."""
    stack = [node_id]
    while stack:
        directory = stack.pop()
        for name, record in children(txn, directory):
            yield Located(directory, name, record)
            if record.kind == _DIR:
                stack.append(record.id)


_DIR = 1
