"""Linux system calls that Python 3.11 has no function for (openat2(2), name_to_handle_at(2),
renameat2(2), utimensat(2) with one side omitted, inotify(7), ...).

Each raises `OSError` with the errno of the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_AT_STATX_DONT_SYNC = 0x4000
_UTIME_OMIT = (1 << 30) - 2
_STATX_MNT_ID = 0x1000
_STATX_SIZE = 256
_STATX_MNT_ID_OFFSET = 144
_HANDLE_MAX = 128
_OPENAT2 = 437  # the same on every architecture, as all calls added since Linux 5.1
_LISTXATTRAT = 465
_OPEN_HOW = struct.Struct("=QQQ")
_RESOLVE_BENEATH = 0x08
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_TIMES = struct.Struct("@llll")

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2


def _function(name: str, *argtypes: Any) -> Any:
    function = _LIBC[name]
    function.argtypes = argtypes
    function.restype = ctypes.c_int
    return function


_openat2 = _function(
    "syscall", ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t
)
_name_to_handle_at = _function(
    "name_to_handle_at", ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_int,
)  # fmt: skip
_statx = _function(
    "statx", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p
)
_renameat2 = _function(
    "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
)
_utimensat = _function("utimensat", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
_listxattr = _function("listxattr", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_listxattr.restype = ctypes.c_ssize_t
_listxattrat = _function(
    "syscall", ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_char_p,
    ctypes.c_size_t,
)  # fmt: skip
_syncfs = _function("syncfs", ctypes.c_int)
_inotify_init1 = _function("inotify_init1", ctypes.c_int)
_inotify_add_watch = _function("inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_inotify_rm_watch = _function("inotify_rm_watch", ctypes.c_int, ctypes.c_int)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def descriptor_path(fd: int) -> bytes:
    """Return a path that leads to what `fd` holds, whatever its name has become."""
    return b"/proc/self/fd/%d" % fd


def path_of(fd: int) -> bytes:
    """Return the path by which the kernel knows what `fd` holds, at this moment.

    Raises:
        OSError: ENAMETOOLONG, for one of 4 KiB or more.
    """
    return os.readlink(descriptor_path(fd))


def open_how(flags: int) -> bytes:
    """Return openat2(2)'s ``open_how``: beneath the directory, no link of any kind followed."""
    return _OPEN_HOW.pack(flags, 0, _RESOLVE)


def openat2(dir_fd: int, path: bytes, how: bytes) -> int:
    """Open `path` below `dir_fd` as `open_how` says; ENOSYS or EPERM where there is no such call.

    ELOOP for a link on the way, EXDEV for a way that leaves the directory.
    """
    for _ in range(100):
        fd: int = _openat2(_OPENAT2, dir_fd, path, how, len(how))
        if fd >= 0:
            return fd
        # EAGAIN: a rename went on during the walk, and the kernel could not be sure of it.
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _error()


class _HandleBuffer(threading.local):
    """Room for one answer of name_to_handle_at(2), a thread's own."""

    def __init__(self) -> None:
        self.handle = ctypes.create_string_buffer(8 + _HANDLE_MAX)
        self.size = ctypes.c_uint32.from_buffer(self.handle)
        self.mount = ctypes.c_int()
        self.handle_at = ctypes.addressof(self.handle)
        self.mount_at = ctypes.addressof(self.mount)


_buffer = _HandleBuffer()


def file_handle(fd: int) -> tuple[bytes, int] | None:
    """Return the kernel's handle of what `fd` holds and the id of the mount it is on.

    The handle tells an inode from every other of its file system, also from later ones that
    get its number. None where the file system has no handles.
    """
    buffer = _buffer
    buffer.size.value = _HANDLE_MAX
    if _name_to_handle_at(fd, b"", buffer.handle_at, buffer.mount_at, _AT_EMPTY_PATH):
        if ctypes.get_errno() in (errno.EOPNOTSUPP, errno.EOVERFLOW, errno.ENOSYS, errno.EPERM):
            return None
        raise _error()
    return buffer.handle.raw[4 : 8 + buffer.size.value], buffer.mount.value


def mount_id(fd: int) -> int:
    """Return the id of the mount that `fd` is on (0 before Linux 5.8), asking no file server."""
    result = ctypes.create_string_buffer(_STATX_SIZE)
    flags = _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
    if _statx(fd, b"", flags, _STATX_MNT_ID, result):
        raise _error()
    if not struct.unpack_from("=I", result)[0] & _STATX_MNT_ID:
        return 0
    identifier: int = struct.unpack_from("=Q", result, _STATX_MNT_ID_OFFSET)[0]
    return identifier


def renameat2(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes, flags: int) -> None:
    """Rename an entry, with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`."""
    if _renameat2(dir_fd, name, new_dir_fd, new_name, flags):
        raise _error()


def set_times(fd: int, atime: int | None, mtime: int | None) -> None:
    """Set the times (nanoseconds since the epoch) of what `fd` holds; None leaves one alone."""
    seconds, nanoseconds = (0, _UTIME_OMIT) if atime is None else divmod(atime, 10**9)
    seconds_m, nanoseconds_m = (0, _UTIME_OMIT) if mtime is None else divmod(mtime, 10**9)
    times = _TIMES.pack(seconds, nanoseconds, seconds_m, nanoseconds_m)
    if _utimensat(_AT_FDCWD, descriptor_path(fd), times, 0):
        raise _error()


def has_xattrs(fd: int) -> bool:
    """Tell whether what `fd` holds has extended attributes of any kind."""
    return bool(_listxattr(descriptor_path(fd), None, 0) > 0)


_listxattrat_works = True


def has_xattrs_at(dir_fd: int, name: bytes, fd: int) -> bool:
    """Like `has_xattrs` of `fd`, which was opened as `name` in `dir_fd`; quicker (Linux 6.13)."""
    global _listxattrat_works  # noqa: PLW0603 - a fact about the kernel, found out once
    if _listxattrat_works:
        size: int = _listxattrat(_LISTXATTRAT, dir_fd, name, _AT_SYMLINK_NOFOLLOW, None, 0)
        if size >= 0:
            return size > 0
        _listxattrat_works = ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)
    return has_xattrs(fd)


def syncfs(fd: int) -> None:
    """Send everything unwritten of the file system of `fd` to disk."""
    if _syncfs(fd):
        raise _error()


def inotify_init() -> int:
    """Return a new inotify descriptor that never waits."""
    fd: int = _inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise _error()
    return fd


def inotify_add_watch(inotify: int, path: bytes, mask: int) -> int:
    """Watch `path`; return the watch descriptor."""
    watch: int = _inotify_add_watch(inotify, path, mask)
    if watch < 0:
        raise _error()
    return watch


def inotify_rm_watch(inotify: int, watch: int) -> None:
    """End the watch `watch`."""
    if _inotify_rm_watch(inotify, watch):
        raise _error()
