"""Copying and removing what stands below a directory, without following a link.

Nothing recurses and no more than a few descriptors are open at once, so that depth is no limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from fusefs.tree.host_paths import O_LIST, open_beneath

_UNSUPPORTED = (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)
_PIECE = 1 << 23

_Names = tuple[bytes, ...]


def copy_entry(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes) -> None:
    """Copy an entry with all that is below it and make the copy durable.

    Modes, owners, times, extended attributes, symbolic links, holes and hard links within are
    kept as far as the other file system can (owners: as far as we may). When anything fails the
    copy is taken away again.

    Raises:
        FileExistsError: `new_name` is taken.
    """
    info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode):
        _copy_leaf(dir_fd, name, info, new_dir_fd, new_name)
    else:
        os.mkdir(new_name, 0o700, dir_fd=new_dir_fd)
        try:
            _copy_below(dir_fd, name, new_dir_fd, new_name)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_entry(new_dir_fd, new_name)
            raise
    sync_directory(new_dir_fd)


def remove_entry(dir_fd: int, name: bytes) -> None:
    """Remove an entry with all that is below it."""
    info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode):
        os.unlink(name, dir_fd=dir_fd)
        return
    pending: list[_Names] = [(name,)]
    directories: list[_Names] = []
    while pending:
        path = pending.pop()
        directories.append(path)
        fd = open_beneath(dir_fd, path, O_LIST)
        try:
            for child in _names(fd):
                if stat.S_ISDIR(os.stat(child, dir_fd=fd, follow_symlinks=False).st_mode):
                    pending.append((*path, child))
                else:
                    os.unlink(child, dir_fd=fd)
        finally:
            os.close(fd)
    for path in reversed(directories):
        fd = open_beneath(dir_fd, path[:-1])
        try:
            os.rmdir(path[-1], dir_fd=fd)
        finally:
            os.close(fd)


def sync_directory(dir_fd: int) -> None:
    """Make the entries of the directory durable; `dir_fd` may be an ``O_PATH`` one."""
    fd = os.open(b".", O_LIST, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_empty_directory(dir_fd: int, name: bytes) -> bool:
    """Tell whether `name` is a directory without entries."""
    try:
        fd = os.open(name, O_LIST, dir_fd=dir_fd)
    except NotADirectoryError:
        return False
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def _names(fd: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(fd)]


def _copy_below(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes) -> None:
    pending: list[_Names] = [()]
    directories: list[_Names] = []
    linked: dict[tuple[int, int], _Names] = {}
    while pending:
        path = pending.pop()
        directories.append(path)
        source = open_beneath(dir_fd, (name, *path), O_LIST)
        try:
            target = open_beneath(new_dir_fd, (new_name, *path), O_LIST)
            try:
                for child in _names(source):
                    info = os.stat(child, dir_fd=source, follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        os.mkdir(child, 0o700, dir_fd=target)
                        pending.append((*path, child))
                        continue
                    inode = (info.st_dev, info.st_ino)
                    first = linked.get(inode)
                    if first is not None and _link(new_dir_fd, (new_name, *first), target, child):
                        continue
                    _copy_leaf(source, child, info, target, child)
                    if info.st_nlink > 1:
                        linked[inode] = (*path, child)
            finally:
                os.close(target)
        finally:
            os.close(source)
    # From the bottom up, so that filling a directory changes no times that were set.
    for path in reversed(directories):
        source = open_beneath(dir_fd, (name, *path), O_LIST)
        try:
            target = open_beneath(new_dir_fd, (new_name, *path), O_LIST)
            try:
                _copy_attributes(source, target)
                os.fsync(target)
            finally:
                os.close(target)
        finally:
            os.close(source)


def _link(dir_fd: int, first: _Names, target: int, name: bytes) -> bool:
    fd = open_beneath(dir_fd, first[:-1])
    try:
        os.link(first[-1], name, src_dir_fd=fd, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno in (*_UNSUPPORTED, errno.EMLINK):
            return False
        raise
    finally:
        os.close(fd)
    return True


def _copy_leaf(
    dir_fd: int, name: bytes, info: os.stat_result, new_dir_fd: int, new_name: bytes
) -> None:
    if stat.S_ISREG(info.st_mode):
        _copy_file(dir_fd, name, new_dir_fd, new_name)
        return
    if stat.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(name, dir_fd=dir_fd), new_name, dir_fd=new_dir_fd)
    else:
        os.mknod(new_name, stat.S_IFMT(info.st_mode) | 0o600, info.st_rdev, dir_fd=new_dir_fd)
    with _tolerant():
        os.chown(new_name, info.st_uid, info.st_gid, dir_fd=new_dir_fd, follow_symlinks=False)
    if not stat.S_ISLNK(info.st_mode):
        os.chmod(new_name, stat.S_IMODE(info.st_mode), dir_fd=new_dir_fd)
    times = (info.st_atime_ns, info.st_mtime_ns)
    os.utime(new_name, ns=times, dir_fd=new_dir_fd, follow_symlinks=False)


def _copy_file(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes) -> None:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    source = os.open(name, os.O_RDONLY | flags, dir_fd=dir_fd)
    try:
        creation = os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags
        target = os.open(new_name, creation, 0o600, dir_fd=new_dir_fd)
        try:
            _copy_data(source, target)
            _copy_attributes(source, target)
            os.fsync(target)
        except BaseException:
            os.unlink(new_name, dir_fd=new_dir_fd)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_data(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(source, offset, os.SEEK_DATA)
            end = os.lseek(source, offset, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # only a hole is left
        os.lseek(target, offset, os.SEEK_SET)
        while offset < end:
            count = os.sendfile(target, source, offset, min(end - offset, _PIECE))
            if not count:
                break
            offset += count
    os.ftruncate(target, size)


def _copy_attributes(source: int, target: int) -> None:
    info = os.fstat(source)
    for name in os.listxattr(source):
        with _tolerant():
            os.setxattr(target, name, os.getxattr(source, name))
    with _tolerant():
        os.fchown(target, info.st_uid, info.st_gid)
    os.fchmod(target, stat.S_IMODE(info.st_mode))
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


@contextlib.contextmanager
def _tolerant() -> Iterator[None]:
    """Pass over what the other file system, or our rights, cannot keep."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
