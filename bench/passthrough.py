"""A minimal pass-through file system on pyfuse3: what a mount written in Python costs by itself.

    python -m bench.passthrough SOURCE MOUNTPOINT

It shows SOURCE at MOUNTPOINT and runs in the foreground until it is unmounted. It is a yardstick:
correct for one user of SOURCE, and written as straight as such a program usually is, with one
system call after the other and none of the tricks that would make it faster. What the kernel may
keep, it keeps for one second, which is libfuse's own choice for a tree that others may change.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import stat as st
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileInfo,
    FUSEError,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
)

_KEPT_SECONDS = 1.0
_FIRST_SPARE_NUMBER = 1 << 62

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def _answered(
    method: Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, _Answer]]:
    """Answer a failed system call with its errno: pyfuse3 ends at any other exception."""

    @functools.wraps(method)
    async def answer(
        self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Answer:
        try:
            return await method(self, *arguments, **named)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    return answer


class _Node:
    """What the kernel knows of one file.

    Attributes:
        names: where it stands; several are hard links, none means that it was removed.
        fds: its open descriptors, the only way to a removed file.
        lookups: how often the kernel was told of it.
    """

    __slots__ = ("fds", "identity", "lookups", "names", "number")

    def __init__(self, number: int, identity: tuple[int, int]) -> None:
        self.number = number
        self.identity = identity
        self.names: dict[tuple[_Node, bytes], None] = {}
        self.fds: list[int] = []
        self.lookups = 0


class _Root(_Node):
    __slots__ = ("source",)

    def __init__(self, source: bytes) -> None:
        status = os.stat(source)
        super().__init__(pyfuse3.ROOT_INODE, (status.st_dev, status.st_ino))
        self.source = source
        self.lookups = 1


class Passthrough(pyfuse3.Operations):
    """SOURCE as it is."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, source: str) -> None:
        super().__init__()
        root = _Root(os.fsencode(source))
        self._nodes: dict[int, _Node] = {root.number: root}
        self._by_identity: dict[tuple[int, int], _Node] = {root.identity: root}
        self._open: dict[int, _Node] = {}
        self._listings: dict[int, tuple[_Node, list[bytes]]] = {}
        self._next_listing = 1
        self._next_spare = _FIRST_SPARE_NUMBER

    # Nodes.

    def _path(self, node: _Node) -> bytes:
        parts: list[bytes] = []
        while not isinstance(node, _Root):
            if not node.names:
                raise FileNotFoundError(errno.ENOENT, "removed")
            node, name = next(iter(node.names))
            parts.append(name)
        parts.append(node.source)
        return b"/".join(reversed(parts))

    def _path_in(self, parent: int, name: bytes) -> bytes:
        return self._path(self._nodes[parent]) + b"/" + name

    def _status(self, node: _Node) -> os.stat_result:
        return os.fstat(node.fds[0]) if node.fds else os.lstat(self._path(node))

    def _know(self, parent: _Node, name: bytes, status: os.stat_result) -> _Node:
        identity = (status.st_dev, status.st_ino)
        node = self._by_identity.get(identity)
        if node is None:
            number = status.st_ino
            if number in self._nodes:
                # SOURCE gave a removed file's number away while the kernel still knows that.
                number = self._next_spare
                self._next_spare += 1
            node = self._nodes[number] = self._by_identity[identity] = _Node(number, identity)
        node.names[parent, name] = None
        return node

    def _forget_name(self, parent: _Node, name: bytes, status: os.stat_result) -> None:
        node = self._by_identity.get((status.st_dev, status.st_ino))
        if node is None:
            return
        node.names.pop((parent, name), None)
        if st.S_ISDIR(status.st_mode) or status.st_nlink == 1:
            del self._by_identity[node.identity]

    def _drop_unused(self, node: _Node) -> None:
        if not node.lookups and not node.fds:
            self._nodes.pop(node.number, None)
            if self._by_identity.get(node.identity) is node:
                del self._by_identity[node.identity]

    def _entry(self, parent: int, name: bytes) -> EntryAttributes:
        above = self._nodes[parent]
        status = os.lstat(self._path(above) + b"/" + name)
        node = self._know(above, name, status)
        node.lookups += 1
        return _attributes(node.number, status)

    # Names and attributes.

    @_answered
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._entry(parent_inode, name)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for number, count in inode_list:
            node = self._nodes.get(number)
            if node is not None:
                node.lookups -= count
                self._drop_unused(node)

    @_answered
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        node = self._nodes[inode]
        return _attributes(node.number, self._status(node))

    @_answered
    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        node = self._nodes[inode]
        target: int | bytes = node.fds[0] if node.fds else self._path(node)
        follow = isinstance(target, int)  # a descriptor is never that of a link
        if fields.update_size:
            os.truncate(self._path(node) if fh is None else fh, attr.st_size)
        if fields.update_mode:
            os.chmod(target, st.S_IMODE(attr.st_mode))
        if fields.update_uid or fields.update_gid:
            uid = attr.st_uid if fields.update_uid else -1
            gid = attr.st_gid if fields.update_gid else -1
            os.chown(target, uid, gid, follow_symlinks=follow)
        if fields.update_atime or fields.update_mtime:
            now = self._status(node)
            atime = attr.st_atime_ns if fields.update_atime else now.st_atime_ns
            mtime = attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns
            os.utime(target, ns=(atime, mtime), follow_symlinks=follow)
        return _attributes(node.number, self._status(node))

    @_answered
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return os.readlink(self._path(self._nodes[inode]))

    @_answered
    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        path = self._path_in(parent_inode, name)
        os.symlink(target, path)
        _give(path, ctx)
        return self._entry(parent_inode, name)

    @_answered
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        path = self._path_in(parent_inode, name)
        os.mkdir(path, mode)
        _give(path, ctx)
        return self._entry(parent_inode, name)

    @_answered
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        path = self._path_in(parent_inode, name)
        status = os.lstat(path)
        os.unlink(path)
        self._forget_name(self._nodes[parent_inode], name, status)

    @_answered
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        path = self._path_in(parent_inode, name)
        status = os.lstat(path)
        os.rmdir(path)
        self._forget_name(self._nodes[parent_inode], name, status)

    @_answered
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        if flags:
            raise FUSEError(errno.EINVAL)
        old, new = self._nodes[parent_inode_old], self._nodes[parent_inode_new]
        source = self._path(old) + b"/" + name_old
        target = self._path(new) + b"/" + name_new
        moved = os.lstat(source)
        try:
            replaced = os.lstat(target)
        except FileNotFoundError:
            replaced = None
        os.rename(source, target)
        if replaced is not None:
            if (replaced.st_dev, replaced.st_ino) == (moved.st_dev, moved.st_ino):
                return  # rename(2) leaves two names of one file alone
            self._forget_name(new, name_new, replaced)
        node = self._by_identity.get((moved.st_dev, moved.st_ino))
        if node is not None:
            node.names.pop((old, name_old), None)
            node.names[new, name_new] = None

    @_answered
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        found = os.statvfs(self._path(self._nodes[pyfuse3.ROOT_INODE]))
        fill = StatvfsData()
        for field in (
            "f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail",
            "f_files", "f_ffree", "f_favail", "f_namemax",
        ):  # fmt: skip
            setattr(fill, field, getattr(found, field))
        return fill

    # Directories.

    @_answered
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        node = self._nodes[inode]
        names = os.listdir(self._path(node))
        handle = self._next_listing
        self._next_listing += 1
        self._listings[handle] = (node, names)
        return handle

    @_answered
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        parent, names = self._listings[fh]
        above = self._path(parent)
        for position in range(start_id, len(names)):
            name = names[position]
            try:
                status = os.lstat(above + b"/" + name)
            except FileNotFoundError:
                continue  # removed since the directory was opened
            node = self._know(parent, name, status)
            shown = _attributes(node.number, status)
            if not pyfuse3.readdir_reply(token, name, shown, position + 1):
                self._drop_unused(node)
                return
            node.lookups += 1

    async def releasedir(self, fh: int) -> None:
        del self._listings[fh]

    # Files.

    def _opened(self, node: _Node, fd: int) -> FileInfo:
        node.fds.append(fd)
        self._open[fd] = node
        return FileInfo(fh=fd, keep_cache=False)

    @_answered
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        node = self._nodes[inode]
        return self._opened(node, os.open(self._path(node), flags | os.O_CLOEXEC))

    @_answered
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        path = self._path_in(parent_inode, name)
        fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            _give(fd, ctx)
            attributes = self._entry(parent_inode, name)
        except BaseException:
            os.close(fd)
            raise
        return self._opened(self._nodes[attributes.st_ino], fd), attributes

    @_answered
    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    @_answered
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return os.pwrite(fh, buf, off)

    @_answered
    async def fsync(self, fh: int, datasync: bool) -> None:
        (os.fdatasync if datasync else os.fsync)(fh)

    @_answered
    async def release(self, fh: int) -> None:
        node = self._open.pop(fh)
        node.fds.remove(fh)
        self._drop_unused(node)
        os.close(fh)


def _give(target: int | bytes, ctx: RequestContext) -> None:
    """Make a new file the caller's, where that is somebody else."""
    if os.geteuid() == 0 and (ctx.uid, ctx.gid) != (0, 0):
        os.chown(target, ctx.uid, ctx.gid, follow_symlinks=isinstance(target, int))


def _attributes(number: int, status: os.stat_result) -> EntryAttributes:
    shown = EntryAttributes()
    shown.st_ino = number
    for field in (
        "st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_blocks",
        "st_blksize", "st_atime_ns", "st_mtime_ns", "st_ctime_ns",
    ):  # fmt: skip
        setattr(shown, field, getattr(status, field))
    shown.entry_timeout = shown.attr_timeout = _KEPT_SECONDS
    return shown


def main() -> None:
    source, mountpoint = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.umask(0)  # the kernel has applied the caller's
    options = {"fsname=passthrough", *pyfuse3.default_options}
    pyfuse3.init(Passthrough(source), mountpoint, options)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
