"""Nodes and open files of the store, as backends show them."""

from __future__ import annotations

from fusefs.contract.kinds import Kind
from fusefs.store.files import OpenNode
from fusefs.store.records import Record, State
from fusefs.tree.backend import Node, Publication

_KINDS = (Kind.DIR, *Kind)


class StoreFile:
    """A handle: the open node, with the backend's protocol."""

    def __init__(self, node: OpenNode) -> None:
        self._node = node
        self.read_nowait = node.read_nowait
        self.read = node.read
        self.pending_copy = node.pending_copy
        self.truncate = node.truncate
        self.replace = node.replace
        self.flush = node.flush
        self.sync_data = node.sync_data

    def node(self) -> Node:
        return to_node(self._node.record())

    def write(self, offset: int, data: bytes, *, append: bool = False) -> int:
        return self._node.write(offset, data, append=append)

    def close(self) -> Publication | None:
        return self._node.release()


def to_node(record: Record) -> Node:
    """Return what a record says of a node."""
    sha256 = object_id = None
    if record.kind == Kind.FILE:
        if record.content_state == State.CLEAN:
            sha256 = record.tail
        elif record.content_state == State.OBJECT:
            object_id = record.tail
    return Node(
        record.id,
        _KINDS[record.kind],
        record.mode,
        record.uid,
        record.gid,
        record.size,
        record.atime,
        record.mtime,
        record.ctime,
        sha256,
        record.linked,
        record.has_xattrs,
        object_id,
    )
