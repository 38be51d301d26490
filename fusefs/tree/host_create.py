"""Making nodes in a host directory, with exact modes and owners."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from fusefs.contract.kinds import Kind
from fusefs.tree import host_calls
from fusefs.tree.backend import Owner
from fusefs.tree.host_paths import O_NODE, not_found

_TYPES = {
    Kind.DIR: stat.S_IFDIR,
    Kind.FILE: stat.S_IFREG,
    Kind.SYMLINK: stat.S_IFLNK,
    Kind.FIFO: stat.S_IFIFO,
    Kind.SOCKET: stat.S_IFSOCK,
}


def create_entry(
    parent_fd: int, name: bytes, kind: Kind, mode: int, owner: Owner, target: bytes
) -> int:
    """Make a node and return a descriptor of it: read-write for a file, else ``O_PATH``.

    Raises:
        FileExistsError: the name is taken.
    """
    # Nobody but us gets at it before it has its owner.
    private = mode & 0o700
    if kind == Kind.FILE:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, private, dir_fd=parent_fd)
    else:
        if kind == Kind.DIR:
            os.mkdir(name, private, dir_fd=parent_fd)
        elif kind == Kind.SYMLINK:
            os.symlink(target, name, dir_fd=parent_fd)
        elif kind in (Kind.FIFO, Kind.SOCKET):
            os.mknod(name, _TYPES[kind] | private, dir_fd=parent_fd)
        else:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        fd = os.open(name, O_NODE, dir_fd=parent_fd)
    try:
        info = os.fstat(fd)
        if kind != Kind.FILE and not _is_new(info, kind):
            raise not_found()
        try:
            _settle(fd, info, kind, mode, owner, os.fstat(parent_fd))
        except OSError:
            with contextlib.suppress(OSError):
                (os.rmdir if kind == Kind.DIR else os.unlink)(name, dir_fd=parent_fd)
            raise
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_new(info: os.stat_result, kind: Kind) -> bool:
    """Tell whether this can be what was made just now; a host program may have swapped it for
    something of another owner, to have that given away."""
    return (
        stat.S_IFMT(info.st_mode) == _TYPES[kind]
        and info.st_uid == os.geteuid()
        and (kind == Kind.DIR or info.st_nlink == 1)
    )


def _settle(
    fd: int, info: os.stat_result, kind: Kind, mode: int, owner: Owner, parent: os.stat_result
) -> None:
    inherits = bool(parent.st_mode & stat.S_ISGID)
    gid = parent.st_gid if inherits else owner.gid
    path = host_calls.descriptor_path(fd)
    if (info.st_uid, info.st_gid) != (owner.uid, gid):
        try:
            os.chown(path, owner.uid, gid)
        except PermissionError:
            if owner.uid == os.geteuid() or os.geteuid() == 0:
                raise
    if kind == Kind.SYMLINK:
        return
    if kind == Kind.DIR and inherits:
        mode |= stat.S_ISGID
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode & 0o7777:
        os.chmod(path, mode & 0o7777)
