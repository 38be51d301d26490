"""How much of the ordered store's file is mapped into this process.

A read maps the page it needs and some around it, and the kernel takes none of them back while
there is room. They are pages of its cache, there for every process, but count as this one's
resident memory: after a walk of everything, as much as the store is large.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_ENOUGH_BYTES = 32 << 20
_DONTNEED = 4  # MADV_DONTNEED: a shared mapping of a file loses nothing by it (madvise(2))
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def give_back(file: Path) -> None:
    """Unmap the pages of `file` that were read, if many of all files' are mapped.

    Other threads may read meanwhile: what they need is mapped again.

    Raises:
        OSError: madvise(2) failed.
    """
    if _mapped_bytes() < _ENOUGH_BYTES:
        return
    inode = str(file.stat().st_ino)
    for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines():
        addresses, _, _, _, mapped, *_ = line.split(maxsplit=5)
        if mapped == inode:
            start, end = (int(address, 16) for address in addresses.split("-"))
            if _madvise(start, end - start, _DONTNEED):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))


def _mapped_bytes() -> int:
    """Return the resident bytes of mapped files (proc_pid_statm(5), the third field)."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[2]) * _PAGE_BYTES
