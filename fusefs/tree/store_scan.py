"""Going through many nodes of an instance at once, and reading many of its files."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from fusefs.contract.kinds import Kind
from fusefs.store import keys
from fusefs.store.instance import Instance
from fusefs.store.kv import KV, Reader, after_prefix
from fusefs.store.records import SUMMARY, TAIL, State
from fusefs.tree.backend import (
    READ_AT_ONCE,
    SCAN_PAGE,
    File,
    Found,
    Read,
    Scanned,
    join_up_to,
    publish,
)

_NAME_AT = len(keys.entries(0))
_MOST_KEPT = 50_000
"""Entries, of some 300 bytes."""
_CHUNK = 1 << 20
_KINDS = (Kind.DIR, *Kind)
_FILE = Kind.FILE
_STATES = 3
_CLEAN = int(State.CLEAN)
_summary = SUMMARY.unpack_from
_new = tuple.__new__


class Listings:
    """What is in directories, kept for the next search as long as nothing in the store changes."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._stamp: Hashable = None
        self._pages: dict[tuple[int, bytes], list[Scanned]] = {}
        self._kept = 0

    def scan(self, directory: int, after: bytes) -> list[Scanned]:
        """Return at most `SCAN_PAGE` entries of a directory, those after the name `after`."""
        with self._kv.read() as txn:
            if txn.stamp is None or txn.stamp != self._stamp or self._kept > _MOST_KEPT:
                self._stamp, self._kept = txn.stamp, 0
                self._pages.clear()
            page = self._pages.get((directory, after))
            if page is None:
                page = self._pages[directory, after] = _read(txn, directory, after)
                self._kept += 1 + len(page)
        return page


def _read(txn: Reader, directory: int, after: bytes) -> list[Scanned]:
    prefix = keys.entries(directory)
    start = prefix + after + b"\0" if after else prefix
    found = []
    for key, raw in islice(txn.range(start, after_prefix(prefix)), SCAN_PAGE):
        kind, state, size, node_id = _summary(raw)
        # Nearly all; there are so many that a call less for each can be felt.
        if kind == _FILE and state & _STATES == _CLEAN:
            found.append(_new(Scanned, (key[_NAME_AT:], _FILE, node_id, size, raw[TAIL:])))
        else:
            found.append(scanned(key[_NAME_AT:], raw[TAIL:], kind, state, size, node_id))
    return found


def scanned(name: bytes, tail: bytes, kind: int, state: int, size: int, node_id: int) -> Scanned:
    """Return an entry with what is in its record."""
    state &= _STATES
    if kind == _FILE:
        if state in (_CLEAN, State.OBJECT):
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
    """Return what is in files, up to the first that its hash does not lead to."""
    found: list[Read] = []
    total, whole = 0, instance.content.whole
    with instance.kv.read() as txn:
        for _, entry in files:
            size, sha256 = entry.size, entry.content
            if size is None or sha256 is None:
                return found, entry
            if size > limit:
                found.append(size)
                continue
            try:
                read = whole(txn, sha256, size)
            except OSError as error:
                found.append(error)
                continue
            if read is None:
                return found, entry
            found.append(read)
            total += size
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
