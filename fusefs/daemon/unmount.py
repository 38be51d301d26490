"""Unmounting a view from another process, which needs nothing of what serves one."""

from __future__ import annotations

import os
from pathlib import Path

from fusefs.daemon import mount_lock, mountpoint
from fusefs.daemon.mountpoint import FS_TYPE, MountError

_FINISH_SECONDS = 120.0


def umount(where: Path | str, *, lazy: bool = False) -> None:
    """Unmount a view and wait until its daemon has made everything safe.

    Args:
        where: the mountpoint.
        lazy: also while it is in use; those who use it go on, and nobody is waited for.

    Raises:
        MountError: it is no view, is in use, or the daemon does not come to its end.
    """
    point = mountpoint.locate(where)
    mount = mountpoint.mounted_at(point)
    if mount is None or mount.type != FS_TYPE:
        raise MountError(f"{point} is not a mounted view.")
    lock = mount_lock.find(point)
    try:
        try:
            mountpoint.detach(point, lazy=lazy)
        except MountError:
            # Nothing is lost of one that nobody serves. Whether it is so takes long to find out.
            if lazy or not mountpoint.is_dead(point):
                raise
            mountpoint.detach(point)
        if lock is not None and not lazy and not mount_lock.wait(lock, _FINISH_SECONDS):
            raise MountError(
                f"{point} is unmounted, but its daemon is still busy storing what was written."
            )
    finally:
        if lock is not None:
            os.close(lock)
