"""Opening below a directory without ever leaving it: no ``..``, no link followed, no race.

Where the kernel has openat2(2) (Linux 5.6) it does the whole walk; elsewhere each name is
opened with ``O_NOFOLLOW`` from the one before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from fusefs.tree import host_calls

O_NODE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Open a node of any kind for nothing but naming it."""
O_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Open a directory for listing."""

# PATH_MAX is 4096 with the closing NUL: the longest stretch of names given to one call.
_STRETCH = 4000

_GONE = (errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


def not_found() -> FileNotFoundError:
    """Return the error for a node that is not (or no longer) there."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def check_name(name: bytes) -> None:
    """Refuse (EINVAL) what can be no name of an entry."""
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class _Walk:
    """The way to open a stretch of names, found out once."""

    def __init__(self) -> None:
        self._openat2 = True
        self._how: dict[int, bytes] = {}

    def open(self, dir_fd: int, names: Sequence[bytes], flags: int) -> int:
        if self._openat2:
            how = self._how.get(flags)
            if how is None:
                how = self._how[flags] = host_calls.open_how(flags)
            try:
                return host_calls.openat2(dir_fd, b"/".join(names), how)
            except OSError as error:
                # Old kernels have no such call; some seccomp filters answer EPERM for it, which
                # an open of O_PATH otherwise never does.
                if error.errno != errno.ENOSYS and not (
                    error.errno == errno.EPERM and flags & os.O_PATH
                ):
                    raise
            self._openat2 = False
        return open_by_steps(dir_fd, names, flags)


def open_by_steps(dir_fd: int, names: Sequence[bytes], flags: int) -> int:
    """Open `names` below `dir_fd` one by one, following no link."""
    fd = dir_fd
    try:
        for name in names[:-1]:
            inner = os.open(name, O_NODE | os.O_DIRECTORY, dir_fd=fd)
            if fd != dir_fd:
                os.close(fd)
            fd = inner
        return os.open(names[-1], flags | os.O_NOFOLLOW, dir_fd=fd)
    finally:
        if fd != dir_fd:
            os.close(fd)


_walk = _Walk()


def open_beneath(dir_fd: int, names: Sequence[bytes], flags: int = O_NODE) -> int:
    """Open the node at `names` below the directory `dir_fd`, which stays open.

    The whole path may be longer than PATH_MAX.

    Raises:
        FileNotFoundError: a name is missing, or one on the way is no directory (any more).
    """
    if not names:
        return os.open(b".", flags, dir_fd=dir_fd)
    if len(names) == 1 or sum(map(len, names)) + len(names) < _STRETCH:
        return _open_stretch(dir_fd, names, flags)
    fd = dir_fd
    try:
        for stretch, last in _stretches(names):
            inner = _open_stretch(fd, stretch, flags if last else O_NODE | os.O_DIRECTORY)
            if fd != dir_fd:
                os.close(fd)
            fd = inner
    except OSError:
        if fd != dir_fd:
            os.close(fd)
        raise
    return fd


def _open_stretch(dir_fd: int, names: Sequence[bytes], flags: int) -> int:
    try:
        return _walk.open(dir_fd, names, flags)
    except OSError as error:
        if error.errno in _GONE:
            raise not_found() from error
        raise


def _stretches(names: Sequence[bytes]) -> list[tuple[Sequence[bytes], bool]]:
    stretches: list[tuple[Sequence[bytes], bool]] = []
    start = length = 0
    for index, name in enumerate(names):
        if length + len(name) + 1 > _STRETCH:
            stretches.append((names[start:index], False))
            start, length = index, 0
        length += len(name) + 1
    stretches.append((names[start:], True))
    return stretches


def reopen(fd: int, flags: int) -> int:
    """Open anew, with `flags`, exactly what `fd` holds."""
    return os.open(host_calls.descriptor_path(fd), flags | os.O_CLOEXEC)
