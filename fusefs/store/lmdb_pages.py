"""The pages of LMDB's file, read without LMDB.

Layouts are those of ``mdb.c`` in LMDB 0.9 on a 64-bit machine.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

BEHIND = b"\xff" * 512
"""Greater than every key."""

PAGE_HEADER = 16
_BRANCH, _LEAF, _OVERFLOW = 0x01, 0x02, 0x04
_BIG_DATA = 0x01
_NUMBER = struct.Struct("<Q")
HEADER = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_CHILD_BITS = 48
_CHILD = (1 << _CHILD_BITS) - 1
_SIZE = (1 << 32) - 1
_IS_BIG = _BIG_DATA << 32
_NO_FLAGS = (0xFFFF & ~_BIG_DATA) << 32
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
    own, _, flags, lower, upper = HEADER.unpack_from(raw)
    if own != number or flags != (_LEAF if is_leaf else _BRANCH):
        raise Broken(f"page {number} is another one")
    if not PAGE_HEADER < lower <= upper < meta.page_size:
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


def children_pointed_at(raw: bytes, number: int) -> list[int]:
    """Return the pages below the branch page `number`, whatever the lengths of its keys.

    Raises:
        Broken: it has a pointer that is none.
    """
    return [_NUMBER.unpack_from(raw, at)[0] & _CHILD for at in _pointers(raw, number)]


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
    return [_node(raw, at, head) for at, head in zip(*_leaf_heads(raw, number), strict=True)]


def read_keys(raw: bytes, number: int) -> tuple[list[bytes], list[Node]]:
    """Return, of the leaf page `number`, the keys, and the nodes whose data is in other pages.

    Raises:
        Broken: its nodes do not fill it, or are out of order.
    """
    nodes = list(zip(*_leaf_heads(raw, number), strict=True))
    first = _NODE.size
    found = [raw[at + first : at + first + (head >> _CHILD_BITS)] for at, head in nodes]
    if found != sorted(set(found)):
        raise Broken(f"page {number} is out of order")
    return found, [_node(raw, at, head) for at, head in nodes if head & _IS_BIG]


def _leaf_heads(raw: bytes, number: int) -> tuple[tuple[int, ...], list[int]]:
    """Return offset and head of each node: in one number lengths of data and key, and flags."""
    starts = _pointers(raw, number)
    unpack = _NUMBER.unpack_from
    heads = [unpack(raw, at)[0] for at in starts]
    ends = []
    for at, head in zip(starts, heads, strict=True):
        if head & _NO_FLAGS or head <= _CHILD:
            raise Broken(f"page {number} has a node that is none")
        size = _NUMBER.size if head & _IS_BIG else head & _SIZE
        ends.append(at + (head >> _CHILD_BITS) + size + _ROUND_UP & ~1)
    _check_filled(raw, number, starts, ends)
    return starts, heads


def _node(raw: bytes, at: int, head: int) -> Node:
    key = at + _NODE.size
    data = key + (head >> _CHILD_BITS)
    return Node(data, head & _SIZE, bool(head & _IS_BIG), raw[key:data])


def _pointers(raw: bytes, number: int) -> tuple[int, ...]:
    lower, upper = struct.unpack_from("<HH", raw, 12)
    starts = struct.unpack_from(f"<{lower - PAGE_HEADER >> 1}H", raw, PAGE_HEADER)
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
    count = min(lower, len(raw)) - PAGE_HEADER >> 1
    pointers = struct.unpack_from(f"<{max(count, 0)}H", raw, PAGE_HEADER)
    for start in (upper, *sorted(pointers)[:1]):
        starts = _starts(raw, start, is_leaf=is_leaf)
        if starts:
            starts.sort(key=lambda at: _key(raw, at))
            flags, lower = _LEAF if is_leaf else _BRANCH, PAGE_HEADER + 2 * len(starts)
            head = HEADER.pack(number, 0, flags, lower, start)
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
    fits = at == len(raw) and found and found[0] >= PAGE_HEADER + 2 * len(found)
    return found if fits else []


def _key(raw: bytes, at: int) -> bytes:
    key_size = _NODE.unpack_from(raw, at)[3]
    return raw[at + _NODE.size : at + _NODE.size + key_size]


def big_page(raw: bytes, node: Node) -> int:
    """Return the first page of the data of a node of the leaf page `raw`."""
    return int(_NUMBER.unpack_from(raw, node.data)[0])


def big_pages(meta: Meta, number: int, size: int) -> range:
    """Return the pages that `size` bytes need from `number` on."""
    return range(number, number - (-(PAGE_HEADER + size) // meta.page_size))


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
    head = os.pread(fd, PAGE_HEADER, number * meta.page_size)
    if not 2 <= number <= meta.last_page or len(head) < PAGE_HEADER:
        raise Broken(f"page {number} is not in the file")
    own, _, flags, pages = struct.unpack("<QHHI", head)
    return own, flags, pages


def read_big(fd: int, meta: Meta, number: int, size: int) -> bytes:
    """Return data that stands in pages of its own."""
    return os.pread(fd, size, number * meta.page_size + PAGE_HEADER)
