"""Open regular files: reading what is current, and writing with nothing lost.

Where a file's bytes stand is the `State` in its record. Small content is written as a *draft*
in the ordered store, whose transactions make every write atomic, shared between processes and
safe from the death of this one. Past `INLINE_MAX` it moves to a *scratch* file
(`fusefs.store.scratch`). Closing makes either into content by hash.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from hashlib import sha256 as hash_of
from pathlib import Path

from fusefs.store import blocks, keys, nodes
from fusefs.store.blocks import LargeContent
from fusefs.store.content import INLINE_MAX, check_size
from fusefs.store.instance import Instance
from fusefs.store.kv import Reader, Writer
from fusefs.store.nodes import Located
from fusefs.store.publish import ScratchPublication, publish_draft
from fusefs.store.readers import ObjectReader, Objects, Reading, ScratchReader
from fusefs.store.records import EMPTY_SHA256, Record, State
from fusefs.store.scratch import (
    Scratch,
    ScratchRecord,
    put_scratch_record,
    scratch_record,
)


def current(instance: Instance, txn: Reader, record: Record) -> Record:
    """Return `record` with the size and times that a scratch file has at this moment."""
    if record.content_state != State.SCRATCH:
        return record
    found = scratch_record(txn, record.id)
    if found is None:
        return record
    try:
        status = os.stat(instance.scratches.path(found.serial))
    except FileNotFoundError:
        return record
    changed = status.st_mtime_ns
    return record._replace(
        size=status.st_size, mtime=changed, ctime=max(record.ctime, status.st_ctime_ns)
    )


class OpenFiles:
    """The regular files that this process has open, one `OpenNode` a node."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._open: dict[int, OpenNode] = {}

    def open(self, located: Located, objects: Objects | None = None) -> OpenNode:
        """Return the open node for `located`, counting one handle more.

        Args:
            located: the node; one of a repository need not be stored before it is written.
            objects: that repository's.
        """
        node_id = located.record.id
        node = self._open.get(node_id)
        if node is None:
            node = self._open[node_id] = OpenNode(self, located, objects)
        node.handles += 1
        return node

    def is_open(self, node_id: int) -> bool:
        """Tell whether this process has the node open."""
        return node_id in self._open

    def open_nodes(self) -> list[int]:
        """Return the ids of all nodes that this process has open."""
        return list(self._open)

    def known(self, node_id: int) -> Record:
        """Return the record of an open node, the last one known once it is dropped."""
        return self._open[node_id].record()

    def set_scratch_times(self, txn: Reader, node_id: int, atime: int, mtime: int) -> None:
        """Give a node's scratch file new times, in nanoseconds."""
        found = scratch_record(txn, node_id)
        if found is not None:
            os.utime(self.instance.scratches.path(found.serial), ns=(atime, mtime))

    def forget(self, node_id: int) -> None:
        """Drop the open node (its last handle is gone)."""
        self._open.pop(node_id, None)


class OpenNode:
    """One regular file that this process has open through any number of handles."""

    def __init__(self, files: OpenFiles, located: Located, objects: Objects | None) -> None:
        self._files = files
        self._instance = files.instance
        self._kv = files.instance.kv
        self.id = located.record.id
        self.handles = 0
        self.actor = "-"
        self.publication: ScratchPublication | None = None
        self._objects = objects
        self._known = located.record
        self._changed = False
        self._scratch: Scratch | None = None
        self._append_fd: int | None = None
        self._readers: dict[bytes, Reading] = {}
        self._reading: Reading | None = None
        self._prepared: tuple[bytes, Path] | None = None

    # Reading.

    def record(self) -> Record:
        """Return the node's record as it is now, the last one known once it is dropped."""
        with self._kv.read() as txn:
            return current(self._instance, txn, self._load(txn))

    def _load(self, txn: Reader) -> Record:
        try:
            self._known = nodes.locate(txn, self.id).record
        except FileNotFoundError:
            return self._known
        return self._known

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        """Return bytes, or None where the disk would have to be waited for."""
        if self._scratch is not None:
            self._reading = ScratchReader(self._scratch.fd)
        else:
            with self._kv.read() as txn:
                record = self._load(txn)
                small = self._small(txn, record)
                if small is not None:
                    return small[offset : offset + size]
                self._reading = self._large(txn, record, offset, size)
        return self._reading.read_nowait(offset, size)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file that `read_nowait` last could not answer from. May block."""
        assert self._reading is not None
        return self._reading.read(offset, size)

    def _small(self, txn: Reader, record: Record) -> bytes | None:
        state = record.content_state
        if state == State.CLEAN:
            return self._instance.content.small(txn, record.tail)
        if state == State.DRAFT:
            draft = txn.get(keys.draft(self.id))
            if draft is None:
                raise _lost(record)
            return draft
        if state == State.OBJECT and self._objects is not None:
            return self._objects.small(record.tail, record.size)
        return None

    def _large(
        self, txn: Reader, record: Record, offset: int, size: int
    ) -> Reading:
        """Return a reader of the large content, kept until the last handle goes.

        It is ready for `size` bytes at `offset`.
        """
        if record.content_state == State.OBJECT:
            assert self._objects is not None
            return self._readers.setdefault(record.tail, ObjectReader(self._objects, record.tail))
        if record.content_state == State.CLEAN:
            content = self._readers.get(record.tail)
            if not isinstance(content, LargeContent):
                try:
                    content = self._instance.content.open_large(record.tail, record.size)
                except FileNotFoundError:
                    raise _lost(record) from None
                self._readers[record.tail] = content
            content.prepare(txn, offset, size)
            return content
        found = scratch_record(txn, self.id)
        if found is None:
            raise _lost(record)
        key = keys.number(found.serial)
        reader = self._readers.get(key)
        if reader is None:
            try:
                path = self._instance.scratches.path(found.serial)
                reader = ScratchReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except FileNotFoundError:
                raise _lost(record) from None
            self._readers[key] = reader
        return reader

    # Writing.

    def pending_copy(self) -> Callable[[], None] | None:
        """Return the copying that the next write would have to do, if it is a long one."""
        if self._scratch is not None or self._prepared is not None:
            return None
        if self._known.content_state == State.DRAFT:
            return None  # a draft is small until a write makes it a scratch
        with self._kv.read() as txn:
            record = self._load(txn)
            if record.size <= INLINE_MAX:
                return None
            if record.content_state == State.OBJECT:
                return lambda: self._prepare(record)
            if record.content_state != State.CLEAN:
                return None
            sums = blocks.stored(txn, record.tail, record.size)

        def copy() -> None:
            self._prepared = (record.tail, self._copy(record, sums))

        return copy

    def _prepare(self, record: Record) -> None:
        """Copy an object out of its repository, for a scratch to begin with."""
        assert self._objects is not None
        fd = self._objects.open(record.tail)
        try:
            source = Path(f"/proc/self/fd/{fd}")
            self._prepared = (record.tail, self._instance.scratches.copy(source, record.size))
        finally:
            os.close(fd)

    def write(self, offset: int, data: bytes, *, append: bool) -> int:
        """Write all of `data` and return its length.

        Raises:
            OSError: among others EFBIG.
        """
        check_size(offset + len(data))
        if self._scratch is None and self._write_draft(offset, data, append):
            return len(data)
        assert self._scratch is not None
        self._changed = True
        if append:
            check_size(os.fstat(self._scratch.fd).st_size + len(data))
            _write_all(self._appending(self._scratch), data)
        else:
            _pwrite_all(self._scratch.fd, data, offset)
        self._instance.touch(self.id)
        return len(data)

    def _write_draft(self, offset: int, data: bytes, append: bool) -> bool:
        """Write to the draft; or give the node a scratch and return False."""
        with self._kv.write() as txn:
            located = self._stored(txn)
            if append:
                offset = current(self._instance, txn, located.record).size
            old = self._small(txn, located.record)
            if old is None or max(len(old), offset + len(data)) > INLINE_MAX:
                self._enter_scratch(txn, located, old)
                return False
            if offset > len(old):
                old = old.ljust(offset, b"\0")
            self._put_draft(txn, located, old[:offset] + data + old[offset + len(data) :])
            return True

    def _stored(self, txn: Writer) -> Located:
        if self._objects is None or txn.get(keys.node(self.id)) is not None:
            return nodes.locate(txn, self.id)
        return self._objects.store(txn)

    def _put_draft(self, txn: Writer, located: Located, data: bytes) -> None:
        txn.put(keys.draft(self.id), data)
        record = located.record
        before = self._hash_before(record)
        changed = record.with_content(State.DRAFT, len(data), before, time.time_ns())
        nodes.update(txn, located, changed)
        self._changed = True
        self._instance.touch(self.id)

    def truncate(self, size: int) -> None:
        """Set the file's size; new bytes are zero and take no room.

        Raises:
            OSError: among others EFBIG.
        """
        check_size(size)
        if self._scratch is None:
            with self._kv.write() as txn:
                located = self._stored(txn)
                if located.record.content_state != State.SCRATCH and size <= INLINE_MAX:
                    head = self._head(txn, located.record, size)
                    self._put_draft(txn, located, head.ljust(size, b"\0"))
                    return
                self._enter_scratch(txn, located, self._small(txn, located.record))
        assert self._scratch is not None
        os.ftruncate(self._scratch.fd, size)
        self._changed = True
        self._instance.touch(self.id)

    def replace(self, data: bytes) -> None:
        """Make `data` the whole content; in one step if it is small."""
        if self._scratch is None and len(data) <= INLINE_MAX:
            with self._kv.write() as txn:
                located = self._stored(txn)
                if located.record.content_state != State.SCRATCH:
                    self._put_draft(txn, located, data)
                    return
        self.truncate(0)
        self.write(0, data, append=False)

    def _head(self, txn: Reader, record: Record, size: int) -> bytes:
        if size == 0:
            return b""
        small = self._small(txn, record)
        if small is not None:
            return small[:size]
        return self._large(txn, record, 0, size).read(0, size)

    def _enter_scratch(self, txn: Writer, located: Located, small: bytes | None) -> None:
        """Begin the node's scratch, or join the one it has."""
        found = scratch_record(txn, self.id)
        if found is not None and located.record.content_state == State.SCRATCH:
            scratch = self._instance.scratches.join(found.serial)
            if not scratch.is_content:
                self._scratch = scratch
                put_scratch_record(txn, self.id, found._replace(joined=found.joined + 1))
                return
            scratch.close()
            size = scratch.path.stat().st_size
            base: Path | bytes = self._instance.scratches.copy(scratch.path, size)
        else:
            base = small if small is not None else self._take_copy(txn, located.record)
        serial = nodes.new_id(txn)
        self._scratch = self._instance.scratches.begin(serial, base)
        put_scratch_record(txn, self.id, ScratchRecord(serial, 1))
        txn.delete(keys.draft(self.id))
        record = located.record
        before = self._hash_before(record)
        changed = record.with_content(State.SCRATCH, 0, before, time.time_ns())
        nodes.update(txn, located, changed)

    def _hash_before(self, record: Record) -> bytes:
        """Return the SHA-256 before the first change; none is known of a large object's bytes."""
        if record.content_state != State.OBJECT or self._objects is None:
            return record.tail
        small = self._objects.small(record.tail, record.size)
        return EMPTY_SHA256 if small is None else hash_of(small).digest()

    def _take_copy(self, txn: Reader, record: Record) -> Path:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == record.tail:
            return prepared[1]
        if prepared is not None:
            prepared[1].unlink()
        if record.content_state == State.OBJECT:
            self._prepare(record)
            return self._take_copy(txn, record)
        return self._copy(record, blocks.stored(txn, record.tail, record.size))

    def _copy(self, record: Record, sums: bytes) -> Path:
        """Copy the node's large content to write in it; what is damaged is not carried on."""
        source = self._instance.content.path(record.tail)
        try:
            copy = self._instance.scratches.copy(source, record.size)
        except FileNotFoundError:
            raise _lost(record) from None
        try:
            with copy.open("rb") as reader:
                blocks.verify(reader.fileno(), sums, record.tail)
        except BaseException:
            copy.unlink()
            raise
        return copy

    def _appending(self, scratch: Scratch) -> int:
        if self._append_fd is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
            self._append_fd = os.open(f"/proc/self/fd/{scratch.fd}", flags)
        return self._append_fd

    # Publishing.

    def flush(self) -> None:
        """Make a draft into content; a scratch file survives this process as it is."""
        if not self._changed or self._scratch is not None:
            return
        with self._kv.write() as txn:
            try:
                located = nodes.locate(txn, self.id)
            except FileNotFoundError:
                return
            if located.record.content_state == State.DRAFT:
                publish_draft(self._instance, txn, located, self.actor)
        self._changed = False

    def sync_data(self) -> None:
        """Send a scratch file's bytes to disk. May block."""
        if self._scratch is not None:
            os.fdatasync(self._scratch.fd)

    def release(self) -> ScratchPublication | None:
        """Count one handle less; return what is left to do for a changed large file."""
        self.handles -= 1
        if self.handles:
            return None
        if self._scratch is not None:
            self.publication = ScratchPublication(self, self._scratch)
            return self.publication
        try:
            self.flush()
        finally:
            self.discard()
        return None

    def discard(self) -> None:
        """Close every descriptor; the node is not open any more."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        if self._append_fd is not None:
            os.close(self._append_fd)
            self._append_fd = None
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
        if self._prepared is not None:
            self._prepared[1].unlink(missing_ok=True)
            self._prepared = None
        self._files.forget(self.id)

    @property
    def instance(self) -> Instance:
        """The instance that the node belongs to."""
        return self._instance


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _pwrite_all(fd: int, data: bytes, offset: int) -> None:
    done = os.pwrite(fd, data, offset)
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], offset + done)


def _lost(record: Record) -> OSError:
    return OSError(errno.EIO, f"the content of node {record.id} is missing")
