"""Whether the pages of LMDB's file hang together as LMDB left them.

Values have seals; what leads to them has none. A turned bit in a count, an offset or a page's
number can hide keys, or lead LMDB to write where it must not. So the list of free pages and the
branch pages are looked at when the file is opened, and a leaf page before it is asked for what is
*not* there, and before LMDB writes in it. What was once found sound stays so: whatever comes to be
there later, LMDB has made of sound pages.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import lmdb
from xxhash import xxh3_64_digest

from fusefs.store.lmdb_meta import damaged, read_metas
from fusefs.store.lmdb_pages import (
    BEHIND,
    Branch,
    Broken,
    Meta,
    Tree,
    big_page,
    check_big,
    read_big,
    read_branch,
    read_children,
    read_keys,
    read_leaf,
    read_page,
)
from fusefs.store.redo import WriteSet

_MOST_BRANCHES = 256
"""Where there are more, they too are looked at when they are come to: opening must not take the
longer the more there is."""
_MOST_KEPT = 1024
_TRIES = 20
_MOST_RANGES = 10_000


def first_damage(file: Path) -> str | None:
    """Return what is wrong with the pages of a file that LMDB need not have open; slow.

    Raises:
        Damaged: its meta pages are none.
    """
    soundness = Soundness(file)
    try:
        return soundness.first_damage()
    finally:
        soundness.close()


class Soundness:
    """What is known of one file. Not for several threads."""

    def __init__(self, file: Path, *, only: lmdb.Transaction | None = None) -> None:
        """Begin without knowing anything.

        Args:
            file: the file, whose meta pages were looked at.
            only: the one transaction that will be asked for, a new one; it may get old.
        """
        self._fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        self._last: Meta | None = None
        self._only = None if only is None else self._meta(only)
        self._sound = _Ranges()
        self._whole = _Ranges()
        self._branches: dict[int, tuple[bytes, Branch]] = {}
        self.ways_are_sound = False
        """All branch pages are: LMDB can look for a key that is there, without more ado."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def check_free(self, txn: lmdb.Transaction) -> None:
        """Look at the list of free pages, and at the branch pages, if they are not many.

        Raises:
            Damaged: LMDB must not write to this file, or not even read it.
        """
        try:
            meta = self._meta(txn)
            if meta is not None:
                self._check_free(meta, with_branches=meta.main.branches <= _MOST_BRANCHES)
        except (Broken, struct.error) as error:
            raise damaged(error) from None

    def _check_free(self, meta: Meta, *, with_branches: bool) -> None:
        used, free = free_pages(self._fd, meta)
        if with_branches:
            branches, leaves = _tree_pages(self._fd, meta, meta.main)
            used += branches + leaves
            self.ways_are_sound = True
        listed = set(free)
        if len(listed) != len(free):
            raise Broken("the list of free pages has one twice")
        if len(set(used)) != len(used):
            raise Broken("two ways lead to one page")
        if not listed.isdisjoint(used):
            raise Broken("a page in use is in the list of free pages")

    def first_damage(self, *, free: bool = True) -> str | None:
        """Return what is wrong with any page; with `free`, of the list of free pages too.

        Raises:
            Damaged: the meta pages are none.
        """
        for _ in range(_TRIES):
            try:
                metas = read_metas(self._fd)
            except Broken as error:
                raise damaged(error) from None
            meta = max(metas, key=lambda meta: meta.transaction)
            try:
                if free:
                    self._check_free(meta, with_branches=True)
                key = b"" if meta.main.depth else BEHIND
                while key < BEHIND:
                    key = self._descend(meta, key)
            except (Broken, struct.error) as error:
                # Others may have written meanwhile, and pages been used again.
                if read_metas(self._fd) == metas:
                    return str(error)
            else:
                break
        return None

    def until(self, key: bytes, txn: lmdb.Transaction) -> bytes:
        """Make sure that the page where `key` has its place is sound.

        Returns:
            The key up to which all pages from there on are known to be.

        Raises:
            Damaged: it is not.
        """
        end = self._sound.end(key)
        return self._look(key, txn) if end is None else end

    def check_writes(self, writes: WriteSet, txn: lmdb.Transaction) -> None:
        """Make sure that LMDB finds sound pages where it is going to write in `txn`.

        Raises:
            Damaged: it does not.
        """
        for key in writes:
            self.until(key, txn)

    def _look(self, key: bytes, txn: lmdb.Transaction) -> bytes:
        meta = self._only or self._meta(txn)
        if meta is None or not meta.main.depth:
            return BEHIND
        try:
            return self._descend(meta, key)
        except (Broken, struct.error) as error:
            raise damaged(error) from None

    def _meta(self, txn: lmdb.Transaction) -> Meta | None:
        """Return what `txn` begins from; None where that is too old to be found."""
        wanted = txn.id()
        if self._last is not None and self._last.transaction == wanted:
            return self._last
        found = {meta.transaction: meta for meta in read_metas(self._fd)}
        self._last = found.get(wanted)
        # One that writes has a number of its own.
        return self._last or found.get(wanted - 1)

    def _descend(self, meta: Meta, key: bytes) -> bytes:
        """Look at the page of `key`, and at those beside it: what bounds it could be damaged, and
        keys of theirs be looked for here."""
        start, end = self._look_at(meta, key, bisect_right)
        if start and not self._whole.reach(start):
            self._look_at(meta, start, bisect_left)
        if end < BEHIND and self._whole.end(end) is None:
            self._look_at(meta, end, bisect_right)
        self._sound.add(start, end)
        return self._sound.end(key) or end

    def _look_at(
        self, meta: Meta, key: bytes, bisect: Callable[[list[bytes], bytes], int]
    ) -> tuple[bytes, bytes]:
        """Look at the pages on the way to `key`, with `bisect_left` to what is before it.

        Returns:
            What the keys of the leaf page are not less than, and what they are less than.
        """
        number, start, end = meta.main.root, b"", BEHIND
        for depth in range(1, meta.main.depth):
            branch = self._branch(meta, number, start, end)
            bounds = [start, *branch.separators, end]
            at = bisect(branch.separators, key)
            if depth < meta.main.depth - 1 and not self.ways_are_sound:
                # Where something is deleted, pages that stand side by side may be joined.
                for near in (at - 1, at + 1):
                    if 0 <= near < len(branch.children):
                        self._branch(meta, branch.children[near], bounds[near], bounds[near + 1])
            number, start, end = branch.children[at], bounds[at], bounds[at + 1]
        if not self._whole.covers(start, end):
            self._leaf(meta, number, start, end)
        return start, end

    def _branch(self, meta: Meta, number: int, start: bytes, end: bytes) -> Branch:
        raw = read_page(self._fd, meta, number, is_leaf=False)
        kept, digest = self._branches.get(number), xxh3_64_digest(raw)
        if kept is None or kept[0] != digest:
            if len(self._branches) >= _MOST_KEPT:
                self._branches.clear()
            kept = self._branches[number] = digest, read_branch(raw, number)
        separators = kept[1].separators
        if separators[0] < start or separators[-1] >= end:
            raise Broken(f"page {number} has keys of another one")
        return kept[1]

    def _leaf(self, meta: Meta, number: int, start: bytes, end: bytes) -> None:
        raw = read_page(self._fd, meta, number, is_leaf=True)
        keys, big = read_keys(raw, number)
        if keys[0] < start or keys[-1] >= end:
            raise Broken(f"page {number} has keys of another one")
        for node in big:
            check_big(self._fd, meta, big_page(raw, node), node.size)
        self._whole.add(start, end)


class _Ranges:
    """Ranges of keys; those that touch become one."""

    def __init__(self) -> None:
        self._starts: list[bytes] = []
        self._ends: list[bytes] = []

    def end(self, key: bytes) -> bytes | None:
        """Return the end of the range that `key` is in."""
        at = bisect_right(self._starts, key) - 1
        return self._ends[at] if at >= 0 and key < self._ends[at] else None

    def covers(self, start: bytes, end: bytes) -> bool:
        """Tell whether a whole range is in one."""
        found = self.end(start)
        return found is not None and found >= end

    def reach(self, end: bytes) -> bool:
        """Tell whether what is right before `end` is in a range."""
        at = bisect_left(self._starts, end) - 1
        return at >= 0 and self._ends[at] >= end

    def add(self, start: bytes, end: bytes) -> None:
        """Add a range."""
        if len(self._starts) >= _MOST_RANGES:
            # They are found again.
            self._starts.clear()
            self._ends.clear()
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]


def _tree_pages(fd: int, meta: Meta, tree: Tree) -> tuple[list[int], list[int]]:
    """Return the branch and the leaf pages of a tree."""
    branches: list[int] = []
    level = [tree.root] if tree.depth else []
    for _ in range(1, tree.depth):
        branches += level
        if len(branches) > tree.branches:
            break
        level = [
            child
            for number in level
            for child in read_children(read_page(fd, meta, number, is_leaf=False), number)
        ]
    if len(branches) != tree.branches or len(level) != tree.leaves:
        raise Broken("a tree has another number of pages than its meta page says")
    return branches, level


# Pages that LMDB takes for free it overwrites, and a list of them that it cannot read ends
# the process.


def free_pages(fd: int, meta: Meta) -> tuple[list[int], list[int]]:
    """Return the pages that hold the lists of free pages, and those that they name.

    Raises:
        Broken: they are not as LMDB writes them.
    """
    branches, leaves = _tree_pages(fd, meta, meta.free)
    used, free, before = branches + leaves, [], 0
    for number in leaves:
        raw = read_page(fd, meta, number, is_leaf=True)
        for node in read_leaf(raw, number):
            transaction = int.from_bytes(node.key, "little")
            if len(node.key) != 8 or not before < transaction <= meta.transaction:
                raise Broken("a list of free pages is of no transaction")
            before = transaction
            listed = raw[node.data : node.data + node.size]
            if node.is_big:
                pages = check_big(fd, meta, big_page(raw, node), node.size)
                used += pages
                listed = read_big(fd, meta, pages[0], node.size)
            free += _listed(meta, listed)
    return used, free


def _listed(meta: Meta, raw: bytes) -> list[int]:
    numbers = memoryview(raw).cast("Q").tolist() if len(raw) % 8 == 0 and raw else [-1]
    count, pages = numbers[0], numbers[1:]
    if count != len(pages):
        raise Broken("a list of free pages")
    if pages and (pages[0] > meta.last_page or pages[-1] < 2):
        raise Broken("a list of free pages names a page that is not in the file")
    if any(page <= lower for page, lower in pairwise(pages)):
        raise Broken("a list of free pages is out of order")
    return pages
