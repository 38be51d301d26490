"""Making what was written into content: hashed, stored once, and journalled."""

from __future__ import annotations

import os
import time
from enum import Enum
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

class Outcome(Enum):
    """What came of trying to publish a scratch file."""

    DONE = "done"
    OTHERS = "others"
    """Another process uses it, or has published it: what is left is its to do."""
    STALE = "stale"
    """It is only this process's now, and has to be hashed before the next try."""


class GivenUpError(Exception):
    """Nobody needs the hash any more."""


class ScratchPublication:
    """Makes the scratch of a node whose last handle was closed into content."""

    def __init__(self, node: OpenNode, scratch: Scratch) -> None:
        self._node = node
        self._scratch = scratch
        # Of its own: the node may be opened, closed and discarded while this one is hashed.
        self._fd = os.dup(scratch.fd)
        self._hashed: tuple[int, Digest] | None = None
        self._given_up = False

    def prepare(self) -> None:
        """Sync and hash the file, unless it is given up. May block."""
        alone_at = self._scratch.alone_at
        try:
            self._go_on(0)
            if alone_at >= 0:
                self._hashed = (alone_at, sync_and_hash(self._fd, self._go_on))
        except GivenUpError:
            pass
        finally:
            os.close(self._fd)

    def _go_on(self, done: int) -> None:
        if self._given_up or self._is_outdated():
            raise GivenUpError

    def _is_outdated(self) -> bool:
        """Tell whether the node was opened again: the next last close has its own."""
        return bool(self._node.handles) or self._node.publication is not self

    def is_wanted(self) -> bool:
        """Tell whether anybody has a use for the hash: not of a file that was removed."""
        if self._is_outdated():
            return False
        with self._node.instance.kv.read() as txn:
            return nodes.path_of(txn, self._node.id) is not None

    def give_up(self) -> None:
        """End `prepare` soon; the scratch file stays as it is. From any thread."""
        self._given_up = True

    def finish(self) -> bool:
        """Publish, unless the node was opened again or another process still writes it.

        Returns:
            Whether that is all; if not, both steps are to be done once more.
        """
        if self._is_outdated():
            return True
        outcome = Outcome.OTHERS
        try:
            if not self._given_up:
                outcome = publish_scratch(
                    self._node.instance, self._node.id, self._scratch, self._node.actor,
                    hashed=self._hashed,
                )  # fmt: skip
        finally:
            if outcome != Outcome.STALE:
                self._node.discard()
        if outcome == Outcome.STALE:
            self._fd = os.dup(self._scratch.fd)
        return outcome != Outcome.STALE


def publish_draft(instance: Instance, txn: Writer, located: Located, actor: str) -> None:
    """Make a node's draft into content."""
    record = located.record
    data = txn.get(keys.draft(record.id)) or b""
    sha256 = instance.content.put_small(txn, data)
    txn.delete(keys.draft(record.id))
    _set_content(instance, txn, located, sha256, len(data), record.mtime, actor)


def publish_scratch(
    instance: Instance, node_id: int, scratch: Scratch, actor: str, *,
    hashed: tuple[int, Digest] | None,
) -> Outcome:  # fmt: skip
    """Make a scratch file into its node's content, if this process is its only user.

    Nothing is hashed here, where others wait for the writer lock.

    Args:
        instance: the instance.
        node_id: the node.
        scratch: its scratch, joined.
        actor: who changed it.
        hashed: the scratch's `alone_at` before it was hashed, and what came of it.
    """
    with instance.kv.write() as txn:
        found = scratch_record(txn, node_id)
        if found is None or found.serial != scratch.serial or not scratch.try_own():
            return Outcome.OTHERS
        try:
            located = nodes.locate(txn, node_id)
        except FileNotFoundError:
            txn.delete(keys.scratch(node_id))
            return Outcome.DONE
        status = os.fstat(scratch.fd)
        if status.st_size <= INLINE_MAX:
            sha256 = instance.content.put_small(txn, os.pread(scratch.fd, status.st_size, 0))
        elif hashed is not None and hashed[0] == found.joined:
            sha256 = hashed[1].sha256
            instance.content.adopt(txn, scratch.path, hashed[1])
        else:
            # One that has joined since may have written after the file was hashed.
            scratch.alone_at = found.joined
            scratch.share()
            return Outcome.STALE
        txn.delete(keys.scratch(node_id))
        _set_content(
            instance, txn, located, sha256, status.st_size, status.st_mtime_ns, actor
        )
    # The file keeps its old name until the record that says otherwise is durable.
    instance.commit()
    instance.scratches.discard(scratch.serial)
    return Outcome.DONE


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
