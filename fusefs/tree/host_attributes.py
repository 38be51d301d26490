"""Attributes of host nodes, through a descriptor that may be an ``O_PATH`` one."""

from __future__ import annotations

import errno
import os
import stat

from fusefs.tree import host_calls
from fusefs.tree.backend import Change

_PREFIX = b"user."


def change(fd: int, wanted: Change, writer_fd: int) -> None:
    """Apply `wanted` (but for the ctime, which the host keeps).

    Args:
        writer_fd: a descriptor of the same file that is open for writing, or -1.
    """
    path = host_calls.descriptor_path(fd)
    if wanted.size is not None:
        _truncate(fd, wanted.size, writer_fd)
    if wanted.uid is not None or wanted.gid is not None:
        os.chown(
            path,
            -1 if wanted.uid is None else wanted.uid,
            -1 if wanted.gid is None else wanted.gid,
        )
    # After the owner, whose change takes set-id bits away.
    if wanted.mode is not None:
        os.chmod(path, wanted.mode & 0o7777)
    if wanted.atime is not None or wanted.mtime is not None:
        host_calls.set_times(fd, wanted.atime, wanted.mtime)


def _truncate(fd: int, size: int, writer_fd: int) -> None:
    if writer_fd >= 0:
        os.ftruncate(writer_fd, size)
        return
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, os.strerror(number))
    os.truncate(host_calls.descriptor_path(fd), size)


def get_xattr(fd: int, name: bytes) -> bytes:
    """Return a ``user.`` attribute; ENODATA for any other."""
    if not name.startswith(_PREFIX):
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
    return os.getxattr(host_calls.descriptor_path(fd), name)


def list_xattrs(fd: int) -> list[bytes]:
    """Return the names of the ``user.`` attributes."""
    try:
        names = os.listxattr(host_calls.descriptor_path(fd))
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise
    return [name for name in map(os.fsencode, names) if name.startswith(_PREFIX)]


def set_xattr(fd: int, name: bytes, value: bytes) -> None:
    """Set a ``user.`` attribute; EOPNOTSUPP for any other."""
    _check_xattr(name)
    os.setxattr(host_calls.descriptor_path(fd), name, value)


def remove_xattr(fd: int, name: bytes) -> None:
    """Remove a ``user.`` attribute; EOPNOTSUPP for any other."""
    _check_xattr(name)
    os.removexattr(host_calls.descriptor_path(fd), name)


def _check_xattr(name: bytes) -> None:
    if not name.startswith(_PREFIX):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
