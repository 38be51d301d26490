"""Going through many nodes of an instance at once, and reading many of its files."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from fusefs.contract.kinds import Kind
from fusefs.store import keys
from fusefs.store.instance import Instance
from fusefs.store.kv import KV, after_prefix
from fusefs.store.records import SUMMARY, TAIL, State
from fusefs.tree.backend import (
    READ_AT_ONCE,
    File,
    Found,
    Read,
    Scanned,
    join_up_to,
    publish,
)

_PAGE = 1000
_CHUNK = 1 << 20
_KINDS = (Kind.DIR, *Kind)
_FILE = Kind.FILE
_STATES = 3
_TELL_CONTENT = (State.CLEAN, State.OBJECT)
_summary = SUMMARY.unpack_from


def scan(kv: KV, directory: int) -> Iterator[list[Scanned]]:
    """Yield the entries of a directory; no transaction is open meanwhile."""
    prefix = keys.entries(directory)
    start, end, skip = prefix, after_prefix(prefix), len(prefix)
    while True:
        with kv.read() as txn:
            page = list(islice(txn.range(start, end), _PAGE))
        if page:
            yield [scanned(key[skip:], raw[TAIL:], *_summary(raw)) for key, raw in page]
        if len(page) < _PAGE:
            return
        start = page[-1][0] + b"\0"


def scanned(name: bytes, tail: bytes, kind: int, state: int, size: int, node_id: int) -> Scanned:
    """Return an entry with what is in its record."""
    state &= _STATES
    if kind == _FILE:
        if state in _TELL_CONTENT:
            return Scanned(name, _FILE, node_id, size, tail)
        return Scanned(name, _FILE, node_id, None if state == State.SCRATCH else size, None)
    is_object = kind == Kind.SYMLINK and state == State.OBJECT
    return Scanned(name, _KINDS[kind], node_id, None, tail if is_object else None)


class Openable(Protocol):
    """What of a backend is needed to read a file."""

    def open_file(self, key: Hashable, *, write: bool) -> File:
        """Open the regular file `key`."""
        ...

    def read_link(self, key: Hashable) -> bytes:
        """Return the target of the symbolic link `key`."""
        ...


def read_files(
    backend: Openable, instance: Instance, files: Sequence[Found], limit: int
) -> list[Read]:
    """Do what `Backend.read_files` does, for nodes that are stored."""
    found, rest = _read_small(instance, files, limit)
    if rest is not None:
        found.append(_read_now(backend, rest, limit))
    return found


def _read_small(
    instance: Instance, files: Sequence[Found], limit: int
) -> tuple[list[Read], Scanned | None]:
    """Return what is in the ordered store of files, up to the first that is not there."""
    found: list[Read] = []
    total, small = 0, instance.content.small
    with instance.kv.read() as txn:
        for _, entry in files:
            read: Read | None = None
            if entry.size is not None and entry.size > limit:
                read = entry.size
            elif entry.content is not None:
                try:
                    read = small(txn, entry.content)
                except OSError as error:
                    read = error
            if read is None:
                return found, entry
            found.append(read)
            total += entry.size or 0
            if total > READ_AT_ONCE:
                break
    return found, None


def _read_now(backend: Openable, entry: Scanned, limit: int) -> Read:
    try:
        if entry.kind == Kind.SYMLINK:
            return backend.read_link(entry.key)
        file = backend.open_file(entry.key, write=False)
    except OSError as error:
        return error
    try:
        size = file.node().size
        return size if size > limit else join_up_to(limit, _pieces(file))
    except OSError as error:
        return error
    finally:
        publish(file.close())


def _pieces(file: File) -> Iterator[bytes]:
    offset = 0
    while True:
        piece = file.read_nowait(offset, _CHUNK)
        if piece is None:
            piece = file.read(offset, _CHUNK)
        if not piece:
            return
        yield piece
        offset += len(piece)
