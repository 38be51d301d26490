"""LMDB's file and the file system below it: is it whole, and why was a write refused.

The file is looked at before it is mapped: reading past its end would kill with SIGBUS.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from pathlib import Path

import lmdb

from fusefs.store.seal import LONGEST

_PAGE_HEADER = 16
_META = struct.Struct("<IIQQ" + "IHHQQQQQ" * 2 + "QQ")
_MAGIC = 0xBEEFC0DE
_SIZES = (4096, 8192, 16384, 32768, 65536)
_MOST_UNWRITTEN = 64 << 20
_FULL_BELOW = 4 << 20
_MARGIN_BYTES = LONGEST + (1 << 20)
_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS)


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


class Margin:
    """Lets a file end well behind its last page.

    A damaged length or offset in a page makes LMDB look behind that page: zeros there are
    an error that can be told, the end of the file would be the end of the process.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._bytes = 0

    def keep(self, used: int) -> None:
        """Make the file longer if need be, of which `used` bytes are pages."""
        if used + _MARGIN_BYTES > self._bytes:
            self._bytes = used + 2 * _MARGIN_BYTES
            with contextlib.suppress(OSError):
                if os.stat(self._file).st_size < self._bytes:
                    os.truncate(self._file, self._bytes)


def as_os_error(error: lmdb.Error, folder: Path) -> OSError:
    """Return what the system refused; LMDB calls a write that came out short EIO."""
    number = next((n for n in _DISK_ERRNOS if os.strerror(n) in str(error)), None)
    if number is None:
        return OSError(errno.EIO, f"the store failed: {error}")
    if number == errno.EIO:
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < _FULL_BELOW:
            number = errno.ENOSPC
    return OSError(number, os.strerror(number))
