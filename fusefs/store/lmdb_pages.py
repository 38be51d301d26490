"""LMDB's file, read page by page without LMDB.

LMDB trusts its file: a turned bit in a meta page gives an old state for the new one, or kills
the process. So before LMDB opens a file, its two meta pages are held against what they lead to.
Layouts are those of ``mdb.c`` in LMDB 0.9 on a 64-bit machine.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from lmdb import verify

from fusefs.store import keys
from fusefs.store.seal import Damaged, unseal

_PAGE_HEADER = 16
_META = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
_META_PAGE, _BRANCH, _LEAF, _OVERFLOW = 0x08, 0x01, 0x02, 0x04
_BIG_DATA = 0x01
_NO_PAGE = 2**64 - 1
_DEEPEST = 32
_TRIES = 50
_NUMBER = struct.Struct("<Q")
_HEADER = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")


class _Broken(Exception):
    """The file is not as LMDB writes it."""


class _Tree(NamedTuple):
    depth: int
    root: int


class _Meta(NamedTuple):
    page_size: int
    free: _Tree
    main: _Tree
    last_page: int
    transaction: int


class Found(NamedTuple):
    """What a file says of itself.

    Attributes:
        format: the instance's format, None where it has none.
        upgrading: an upgrade has begun and not come to its end.
    """

    format: int | None
    upgrading: bool


def look(file: Path) -> Found:
    """Check the meta pages of `file`, and find out what it is.

    Raises:
        Damaged: LMDB must not see this file.
    """
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _File(fd).checked()
    finally:
        os.close(fd)


def page_damages(folder: Path) -> list[str]:
    """Return what is wrong with the pages of a whole file that nobody writes; slow."""
    try:
        found: list[str] = verify.verify(os.fspath(folder))  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        found = [str(error)]
    return [f"store: {text}" for text in found]


class _File:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def checked(self) -> Found:
        raw = self._raw_metas()
        for _ in range(_TRIES):
            try:
                return self._check(raw)
            except (_Broken, struct.error) as error:
                # Others may have written meanwhile, and pages been used again.
                before, raw = raw, self._raw_metas()
                if before == raw:
                    raise Damaged(f"the store's file data.mdb ({error})") from None
        raise Damaged("the store's file data.mdb (it does not come to rest)")

    def _raw_metas(self) -> tuple[bytes, ...]:
        first = os.pread(self._fd, _PAGE_HEADER + _META.size, 0)
        if len(first) < _PAGE_HEADER + _META.size:
            return (first,)
        size = _META.unpack_from(first, _PAGE_HEADER)[4]
        found = [first]
        # The first may be the damaged one: the second is looked for where it can be.
        for at in (size,) if size in _PAGE_SIZES else _PAGE_SIZES:
            found.append(os.pread(self._fd, _PAGE_HEADER + _META.size, at))
        return tuple(found)

    def _check(self, raw: tuple[bytes, ...]) -> Found:
        if len(raw) != 2:
            raise _Broken("the first meta page")
        metas = [_meta(number, page) for number, page in enumerate(raw)]
        new, old = sorted(metas, key=lambda meta: -meta.transaction)
        # Both pages of a new file are of transaction 0.
        in_turn = new.transaction - old.transaction == 1 or not new.transaction
        if new.page_size != old.page_size or not in_turn:
            raise _Broken("the meta pages are not of two transactions in turn")
        for meta in (new, old):
            mark = self._find(meta, keys.META_COMMIT)
            if mark is None:
                continue
            if keys.to_number(unseal(keys.META_COMMIT, memoryview(mark))) != meta.transaction:
                raise _Broken("a meta page is not of the transaction that it names")
        self._check_free(new)
        stored = self._find(new, keys.META_FORMAT)
        return Found(
            # All formats begin with the number, so that a program knows one that is too new.
            None if stored is None else keys.to_number(stored),
            self._find(new, keys.META_UPGRADE) is not None,
        )

    def _page(self, meta: _Meta, number: int, kinds: int) -> bytes:
        if not 2 <= number <= meta.last_page:
            raise _Broken(f"page {number} is not in the file")
        raw = os.pread(self._fd, meta.page_size, number * meta.page_size)
        own, _, flags, lower, upper = _HEADER.unpack_from(raw)
        if own != number or flags & ~kinds or not flags or len(raw) != meta.page_size:
            raise _Broken(f"page {number} is another one")
        if not _PAGE_HEADER <= lower <= upper <= meta.page_size:
            raise _Broken(f"page {number} has no bounds")
        return raw

    def _nodes(self, raw: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield offset of the data, its length, flags and key of each node of a page."""
        lower = _HEADER.unpack_from(raw)[3]
        for index in range((lower - _PAGE_HEADER) // 2):
            at = int.from_bytes(raw[_PAGE_HEADER + 2 * index :][:2], "little")
            low, high, flags, key_size = _NODE.unpack_from(raw, at)
            data = at + _NODE.size + key_size
            if data > len(raw):
                raise _Broken("a node does not fit its page")
            yield data, low | high << 16, flags, raw[at + _NODE.size : data]

    def _find(self, meta: _Meta, wanted: bytes) -> bytes | None:
        """Return the short value of a key."""
        if meta.main.root == _NO_PAGE:
            return None
        number = meta.main.root
        for depth in range(1, meta.main.depth + 1):
            raw = self._page(meta, number, _BRANCH | _LEAF)
            is_leaf = depth == meta.main.depth
            if bool(raw[10] & _LEAF) != is_leaf:
                raise _Broken("the tree is not as deep as its meta page says")
            if not is_leaf:
                for index, (_, low, high, key) in enumerate(self._nodes(raw)):
                    if index == 0 or key <= wanted:
                        number = low | high << 32
                continue
            for data, size, _, key in self._nodes(raw):
                if key == wanted and size <= len(raw) - data:
                    return raw[data : data + size]
        return None

    # Pages that LMDB takes for free it overwrites, and a list of them that it cannot read ends
    # the process.

    def _check_free(self, meta: _Meta) -> None:
        if meta.free.root != _NO_PAGE:
            for key, raw in self._free_lists(meta, meta.free.root, 1):
                self._check_list(meta, key, raw)

    def _free_lists(self, meta: _Meta, number: int, depth: int) -> Iterator[tuple[bytes, bytes]]:
        if depth > _DEEPEST:
            raise _Broken("the list of free pages is endless")
        raw = self._page(meta, number, _BRANCH | _LEAF)
        if bool(raw[10] & _LEAF) != (depth == meta.free.depth):
            raise _Broken("the tree of free pages is not as deep as its meta page says")
        for data, size, flags, key in self._nodes(raw):
            if not raw[10] & _LEAF:
                yield from self._free_lists(meta, size | flags << 32, depth + 1)
            elif flags & _BIG_DATA:
                yield key, self._big(meta, _NUMBER.unpack_from(raw, data)[0], size)
            else:
                yield key, raw[data : data + size]

    def _big(self, meta: _Meta, number: int, size: int) -> bytes:
        head = os.pread(self._fd, _PAGE_HEADER, number * meta.page_size)
        own, _, flags, pages = struct.unpack("<QHHI", head)
        whole = pages * meta.page_size - _PAGE_HEADER
        if own != number or flags != _OVERFLOW or number + pages - 1 > meta.last_page:
            raise _Broken(f"page {number} is another one")
        if not whole - meta.page_size < size <= whole:
            raise _Broken(f"page {number} has another length")
        return os.pread(self._fd, size, number * meta.page_size + _PAGE_HEADER)

    def _check_list(self, meta: _Meta, key: bytes, raw: bytes) -> None:
        numbers = memoryview(raw).cast("Q") if len(raw) % 8 == 0 and raw else None
        if numbers is None or len(key) != 8 or numbers[0] != len(numbers) - 1:
            raise _Broken("a list of free pages")
        pages = numbers[1:].tolist()
        if not 0 < int.from_bytes(key, "little") <= meta.transaction:
            raise _Broken("a list of free pages is of no transaction")
        if pages and (pages[0] > meta.last_page or pages[-1] < 2):
            raise _Broken("a list of free pages names a page that is not in the file")
        if any(page <= lower for page, lower in pairwise(pages)):
            raise _Broken("a list of free pages is out of order")


def _meta(number: int, raw: bytes) -> _Meta:
    own, _, flags, _, _ = _HEADER.unpack_from(raw)
    fields = _META.unpack_from(raw, _PAGE_HEADER)
    magic, version, _, _, page_size, free_flags, free_depth = fields[:7]
    free_root, _, main_flags, main_depth = fields[11], fields[12], fields[13], fields[14]
    main_root, last_page, transaction = fields[19], fields[20], fields[21]
    # The environment's flags stand with the tree of free pages, whose keys are integers.
    if (own, flags, magic, version) != (number, _META_PAGE, _MAGIC, _VERSION):
        raise _Broken(f"meta page {number} is none")
    if page_size not in _PAGE_SIZES or free_flags & ~0x8 or main_flags:
        raise _Broken(f"meta page {number} has flags that are never set")
    if transaction and transaction % 2 != number:
        raise _Broken(f"meta page {number} names another transaction")
    if max(free_depth, main_depth) > _DEEPEST:
        raise _Broken(f"meta page {number} names a tree that is too deep")
    return _Meta(
        page_size, _Tree(free_depth, free_root), _Tree(main_depth, main_root), last_page,
        transaction,
    )  # fmt: skip
