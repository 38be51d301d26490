"""Advisory locks on files (flock(2)), which the kernel drops when their holder dies."""

from __future__ import annotations

import fcntl


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock the open file `fd`, for this holder alone or `shared`, if that can be had at once."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
