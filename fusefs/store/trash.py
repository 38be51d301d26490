"""The trash: what was removed, where it was, by whom and when (contract section 6).

A removed node moves below the trash node, whole. A directory emptied by many ``unlink`` and
one ``rmdir`` comes back as one: its children's trash records name it as their old parent, and
removals that follow each other closely in one directory share a *run*.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.store import keys, nodes
from fusefs.store.kv import Reader, Writer, after_prefix
from fusefs.store.nodes import Located
from fusefs.store.records import Record

_RECORD = struct.Struct("<qQQQQBBH")
_RUN = struct.Struct("<QqqB")
_RUN_GAP = 60 * 10**9
_END = b"\xff" * 9


class TrashRecord(NamedTuple):
    """One removal.

    Attributes:
        id: grows with time.
        time: nanoseconds since the epoch.
        node: the removed node's id; 0 for one kept as a file of the instance's trash folder.
        parent: id of the directory it was in; 0 for one of a host directory.
        run: the run of removals it belongs to.
        size: bytes of a file; 0 for a directory.
        kind: what it is.
        actor: the session that removed it.
        name: its name.
        path: its absolute path, ``/``-separated.
    """

    id: int
    time: int
    node: int
    parent: int
    run: int
    size: int
    kind: Kind
    actor: str
    name: bytes
    path: bytes


class _Run(NamedTuple):
    id: int
    start: int
    last: int
    actor: str


def _pack(record: TrashRecord) -> bytes:
    actor = record.actor.encode()
    return (
        _RECORD.pack(
            record.time, record.node, record.parent, record.run, record.size, record.kind,
            len(actor), len(record.name),
        )
        + actor
        + record.name
        + record.path
    )  # fmt: skip


def _unpack(trash_id: int, raw: bytes) -> TrashRecord:
    time, node, parent, run, size, kind, actor_size, name_size = _RECORD.unpack_from(raw)
    at = _RECORD.size
    name_at = at + actor_size
    return TrashRecord(
        trash_id, time, node, parent, run, size, Kind(kind), raw[at:name_at].decode(),
        raw[name_at : name_at + name_size], raw[name_at + name_size :],
    )  # fmt: skip


def record_removal(
    txn: Writer, located: Located, *, now: int, actor: str, path: tuple[bytes, ...], size: int
) -> TrashRecord:
    """Move a node from its directory to the trash; `size` is its bytes at this moment."""
    record = located.record
    own_run = _run(txn, record.id)
    begin = own_run.start if own_run is not None else now
    trash_id = nodes.new_id(txn)
    run = _run(txn, located.parent)
    if run is None or run.actor != actor or begin - run.last > _RUN_GAP:
        run = _Run(trash_id, begin, now, actor)
    raw_actor = actor.encode()
    txn.put(
        keys.REMOVAL_RUNS + keys.number(located.parent),
        _RUN.pack(run.id, run.start, now, len(raw_actor)) + raw_actor,
    )
    entry = TrashRecord(
        trash_id, now, record.id, located.parent, run.id, size, Kind(record.kind), actor,
        located.name, b"/" + b"/".join(path),
    )  # fmt: skip
    nodes.take(txn, located.parent, located.name)
    nodes.place(txn, keys.TRASH_ID, keys.number(trash_id), record._replace(ctime=now))
    _put(txn, entry)
    return entry


def record_external(
    txn: Writer, *, now: int, actor: str, path: tuple[bytes, ...], kind: Kind, size: int
) -> TrashRecord:
    """Record a removal from a host directory; its payload goes to the instance's trash folder."""
    trash_id = nodes.new_id(txn)
    entry = TrashRecord(
        trash_id, now, 0, 0, 0, size, kind, actor, path[-1], b"/" + b"/".join(path)
    )
    _put(txn, entry)
    return entry


def _put(txn: Writer, entry: TrashRecord) -> None:
    txn.put(keys.TRASHED + keys.number(entry.id), _pack(entry))
    txn.put(keys.TRASHED_FROM + keys.number(entry.parent) + keys.number(entry.id), b"")


def _run(txn: Reader, directory: int) -> _Run | None:
    raw = txn.get(keys.REMOVAL_RUNS + keys.number(directory))
    if raw is None:
        return None
    run, start, last, _ = _RUN.unpack_from(raw)
    return _Run(run, start, last, raw[_RUN.size :].decode())


def forget(txn: Writer, entry: TrashRecord) -> None:
    """Remove a trash record (its node was restored or dropped)."""
    txn.delete(keys.TRASHED + keys.number(entry.id))
    txn.delete(keys.TRASHED_FROM + keys.number(entry.parent) + keys.number(entry.id))


def get(txn: Reader, trash_id: int) -> TrashRecord | None:
    """Return the trash record `trash_id`, or None."""
    raw = txn.get(keys.TRASHED + keys.number(trash_id))
    return None if raw is None else _unpack(trash_id, raw)


def records(txn: Reader) -> Iterator[TrashRecord]:
    """Yield all trash records, oldest first."""
    for key, raw in txn.range(keys.TRASHED, keys.TRASHED + _END):
        yield _unpack(keys.to_number(key[1:]), raw)


def comes_with_parent(txn: Reader, entry: TrashRecord) -> bool:
    """Tell whether restoring the directory it was in brings this entry back too."""
    if entry.node == 0:
        return False
    try:
        parent = nodes.locate(txn, entry.parent)
    except FileNotFoundError:
        return False
    if parent.parent != keys.TRASH_ID:
        return False
    run = _run(txn, entry.parent)
    return run is not None and run.id == entry.run


def removed_from(txn: Reader, directory: int) -> list[TrashRecord]:
    """Return what was removed from `directory` in the run that ended with its own removal."""
    run = _run(txn, directory)
    if run is None:
        return []
    prefix = keys.TRASHED_FROM + keys.number(directory)
    found = []
    for key, _ in txn.range(prefix, after_prefix(prefix)):
        entry = get(txn, keys.to_number(key[9:]))
        if entry is not None and entry.run == run.id:
            found.append(entry)
    return found


def put_back(txn: Writer, entry: TrashRecord, parent: int, name: bytes, now: int) -> Record:
    """Put a removed node into `parent` as `name`, with all that was removed from it one by one.

    Raises:
        FileExistsError: the name is taken.
    """
    if nodes.child(txn, parent, name) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    located = nodes.locate(txn, entry.node)
    nodes.take(txn, located.parent, located.name)
    restored = located.record._replace(ctime=now, linked=now)
    nodes.place(txn, parent, name, restored)
    forget(txn, entry)
    pending = [entry.node]
    while pending:
        directory = pending.pop()
        for child in reversed(removed_from(txn, directory)):
            if nodes.child(txn, directory, child.name) is None:
                inner = nodes.locate(txn, child.node)
                nodes.take(txn, inner.parent, inner.name)
                nodes.place(txn, directory, child.name, inner.record)
                forget(txn, child)
                pending.append(child.node)
        txn.delete(keys.REMOVAL_RUNS + keys.number(directory))
    return restored
