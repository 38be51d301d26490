"""A look at LMDB's file before it is mapped: reading past its end would kill with SIGBUS."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_PAGE_HEADER = 16
_META = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_MAGIC = 0xBEEFC0DE
_SIZES = (4096, 8192, 16384, 32768, 65536)
_MOST_UNWRITTEN = 64 << 20


def complete(path: Path) -> bool:
    """Make the file as long as its newest meta page says; False where too much is missing.

    LMDB does not write pages that a transaction took and gave back, so the end of a sound file
    may be missing. Zeros there do no harm, and where something else was cut off, LMDB finds a
    page that is none, which is an error that can be told.
    """
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        lacking = _needed(file.fileno()) - size
        if 0 < lacking <= _MOST_UNWRITTEN:
            # Unlike truncation this never shortens a file that another process lets grow.
            os.posix_fallocate(file.fileno(), size, lacking)
    return lacking <= _MOST_UNWRITTEN


def _needed(fd: int) -> int:
    """Return the length by the newest meta page (lmdb's ``MDB_meta``); 0 if there is none."""
    newest, needed = -1, 0
    for offset in (0, *_SIZES):
        raw = os.pread(fd, _META.size, offset + _PAGE_HEADER)
        if len(raw) < _META.size:
            continue
        fields = _META.unpack(raw)
        page_size, last_page, transaction = fields[4], fields[-2], fields[-1]
        if fields[0] == _MAGIC and page_size in _SIZES and transaction > newest:
            newest, needed = transaction, (last_page + 1) * page_size
    return needed
