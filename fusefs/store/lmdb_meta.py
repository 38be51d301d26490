"""The two meta pages of LMDB's file: what it begins from.

LMDB trusts its file: a turned bit in a meta page gives an old state for the new one, or kills
the process. So before LMDB opens a file, its two meta pages are held against what they lead to.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from lmdb import verify

from fusefs.store import keys
from fusefs.store.lmdb_pages import (
    HEADER,
    PAGE_HEADER,
    Broken,
    Meta,
    Tree,
    read_branch,
    read_leaf,
    read_page,
)
from fusefs.store.seal import Damaged, unseal

_META = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
_META_PAGE = 0x08
_NO_PAGE = 2**64 - 1
_DEEPEST = 32
_TRIES = 50
_NUMBER = struct.Struct("<Q")
_MEND = "`fusefs doctor` mends it if nothing of it is lost"
_RESTORE = "restore it from a backup: fusefs restore"


class MetaBroken(Broken):
    """A meta page is not as LMDB writes it: nobody knows what else is."""


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
    can_be_mended = not isinstance(why, MetaBroken)
    return Damaged(f"the store's file data.mdb ({why})", _MEND if can_be_mended else _RESTORE)


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
        raise MetaBroken("the meta pages")
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
            at = number % 2 * newest.page_size + PAGE_HEADER + _META.size - _NUMBER.size
            os.pwrite(opened.fileno(), _NUMBER.pack(number), at)
        os.fsync(opened.fileno())


def _raw_metas(fd: int) -> tuple[bytes, ...]:
    first = os.pread(fd, PAGE_HEADER + _META.size, 0)
    if len(first) < PAGE_HEADER + _META.size:
        return (first,)
    size = _META.unpack_from(first, PAGE_HEADER)[4]
    found = [first]
    # The first may be the damaged one: the second is looked for where it can be.
    for at in (size,) if size in _PAGE_SIZES else _PAGE_SIZES:
        found.append(os.pread(fd, PAGE_HEADER + _META.size, at))
    return tuple(found)


def _check(fd: int, raw: tuple[bytes, ...]) -> Found:
    if len(raw) != 2:
        raise MetaBroken("the first meta page")
    metas = [_meta(number, page) for number, page in enumerate(raw)]
    new, old = sorted(metas, key=lambda meta: -meta.transaction)
    # Both pages of a new file are of transaction 0.
    in_turn = new.transaction - old.transaction == 1 or not new.transaction
    if new.page_size != old.page_size or not in_turn:
        raise MetaBroken("the meta pages are not of two transactions in turn")
    for meta in (new, old):
        mark = _find(fd, meta, keys.META_COMMIT)
        if mark is None:
            continue
        if keys.to_number(unseal(keys.META_COMMIT, memoryview(mark))) != meta.transaction:
            raise MetaBroken("a meta page is not of the transaction that it names")
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


def _meta(number: int, raw: bytes) -> Meta:
    own, _, flags, _, _ = HEADER.unpack_from(raw)
    fields = _META.unpack_from(raw, PAGE_HEADER)
    magic, version, _, _, page_size, free_flags = fields[:6]
    last_page, transaction = fields[20:]
    # The environment's flags stand with the tree of free pages, whose keys are integers.
    if (own, flags, magic, version) != (number, _META_PAGE, _MAGIC, _VERSION):
        raise MetaBroken(f"meta page {number} is none")
    if page_size not in _PAGE_SIZES or free_flags & ~0x8 or fields[13]:
        raise MetaBroken(f"meta page {number} has flags that are never set")
    if transaction and transaction % 2 != number:
        raise MetaBroken(f"meta page {number} names another transaction")
    trees = [_tree(number, fields[at : at + 8]) for at in (4, 12)]
    return Meta(page_size, trees[0], trees[1], last_page, transaction)


def _tree(number: int, fields: tuple[int, ...]) -> Tree:
    _, _, depth, branches, leaves, _, entries, root = fields
    if depth > _DEEPEST:
        raise MetaBroken(f"meta page {number} names a tree that is too deep")
    if (depth == 0) != (root == _NO_PAGE):
        raise MetaBroken(f"meta page {number} names a tree without pages")
    return Tree(depth, branches, leaves, entries, root)
