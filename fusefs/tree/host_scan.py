"""Listing directories of a bound host folder, and reading many of its files."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from fusefs.contract.kinds import Kind
from fusefs.tree import host_calls
from fusefs.tree.backend import Entry, Found, Read, Scanned, join_up_to, read_some
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_paths import not_found

if TYPE_CHECKING:
    from fusefs.tree.host_tree import HostTree

_KINDS = {stat.S_IFIFO: Kind.FIFO, stat.S_IFSOCK: Kind.SOCKET}
_PIECE = 1 << 20
_O_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class HostDirectory:
    """An open directory (`fusefs.tree.backend.Directory`): its names as they were at opening.

    It holds no descriptor, so that what was moved out of the folder is not listed.
    """

    def __init__(self, tree: HostTree, node: HostNode) -> None:
        self._tree = tree
        self._node = node
        fd = tree.open_node(node)
        try:
            self._names = sorted(os.listdir(host_calls.descriptor_path(fd)))
        finally:
            os.close(fd)

    def entries(self, after: bytes, limit: int) -> Sequence[Entry]:
        start = bisect_right(self._names, after) if after else 0
        return self._tree.children(self._node, self._names[start:], limit)

    def close(self) -> None:
        self._names = []


def scan(tree: HostTree, directory: HostNode, after: bytes) -> list[Scanned]:
    """Return the entries of a directory, those after the name `after` but for devices."""
    found = []
    fd = tree.open_node(directory)
    try:
        with os.scandir(host_calls.descriptor_path(fd)) as entries:
            for entry in entries:
                kind = _kind(entry)
                if kind is Kind.DIR:
                    with suppress(FileNotFoundError):
                        node = tree.held(directory, fd, entry.name)
                        found.append(Scanned(entry.name, kind, node, None, None))
                elif kind is not None:
                    found.append(Scanned(entry.name, kind, None, None, None))
    finally:
        os.close(fd)
    found.sort()
    return found[bisect_right(found, after, key=itemgetter(0)) :] if after else found


def _kind(entry: os.DirEntry[bytes]) -> Kind | None:
    if entry.is_file(follow_symlinks=False):
        return Kind.FILE
    if entry.is_dir(follow_symlinks=False):
        return Kind.DIR
    if entry.is_symlink():
        return Kind.SYMLINK
    with suppress(FileNotFoundError):
        return _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
    return None


def read_files(tree: HostTree, files: Sequence[Found], limit: int) -> list[Read]:
    """Return what is in files that `scan` found, at their names: in the first one's directory."""
    directory = files[0][0]
    assert isinstance(directory, HostNode)
    beside = [entry for _, entry in takewhile(lambda file: file[0] is directory, files)]
    try:
        fd = tree.open_node(directory)
    except OSError as error:
        return [error] * len(beside)
    try:
        ours = tree.mounts.own_entries(fd)
        return read_some(
            not_found() if entry.name in ours else _read(fd, entry, limit) for entry in beside
        )
    finally:
        os.close(fd)


def _read(directory_fd: int, entry: Scanned, limit: int) -> Read:
    try:
        if entry.kind == Kind.SYMLINK:
            return os.readlink(entry.name, dir_fd=directory_fd)
        fd = os.open(entry.name, _O_READ, dir_fd=directory_fd)
    except OSError as error:
        return error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return not_found()  # another thing has its name by now
        size = info.st_size
        if size > limit:
            return size
        data = os.read(fd, size + 1)
        # Nearly always; else it was changed just now.
        return data if len(data) == size else join_up_to(limit, chain([data], _pieces(fd)))
    except OSError as error:
        return error
    finally:
        os.close(fd)


def _pieces(fd: int) -> Iterator[bytes]:
    while piece := os.read(fd, _PIECE):
        yield piece
