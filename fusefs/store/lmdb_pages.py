"""LMDB's file, read page by page without LMDB.

LMDB trusts its file: a turned bit in a meta page gives an old state for the new one, or kills
the process. So before LMDB opens a file, its two meta pages are held against what they lead to.
Layouts are those of ``mdb.c`` in LMDB 0.9 on a 64-bit machine.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from lmdb import verify

from fusefs.store import keys
from fusefs.store.seal import Damaged, unseal

BEHIND = b"\xff" * 512
"""Greater than every key."""

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
_CHILD_BITS = 48
_CHILD = (1 << _CHILD_BITS) - 1
_ROUND_UP = _NODE.size + 1


class Broken(Exception):
    """The file is not as LMDB writes it."""


class Tree(NamedTuple):
    """Attributes:
    depth: levels of pages, 0 where there is none.
    """

    depth: int
    branches: int
    leaves: int
    entries: int
    root: int


class Meta(NamedTuple):
    """What a meta page says."""

    page_size: int
    free: Tree
    main: Tree
    last_page: int
    transaction: int


class Node(NamedTuple):
    """A node of a leaf page.

    Attributes:
        data: offset of its data in the page.
        size: length of the data, wherever it is.
        is_big: the data stands in pages of its own, whose first number is in this one.
    """

    data: int
    size: int
    is_big: bool
    key: bytes


class Branch(NamedTuple):
    """A branch page: all keys below ``children[i]`` are less than ``separators[i]``, and those
    below ``children[i + 1]`` are not."""

    separators: list[bytes]
    children: list[int]


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
        raw = _raw_metas(fd)
        for _ in range(_TRIES):
            try:
                return _check(fd, raw)
            except (Broken, struct.error) as error:
                # Others may have written meanwhile, and pages been used again.
                before, raw = raw, _raw_metas(fd)
                if before == raw:
                    raise damaged(error) from None
        raise damaged("it does not come to rest")
    finally:
        os.close(fd)


def damaged(why: object) -> Damaged:
    """Return the error of a file of which `why` tells."""
    return Damaged(
        f"the store's file data.mdb ({why})", "`fusefs doctor` mends it if nothing of it is lost"
    )


def page_damages(folder: Path) -> list[str]:
    """Return what is wrong with the pages of a whole file that nobody writes; slow."""
    try:
        found: list[str] = verify.verify(os.fspath(folder))  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        found = [str(error)]
    return [f"store: {text}" for text in found]


def read_metas(fd: int) -> list[Meta]:
    """Return both meta pages of a file that was looked at.

    Raises:
        Broken: they are none.
    """
    raw = _raw_metas(fd)
    while raw != (again := _raw_metas(fd)):
        raw = again  # one was being written
    if len(raw) != 2 or len(raw[1]) != len(raw[0]):
        raise Broken("the meta pages")
    return [_meta(number, page) for number, page in enumerate(raw)]


def set_transaction(file: Path, transaction: int) -> None:
    """Give the newest transaction of a file that nobody has open a later number.

    Args:
        file: whose transaction before has no mark (see `keys.META_COMMIT`).
        transaction: it is odd if the present one is, and stands in the mark.
    """
    with file.open("r+b") as opened:
        newest = max(read_metas(opened.fileno()), key=lambda meta: meta.transaction)
        for number in (transaction, transaction - 1):
            at = number % 2 * newest.page_size + _PAGE_HEADER + _META.size - _NUMBER.size
            os.pwrite(opened.fileno(), _NUMBER.pack(number), at)
        os.fsync(opened.fileno())


def _raw_metas(fd: int) -> tuple[bytes, ...]:
    first = os.pread(fd, _PAGE_HEADER + _META.size, 0)
    if len(first) < _PAGE_HEADER + _META.size:
        return (first,)
    size = _META.unpack_from(first, _PAGE_HEADER)[4]
    found = [first]
    # The first may be the damaged one: the second is looked for where it can be.
    for at in (size,) if size in _PAGE_SIZES else _PAGE_SIZES:
        found.append(os.pread(fd, _PAGE_HEADER + _META.size, at))
    return tuple(found)


def _check(fd: int, raw: tuple[bytes, ...]) -> Found:
    if len(raw) != 2:
        raise Broken("the first meta page")
    metas = [_meta(number, page) for number, page in enumerate(raw)]
    new, old = sorted(metas, key=lambda meta: -meta.transaction)
    # Both pages of a new file are of transaction 0.
    in_turn = new.transaction - old.transaction == 1 or not new.transaction
    if new.page_size != old.page_size or not in_turn:
        raise Broken("the meta pages are not of two transactions in turn")
    for meta in (new, old):
        mark = _find(fd, meta, keys.META_COMMIT)
        if mark is None:
            continue
        if keys.to_number(unseal(keys.META_COMMIT, memoryview(mark))) != meta.transaction:
            raise Broken("a meta page is not of the transaction that it names")
    stored = _find(fd, new, keys.META_FORMAT)
    return Found(
        # All formats begin with the number, so that a program knows one that is too new.
        None if stored is None else keys.to_number(stored),
        _find(fd, new, keys.META_UPGRADE) is not None,
    )


def _find(fd: int, meta: Meta, wanted: bytes) -> bytes | None:
    """Return the short value of a key."""
    if not meta.main.depth:
        return None
    number = meta.main.root
    for _ in range(1, meta.main.depth):
        branch = read_branch(read_page(fd, meta, number, is_leaf=False), number)
        number = branch.children[sum(key <= wanted for key in branch.separators)]
    raw = read_page(fd, meta, number, is_leaf=True)
    for node in read_leaf(raw, number):
        if node.key == wanted and not node.is_big:
            return raw[node.data : node.data + node.size]
    return None


def read_page(fd: int, meta: Meta, number: int, *, is_leaf: bool) -> bytes:
    """Return a branch or leaf page.

    Raises:
        Broken: it is another one.
    """
    if not 2 <= number <= meta.last_page:
        raise Broken(f"page {number} is not in the file")
    raw = os.pread(fd, meta.page_size, number * meta.page_size)
    if len(raw) != meta.page_size:
        raise Broken(f"page {number} is not in the file")
    own, _, flags, lower, upper = _HEADER.unpack_from(raw)
    if own != number or flags != (_LEAF if is_leaf else _BRANCH):
        raise Broken(f"page {number} is another one")
    if not _PAGE_HEADER < lower <= upper < meta.page_size:
        raise Broken(f"page {number} has no bounds")
    return raw


# LMDB keeps the nodes of a page without gaps: one that is not pointed at, twice pointed at, or
# of another length shows.


def read_children(raw: bytes, number: int) -> list[int]:
    """Return the pages below the branch page `number`.

    Raises:
        Broken: its nodes do not fill it.
    """
    return [head & _CHILD for head in _branch_heads(raw, number)[1]]


def read_branch(raw: bytes, number: int) -> Branch:
    """Return what stands in the branch page `number`.

    Raises:
        Broken: its nodes do not fill it, or are out of order.
    """
    starts, heads = _branch_heads(raw, number)
    separators = [
        raw[at + _NODE.size : at + _NODE.size + (head >> _CHILD_BITS)]
        for at, head in zip(starts[1:], heads[1:], strict=True)  # the first means nothing
    ]
    if b"" in separators or separators != sorted(set(separators)):
        raise Broken(f"page {number} is out of order")
    return Branch(separators, [head & _CHILD for head in heads])


def _branch_heads(raw: bytes, number: int) -> tuple[tuple[int, ...], list[int]]:
    """Return offset and head of each node: in one number the page below, and the key's length."""
    starts = _pointers(raw, number)
    unpack = _NUMBER.unpack_from
    heads = [unpack(raw, at)[0] for at in starts]
    nodes = zip(starts, heads, strict=True)
    ends = [at + (head >> _CHILD_BITS) + _ROUND_UP & ~1 for at, head in nodes]
    _check_filled(raw, number, starts, ends)
    if len(starts) < 2:
        raise Broken(f"page {number} leads to nothing")
    return starts, heads


def read_leaf(raw: bytes, number: int) -> list[Node]:
    """Return what stands in the leaf page `number`; the order of its keys is not looked at.

    Raises:
        Broken: its nodes do not fill it.
    """
    starts = _pointers(raw, number)
    found, ends = [], []
    unpack, head = _NODE.unpack_from, _NODE.size
    for at in starts:
        low, high, flags, key_size = unpack(raw, at)
        key = at + head
        data = key + key_size
        size = low | high << 16
        if flags & ~_BIG_DATA or not key_size:
            raise Broken(f"page {number} has a node that is none")
        found.append(Node(data, size, bool(flags), raw[key:data]))
        ends.append(data + (_NUMBER.size if flags else size) + 1 & ~1)
    _check_filled(raw, number, starts, ends)
    return found


def _pointers(raw: bytes, number: int) -> tuple[int, ...]:
    lower, upper = struct.unpack_from("<HH", raw, 12)
    starts = struct.unpack_from(f"<{lower - _PAGE_HEADER >> 1}H", raw, _PAGE_HEADER)
    if min(starts) != upper or max(starts) > len(raw) - _NODE.size:
        raise Broken(f"page {number} has a node that is not in it")
    return starts


def _check_filled(raw: bytes, number: int, starts: tuple[int, ...], ends: list[int]) -> None:
    if sorted([*starts, len(raw)])[1:] != sorted(ends):
        raise Broken(f"page {number} has nodes that do not fill it")


def repaired(raw: bytes, number: int, *, is_leaf: bool) -> bytes:
    """Return the page `number` as it was, if the lengths of its nodes are as they were.

    Raises:
        Broken: they are not.
    """
    lower, upper = struct.unpack_from("<HH", raw, 12)
    count = min(lower, len(raw)) - _PAGE_HEADER >> 1
    pointers = struct.unpack_from(f"<{max(count, 0)}H", raw, _PAGE_HEADER)
    for start in (upper, *sorted(pointers)[:1]):
        starts = _starts(raw, start, is_leaf=is_leaf)
        if starts:
            starts.sort(key=lambda at: _key(raw, at))
            flags, lower = _LEAF if is_leaf else _BRANCH, _PAGE_HEADER + 2 * len(starts)
            head = _HEADER.pack(number, 0, flags, lower, start)
            return head + struct.pack(f"<{len(starts)}H", *starts) + raw[lower:]
    raise Broken(f"page {number} has nodes that do not fill it")


def _starts(raw: bytes, at: int, *, is_leaf: bool) -> list[int]:
    """Return where nodes begin that fill a page from `at` to its end; nothing if none do."""
    found = []
    while at <= len(raw) - _NODE.size:
        found.append(at)
        low, high, flags, key_size = _NODE.unpack_from(raw, at)
        size = _NUMBER.size if flags else low | high << 16
        at += _NODE.size + key_size + (size if is_leaf else 0) + 1 & ~1
    fits = at == len(raw) and found and found[0] >= _PAGE_HEADER + 2 * len(found)
    return found if fits else []


def _key(raw: bytes, at: int) -> bytes:
    key_size = _NODE.unpack_from(raw, at)[3]
    return raw[at + _NODE.size : at + _NODE.size + key_size]


def big_page(raw: bytes, node: Node) -> int:
    """Return the first page of the data of a node of the leaf page `raw`."""
    return int(_NUMBER.unpack_from(raw, node.data)[0])


def big_pages(meta: Meta, number: int, size: int) -> range:
    """Return the pages that `size` bytes need from `number` on."""
    return range(number, number - (-(_PAGE_HEADER + size) // meta.page_size))


def check_big(fd: int, meta: Meta, number: int, size: int) -> range:
    """Return the pages from `number` on that were taken for `size` bytes.

    Raises:
        Broken: they were not.
    """
    own, flags, pages = _big_head(fd, meta, number)
    needed = len(big_pages(meta, number, size))
    if own != number or flags != _OVERFLOW:
        raise Broken(f"page {number} is another one")
    # There may be more: LMDB does not give back what shorter data left over. What follows the
    # data and has the head of a page is one, of which these do not consist.
    if pages < needed or number + pages - 1 > meta.last_page:
        raise Broken(f"page {number} has another length")
    for more in range(number + needed, number + pages):
        if _big_head(fd, meta, more)[0] == more:
            raise Broken(f"page {number} has another length")
    return range(number, number + pages)


def _big_head(fd: int, meta: Meta, number: int) -> tuple[int, int, int]:
    """Return number, flags and count of pages that hold data of one node."""
    head = os.pread(fd, _PAGE_HEADER, number * meta.page_size)
    if not 2 <= number <= meta.last_page or len(head) < _PAGE_HEADER:
        raise Broken(f"page {number} is not in the file")
    own, _, flags, pages = struct.unpack("<QHHI", head)
    return own, flags, pages


def read_big(fd: int, meta: Meta, number: int, size: int) -> bytes:
    """Return data that stands in pages of its own."""
    return os.pread(fd, size, number * meta.page_size + _PAGE_HEADER)


def _meta(number: int, raw: bytes) -> Meta:
    own, _, flags, _, _ = _HEADER.unpack_from(raw)
    fields = _META.unpack_from(raw, _PAGE_HEADER)
    magic, version, _, _, page_size, free_flags = fields[:6]
    last_page, transaction = fields[20:]
    # The environment's flags stand with the tree of free pages, whose keys are integers.
    if (own, flags, magic, version) != (number, _META_PAGE, _MAGIC, _VERSION):
        raise Broken(f"meta page {number} is none")
    if page_size not in _PAGE_SIZES or free_flags & ~0x8 or fields[13]:
        raise Broken(f"meta page {number} has flags that are never set")
    if transaction and transaction % 2 != number:
        raise Broken(f"meta page {number} names another transaction")
    trees = [_tree(number, fields[at : at + 8]) for at in (4, 12)]
    return Meta(page_size, trees[0], trees[1], last_page, transaction)


def _tree(number: int, fields: tuple[int, ...]) -> Tree:
    _, _, depth, branches, leaves, _, entries, root = fields
    if depth > _DEEPEST:
        raise Broken(f"meta page {number} names a tree that is too deep")
    if (depth == 0) != (root == _NO_PAGE):
        raise Broken(f"meta page {number} names a tree without pages")
    return Tree(depth, branches, leaves, entries, root)
