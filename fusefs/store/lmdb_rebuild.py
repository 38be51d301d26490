"""Building the ordered store's file anew, where its pages do not hang together any more.

What leads to the values has no seal, but is not needed to find them either: LMDB packs the nodes
of a page without gaps, counts the pages and the entries of a tree, lists the pages that are free,
and every value tells which key it is of. So all pairs are taken out of the pages below the root.
If none is missing, damaged, twice there or of an old page, they are all that was stored, and a new
file is made of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import lmdb

from fusefs.store import keys
from fusefs.store.kv_copy import opened_alone
from fusefs.store.lmdb_meta import look, read_metas, set_transaction
from fusefs.store.lmdb_pages import (
    Broken,
    Node,
    big_page,
    big_pages,
    check_big,
    children_pointed_at,
    read_big,
    read_children,
    read_leaf,
    read_page,
    repaired,
)
from fusefs.store.lmdb_soundness import Soundness, first_damage, free_pages
from fusefs.store.redo import RedoLog
from fusefs.store.seal import Damaged, seal, unseal
from fusefs.store.upgrades import FORMAT, alone

_NEW = "data.new"
_LEAST_MAP_BYTES = 64 << 30
_BYTES_AT_ONCE = 8 << 20


def rebuild(folder: Path, progress: Callable[[str], None]) -> None:
    """Put a new ``data.mdb`` in the place of a damaged one, which becomes ``data.mdb.damaged``.

    What a process that died left in the redo log is stored as well.

    Raises:
        InUse: another process has the instance open.
        Damaged: something is lost; nothing was changed.
        OSError: ENOSPC and the like; nothing was changed.
    """
    file, new = folder / "data.mdb", folder / _NEW / "data.mdb"
    with alone(folder, progress):
        shutil.rmtree(new.parent, ignore_errors=True)
        new.parent.mkdir(mode=0o700)
        try:
            _write(file, new, progress)
            look(new)
            if wrong := first_damage(new):
                raise Broken(f"of the new file, {wrong}")
            aside = folder / "data.mdb.damaged"
            aside.unlink(missing_ok=True)
            aside.hardlink_to(file)
            new.rename(file)
            _sync(folder)
        except (Broken, struct.error) as error:
            raise Damaged(f"the store's file data.mdb ({error})", "something is lost") from None
        finally:
            shutil.rmtree(new.parent, ignore_errors=True)


def _write(file: Path, new: Path, progress: Callable[[str], None]) -> None:
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        old = _Old(fd, file)
        left = _left_in_log(file.parent, old.meta.transaction + 1)
        with opened_alone(new.parent, map_bytes=max(_LEAST_MAP_BYTES, 4 * old.bytes)) as target:
            done = 0
            for pairs, size in _chunks(old.pairs()):
                with target.begin(write=True) as txn, txn.cursor() as cursor:
                    cursor.putmulti(pairs, append=True)
                done += size
                progress(f"building the store anew: {done >> 20} MiB")
            with target.begin(write=True) as txn:
                for key, value in left.items():
                    if value is None:
                        txn.delete(key)
                    else:
                        txn.put(key, seal(key, value))
            with target.begin(write=True) as txn:
                number = _number_behind(old.meta.transaction + 1, txn)
                txn.put(keys.META_COMMIT, seal(keys.META_COMMIT, keys.number(number)))
            target.sync(True)
        set_transaction(new, number)
    finally:
        os.close(fd)


def _number_behind(batch: int, txn: lmdb.Transaction) -> int:
    """Return a number for `txn` behind `batch`, so that the redo log's records are old ones."""
    return batch + 1 + (batch + 1 - txn.id()) % 2


def _left_in_log(folder: Path, batch: int) -> dict[bytes, bytes | None]:
    """Return what a process that died acknowledged and did not commit."""
    log = RedoLog(folder / "redo.log")
    try:
        left: dict[bytes, bytes | None] = {}
        for writes in log.mutations(batch):
            left.update(writes)
        log.set_aside(batch)
        return left
    finally:
        log.close()


class _Old:
    """The damaged file.

    Attributes:
        meta: its newest meta page.
        bytes: of its pages.
    """

    def __init__(self, fd: int, file: Path) -> None:
        """Find the pages that hold pairs, in the order of their keys.

        Raises:
            Broken: they cannot be all that there were, or are not the newest.
        """
        self._fd = fd
        old, self.meta = sorted(read_metas(fd), key=lambda meta: meta.transaction)
        if self.meta.transaction - old.transaction != 1:
            raise Broken("the meta pages are not of two transactions in turn")
        self.bytes = self.meta.last_page * self.meta.page_size
        self._entries = 0
        self._big: list[int] = []
        self._found: list[tuple[bytes, bytes, int]] = []
        taken, leaves = self._ways()
        taken |= self._free(file)
        for number in set(leaves) - taken:
            with contextlib.suppress(Broken, struct.error):
                self._read(number)
        self._read_lost(taken)
        self._found.sort()
        self._check_all(taken)

    def _ways(self) -> tuple[set[int], list[int]]:
        """Return the branch pages, and the leaf pages that they lead to."""
        main = self.meta.main
        branches, level = list[int](), [main.root] if main.depth else []
        for _ in range(1, main.depth):
            branches += level
            level = [
                child
                for number in level
                for child in self._children(number)
            ]
            if len(branches) > main.branches:
                break
        if len(set(branches)) != main.branches:
            raise Broken("two ways lead to one page")
        return set(branches), level

    def _children(self, number: int) -> list[int]:
        try:
            return read_children(self._page(number, is_leaf=False), number)
        except Broken:
            # Its keys are of no interest here, and so neither are their lengths.
            raw = read_page(self._fd, self.meta, number, is_leaf=False)
            return children_pointed_at(raw, number)

    def _free(self, file: Path) -> set[int]:
        """Return the free pages: only their list tells that a page is an old one. If it is the
        list that is damaged, nothing else may be."""
        try:
            return set(free_pages(self._fd, self.meta)[1])
        except (Broken, struct.error):
            soundness = Soundness(file)
            try:
                if wrong := soundness.first_damage(free=False):
                    raise Broken(f"{wrong}, and the list of free pages") from None
            finally:
                soundness.close()
            return set()

    def _read(self, number: int) -> None:
        """Take in a leaf page."""
        raw, nodes = self._leaf(number)
        big: list[int] = []
        for node in nodes:
            if node.is_big:
                first = big_page(raw, node)
                try:
                    big += check_big(self._fd, self.meta, first, node.size)
                except Broken:
                    big += big_pages(self.meta, first, node.size)
        self._big += big
        self._entries += len(nodes)
        self._found.append((nodes[0].key, nodes[-1].key, number))

    def _read_lost(self, taken: set[int]) -> None:
        """Take in the one leaf page to which no way leads: it is the one that nothing else is."""
        if len(self._found) == self.meta.main.leaves - 1:
            known = {number for _, _, number in self._found}
            used = known.union(taken, self._big, free_pages(self._fd, self.meta)[0])
            lost = set(range(2, self.meta.last_page + 1)) - used
            if len(lost) == 1:
                self._read(lost.pop())

    def _check_all(self, taken: set[int]) -> None:
        if len(self._found) != self.meta.main.leaves:
            raise Broken("pages are lost")
        if self._entries != self.meta.main.entries:
            raise Broken("it has another number of entries than its meta page says")
        if any(last >= first for (_, last, _), (first, _, _) in pairwise(self._found)):
            raise Broken("pages have the same keys")
        used = [number for _, _, number in self._found] + self._big
        if len(set(used)) != len(used) or not taken.isdisjoint(used):
            raise Broken("a page in use is in the list of free pages")

    def _page(self, number: int, *, is_leaf: bool) -> bytes:
        try:
            raw = read_page(self._fd, self.meta, number, is_leaf=is_leaf)
            (read_leaf if is_leaf else read_children)(raw, number)
        except (Broken, struct.error):
            size = self.meta.page_size
            if number > self.meta.last_page:
                raise
            raw = os.pread(self._fd, size, number * size)
            if len(raw) != size:
                raise
            return repaired(raw, number, is_leaf=is_leaf)
        return raw

    def _leaf(self, number: int) -> tuple[bytes, list[Node]]:
        raw = self._page(number, is_leaf=True)
        return raw, sorted(read_leaf(raw, number), key=lambda node: node.key)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all pairs in order, but for the mark of the transaction.

        Raises:
            Broken: they are not of the newest transaction, or of another format.
            Damaged: a value is not what was stored.
        """
        for _, _, number in self._found:
            raw, nodes = self._leaf(number)
            for node in nodes:
                stored = raw[node.data : node.data + node.size]
                if node.is_big:
                    stored = read_big(self._fd, self.meta, big_page(raw, node), node.size)
                if node.key == keys.META_UPGRADE:
                    raise Broken("an upgrade has not come to its end")
                value = unseal(node.key, memoryview(stored))
                if node.key == keys.META_FORMAT and keys.to_number(value) != FORMAT:
                    raise Broken("it has another format")
                if node.key != keys.META_COMMIT:
                    yield node.key, stored
                elif keys.to_number(value) != self.meta.transaction:
                    raise Broken("a meta page is not of the transaction that it names")


def _chunks(
    pairs: Iterator[tuple[bytes, bytes]],
) -> Iterator[tuple[list[tuple[bytes, bytes]], int]]:
    """Yield pairs some at a time, with their size in bytes."""
    chunk: list[tuple[bytes, bytes]] = []
    size = 0
    for key, stored in pairs:
        chunk.append((key, stored))
        size += len(key) + len(stored)
        if size > _BYTES_AT_ONCE:
            yield chunk, size
            chunk, size = [], 0
    yield chunk, size


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
