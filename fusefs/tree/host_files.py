"""Open files of a host directory: few descriptors, shared by all handles of a node."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable

from fusefs.tree import host_calls
from fusefs.tree.backend import Node
from fusefs.tree.host_nodes import HostNode, describe
from fusefs.tree.host_paths import not_found, reopen

_NOT_NOW = (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_DESCRIPTORS = 1 << 20


def raise_descriptor_limit() -> None:
    """Let this process hold as many descriptors as it may (a shell's usual limit is 1,024)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_bytes(fd: int, *, write: bool) -> int:
    """Open the regular file that `fd`, an ``O_PATH`` descriptor, stands for.

    Raises:
        OSError: it is something else (EISDIR, ELOOP, ENXIO), or cannot be opened so.
    """
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        number = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}.get(kind, errno.ENXIO)
        raise OSError(number, os.strerror(number))
    if not write:
        return reopen(fd, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return reopen(fd, os.O_RDWR | os.O_NONBLOCK)
    except PermissionError:
        return reopen(fd, os.O_WRONLY | os.O_NONBLOCK)


class OpenNode:
    """The descriptors of one node, at most one for readers and one for writers.

    The writers' one goes with the last writer, so that a program just written can be run.
    """

    def __init__(self, node: HostNode, opener: Callable[[bool], int]) -> None:
        """`opener` opens the node, for writing if told so."""
        self.node = node
        self._opener = opener
        self._fds = [-1, -1]
        self._handles = [0, 0]

    @property
    def any_fd(self) -> int:
        """A descriptor that is open, -1 if none is."""
        return max(self._fds)

    @property
    def writer_fd(self) -> int:
        """The descriptor for writing, -1 if there is none."""
        return self._fds[True]

    @property
    def idle(self) -> bool:
        """No handle is left."""
        return not any(self._handles)

    def moved_to(self, root_fd: int) -> tuple[bytes, ...] | None:
        """See `fusefs.tree.host_tree.HostTree.moved_to`; `root_fd` is of the folder."""
        if self.any_fd < 0:
            return None
        try:
            top, at = map(host_calls.path_of, (root_fd, self.any_fd))
        except OSError:
            raise not_found() from None
        at_its_place = os.path.join(top, *self.node.path())
        if at == at_its_place or not os.fstat(self.any_fd).st_nlink:
            return None
        below = at.removeprefix(top.rstrip(b"/") + b"/")
        if below == at:
            raise not_found()
        return tuple(below.split(b"/"))

    def adopt(self, fd: int) -> None:
        """Take the descriptor that the file was created with, for the first writer."""
        self._fds[True] = fd

    def acquire(self, *, write: bool) -> int:
        """Count a handle and return its descriptor."""
        if self._fds[write] < 0:
            self._fds[write] = self._opener(write)
        self._handles[write] += 1
        return self._fds[write]

    def release(self, *, write: bool) -> None:
        """Take back what `acquire` gave."""
        self._handles[write] -= 1
        if not self._handles[write]:
            fd, self._fds[write] = self._fds[write], -1
            os.close(fd)

    def close(self) -> None:
        """Close everything, whoever still has a handle."""
        for index, fd in enumerate(self._fds):
            self._fds[index] = -1
            if fd >= 0:
                os.close(fd)


class HostFile:
    """A handle on an open file (`fusefs.tree.backend.File`).

    Attributes:
        written: told at a flush or the close that the file was changed since the last one.
    """

    def __init__(self, opened: OpenNode, *, write: bool, closed: Callable[[OpenNode], None]):
        """`closed` is called when the handle was given back."""
        self._opened = opened
        self._write = write
        self._closed = closed
        self._fd = opened.acquire(write=write)
        self._changed = False
        self.written: Callable[[], None] | None = None

    def node(self) -> Node:
        return describe(self._opened.node, os.fstat(self._fd), self._fd)

    def read_nowait(self, offset: int, size: int) -> bytes | None:
        if size <= 0:
            return b""
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise
        if count == size:
            return bytes(buffer)
        # Short: at the end of the file, or of what is in memory.
        if offset + count < os.fstat(self._fd).st_size:
            return None
        return bytes(memoryview(buffer)[:count])

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < size and (data := os.pread(self._fd, size - have, offset + have)):
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def pending_copy(self) -> None:
        return None

    def write(self, offset: int, data: bytes, *, append: bool = False) -> int:
        self._changed = True
        flags = os.RWF_APPEND if append else 0
        written = os.pwritev(self._fd, [data], offset, flags)
        view = memoryview(data)
        while written < len(data):
            try:
                written += os.pwritev(self._fd, [view[written:]], offset + written, flags)
            except OSError:
                # As write(2): what went in counts, and the next call meets the error.
                return written
        return written

    def truncate(self, size: int) -> None:
        if not self._write:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._changed = True
        os.ftruncate(self._fd, size)

    def replace(self, data: bytes) -> None:
        """Overwrite in place, so that the host's other links and handles see it as well."""
        self._changed = True
        written = 0
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(self._fd, view[written:], written)
        self.truncate(len(data))

    def flush(self) -> None:
        """Tell who wants to know: what was written is the host kernel's already."""
        if self._changed and self.written is not None:
            self.written()
        self._changed = False

    def sync_data(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._fd = -1
            self.flush()
            self._opened.release(write=self._write)
            self._closed(self._opened)
