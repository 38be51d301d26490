"""A look at LMDB's file before it is mapped: a cut one would kill the process with SIGBUS."""

from __future__ import annotations

import struct
from pathlib import Path

_PAGE_HEADER = 16
_META = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_MAGIC = 0xBEEFC0DE
_SIZES = (4096, 8192, 16384, 32768, 65536)


def missing_bytes(path: Path) -> int:
    """Return how many bytes the file lacks, by what its newest meta page says; 0 if none.

    Layout: lmdb's ``MDB_meta``. A file that has no such page is left to LMDB to judge.
    """
    size = path.stat().st_size
    newest, needed = -1, 0
    with path.open("rb") as file:
        for offset in (0, *_SIZES):
            file.seek(offset + _PAGE_HEADER)
            raw = file.read(_META.size)
            if len(raw) < _META.size:
                continue
            fields = _META.unpack(raw)
            page_size, last_page, transaction = fields[4], fields[-2], fields[-1]
            if fields[0] == _MAGIC and page_size in _SIZES and transaction > newest:
                newest, needed = transaction, (last_page + 1) * page_size
    return max(needed - size, 0)
