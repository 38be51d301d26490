"""Putting many nodes into the store at once, for an import.

Everything that can be done without the writer lock (reading, hashing, copying large files) is
done before it is taken; then a few hundred nodes go in with one durable commit.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from fusefs.contract.kinds import Kind
from fusefs.contract.paths import Path as TreePath
from fusefs.store import journal, keys, nodes
from fusefs.store.blocks import Digest, digest
from fusefs.store.content import INLINE_MAX, check_size
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Writer
from fusefs.store.records import HAS_XATTRS, Record, journal_hash, to_time

_NODES_AT_ONCE = 1000
_BYTES_AT_ONCE = 16 << 20


class Meta(NamedTuple):
    """Attributes that a new node takes over. Times in nanoseconds.

    Attributes:
        mode: permission bits.
        xattrs: ``user.*`` attributes.
    """

    mode: int
    uid: int
    gid: int
    atime: int
    mtime: int
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


class _Planned(NamedTuple):
    parent: int
    path: TreePath
    kind: Kind
    meta: Meta
    node: int
    data: bytes
    large: tuple[Path, Digest, int] | None


class BulkLoader:
    """Adds nodes below existing directories. Call `flush` at the end.

    Attributes:
        taken: what was not added, because its name was taken: path, kind and bytes.
    """

    def __init__(self, instance: Instance, actor: str) -> None:
        self._instance = instance
        self._actor = actor
        self._planned: list[_Planned] = []
        self._bytes = 0
        self._next_id = 0
        self._end_id = 0
        self.taken: list[tuple[TreePath, Kind, int]] = []

    def add(
        self, parent: int, path: TreePath, kind: Kind, meta: Meta, data: bytes = b""
    ) -> int:
        """Plan a node, with a small file's content or a link's target, and return its id."""
        return self._plan(parent, path, kind, meta, data, None)

    def add_large(
        self, parent: int, path: TreePath, meta: Meta, copy: Path, found: Digest, size: int
    ) -> int:
        """Plan a file with more than `INLINE_MAX` bytes; `copy` is taken over (and is synced)."""
        return self._plan(parent, path, Kind.FILE, meta, b"", (copy, found, size))

    def _plan(
        self,
        parent: int,
        path: TreePath,
        kind: Kind,
        meta: Meta,
        data: bytes,
        large: tuple[Path, Digest, int] | None,
    ) -> int:
        if self._next_id == self._end_id:
            with self._instance.kv.write() as txn:
                self._next_id = nodes.reserve_ids(txn, _NODES_AT_ONCE)
            self._end_id = self._next_id + _NODES_AT_ONCE
        node = self._next_id
        self._next_id += 1
        self._planned.append(_Planned(parent, path, kind, meta, node, data, large))
        self._bytes += len(data)
        if len(self._planned) >= _NODES_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.flush()
        return node

    def flush(self) -> None:
        """Put everything that is planned into the store, durably."""
        planned, self._planned, self._bytes = self._planned, [], 0
        if not planned:
            return
        with self._instance.kv.write() as txn:
            for plan in planned:
                self._put(txn, plan)
        self._instance.commit()
        for plan in planned:
            if plan.large is not None:
                plan.large[0].unlink(missing_ok=True)

    def _put(self, txn: Writer, plan: _Planned) -> None:
        name = plan.path[-1]
        if nodes.child(txn, plan.parent, name) is not None:
            size = len(plan.data) if plan.large is None else plan.large[2]
            self.taken.append((plan.path, plan.kind, size))
            return
        size, tail = len(plan.data), plan.data
        if plan.large is not None:
            copy, found, size = plan.large
            self._instance.content.adopt(txn, copy, found)
            tail = found.sha256
        elif plan.kind == Kind.FILE:
            tail = self._instance.content.put_small(txn, plan.data)
        elif plan.kind == Kind.DIR:
            size = 0
        now = time.time_ns()
        meta = plan.meta
        state = HAS_XATTRS if meta.xattrs else 0
        for attribute, value in meta.xattrs:
            txn.put(keys.xattr(plan.node, attribute), value)
        record = Record(
            plan.kind, state, meta.mode, meta.uid, meta.gid, size, to_time(meta.atime),
            to_time(meta.mtime), now, now, plan.node, tail,
        )  # fmt: skip
        nodes.place(txn, plan.parent, name, record)
        journal.append(
            txn, time=now, process=self._instance.process, actor=self._actor, op=Op.CREATE,
            node=plan.node, parent=plan.parent, name=name, path=b"/" + b"/".join(plan.path),
            after=journal_hash(record),
        )  # fmt: skip
        self._instance.journalled()


def is_small(size: int) -> bool:
    """Tell whether a file of `size` bytes is kept in the ordered store."""
    return size <= INLINE_MAX


def copy_large(instance: Instance, fd: int, size: int) -> tuple[Path, Digest, int]:
    """Copy an open file for `BulkLoader.add_large`; return copy, hashes and size in bytes.

    Raises:
        OSError: among others EFBIG.
    """
    check_size(size)
    copy = instance.scratches.copy(Path(f"/proc/self/fd/{fd}"), size)
    with copy.open("rb") as reader:
        os.fdatasync(reader.fileno())
        return copy, digest(reader.fileno()), os.fstat(reader.fileno()).st_size
