"""Listing directories of a bound host folder, and reading many of its files."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from fusefs.contract.kinds import Kind
from fusefs.tree.backend import Entry, Found, Read, Scanned, join_up_to, read_some
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_paths import O_LIST, not_found, reopen

if TYPE_CHECKING:
    from fusefs.tree.host_tree import HostTree

_KINDS = {stat.S_IFIFO: Kind.FIFO, stat.S_IFSOCK: Kind.SOCKET}
_O_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class HostDirectory:
    """An open directory (`fusefs.tree.backend.Directory`): its names as they were at opening.

    It holds no descriptor, so that what was moved out of the folder is not listed.
    """

    def __init__(self, tree: HostTree, node: HostNode) -> None:
        self._tree = tree
        self._node = node
        with _listed(tree, node) as fd:
            self._names = sorted(map(os.fsencode, os.listdir(fd)))

    def entries(self, after: bytes, limit: int) -> Sequence[Entry]:
        start = bisect_right(self._names, after) if after else 0
        return self._tree.children(self._node, self._names[start:], limit)

    def close(self) -> None:
        self._names = []


def scan(tree: HostTree, directory: HostNode, after: bytes) -> list[Scanned]:
    """Return the entries of a directory, those after the name `after` but for devices."""
    found = []
    with _listed(tree, directory) as fd, os.scandir(fd) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append(_scanned(tree, directory, fd, entry))
    found.sort()
    return found[bisect_right(found, after, key=itemgetter(0)) :] if after else found


@contextmanager
def _listed(tree: HostTree, directory: HostNode) -> Iterator[int]:
    """Give a descriptor to list a directory by."""
    node_fd = tree.open_node(directory)
    try:
        fd = reopen(node_fd, O_LIST & ~os.O_NOFOLLOW)
    finally:
        os.close(node_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _scanned(tree: HostTree, directory: HostNode, fd: int, entry: os.DirEntry[str]) -> Scanned:
    name = os.fsencode(entry.name)
    if entry.is_file(follow_symlinks=False):
        return Scanned(name, Kind.FILE, None, None, None)
    if entry.is_dir(follow_symlinks=False):
        return Scanned(name, Kind.DIR, tree.held(directory, fd, name), None, None)
    if entry.is_symlink():
        return Scanned(name, Kind.SYMLINK, None, None, None)
    kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
    if kind is None:
        raise not_found()
    return Scanned(name, kind, None, None, None)


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
        return size if size > limit else join_up_to(limit, _pieces(fd, size))
    except OSError as error:
        return error
    finally:
        os.close(fd)


def _pieces(fd: int, size: int) -> Iterator[bytes]:
    """Yield what is in a file that had `size` bytes."""
    while piece := os.read(fd, size + 1):
        yield piece
        if len(piece) == size:
            return
