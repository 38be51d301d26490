"""Making what was written into content: hashed, stored once, and journalled."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from fusefs.store import journal, keys, nodes
from fusefs.store.blocks import Digest
from fusefs.store.content import INLINE_MAX
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from fusefs.store.kv import Writer
from fusefs.store.nodes import Located
from fusefs.store.records import State
from fusefs.store.scratch import Scratch, scratch_record, sync_and_hash

if TYPE_CHECKING:
    from fusefs.store.files import OpenNode

NOT_HASHED = Digest(b"", b"")


class ScratchPublication:
    """Makes the scratch of a node whose last handle was closed into content."""

    def __init__(self, node: OpenNode, scratch: Scratch) -> None:
        self._node = node
        self._scratch = scratch
        # Of its own: the node may be opened, closed and discarded while this one is hashed.
        self._fd = os.dup(scratch.fd)
        self._digest = NOT_HASHED
        self._hashed_after = -1
        with node.instance.kv.read() as txn:
            found = scratch_record(txn, node.id)
            self._joined = -1 if found is None else found.joined

    def prepare(self) -> None:
        """Sync and hash the file. May block."""
        try:
            self._digest = sync_and_hash(self._fd)
            self._hashed_after = self._joined
        finally:
            os.close(self._fd)

    def finish(self) -> None:
        """Publish, unless the node was opened again or another process still writes it.

        Opening it again also makes this hash out of date: the next last close has its own.
        """
        if self._node.handles or self._node.publication is not self:
            return
        try:
            publish_scratch(
                self._node.instance,
                self._node.id,
                self._scratch,
                self._node.actor,
                known=(self._hashed_after, self._digest),
            )
        finally:
            self._node.discard()


def publish_draft(instance: Instance, txn: Writer, located: Located, actor: str) -> None:
    """Make a node's draft into content."""
    record = located.record
    data = txn.get(keys.draft(record.id)) or b""
    sha256 = instance.content.put_small(txn, data)
    txn.delete(keys.draft(record.id))
    _set_content(instance, txn, located, sha256, len(data), record.mtime, actor)


def publish_scratch(
    instance: Instance, node_id: int, scratch: Scratch, actor: str, *, known: tuple[int, Digest]
) -> bool:
    """Make a scratch file into its node's content, if this process is its only user.

    Args:
        instance: the instance.
        node_id: the node.
        scratch: its scratch, joined.
        actor: who changed it.
        known: how often the scratch had been joined when it was hashed, and what came of it.

    Returns:
        Whether it was published; if not, another process that writes it will do so.
    """
    with instance.kv.write() as txn:
        found = scratch_record(txn, node_id)
        if found is None or found.serial != scratch.serial or not scratch.try_own():
            return False
        try:
            located = nodes.locate(txn, node_id)
        except FileNotFoundError:
            txn.delete(keys.scratch(node_id))
            return True
        # Once others have joined, one that did before the file was hashed may have written after.
        alone = known[0] == found.joined == 1
        found_now = known[1] if alone else sync_and_hash(scratch.fd)
        status = os.fstat(scratch.fd)
        if status.st_size <= INLINE_MAX:
            instance.content.put_small(txn, os.pread(scratch.fd, status.st_size, 0))
        else:
            instance.content.adopt(txn, scratch.path, found_now)
        txn.delete(keys.scratch(node_id))
        _set_content(
            instance, txn, located, found_now.sha256, status.st_size, status.st_mtime_ns, actor
        )
    # The file keeps its old name until the record that says otherwise is durable.
    instance.commit()
    instance.scratches.discard(scratch.serial)
    return True


def _set_content(
    instance: Instance, txn: Writer, located: Located, sha256: bytes, size: int, mtime: int,
    actor: str,
) -> None:  # fmt: skip
    record = located.record
    changed = record.with_content(State.CLEAN, size, sha256, mtime)
    nodes.update(txn, located, changed._replace(ctime=max(record.ctime, mtime)))
    path = nodes.path_of(txn, record.id)
    journal.append(
        txn, time=time.time_ns(), process=instance.process, actor=actor, op=Op.WRITE,
        node=record.id, path=b"" if path is None else b"/" + b"/".join(path),
        before=record.tail, after=sha256,
    )  # fmt: skip
    instance.journalled()
