"""The nodes of a host directory: what tells them apart, and where they were last seen."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from weakref import WeakValueDictionary

from fusefs.contract.kinds import Kind
from fusefs.tree import host_calls
from fusefs.tree.backend import Node
from fusefs.tree.host_mounts import MountTable
from fusefs.tree.host_paths import not_found

_NUMBER = struct.Struct(">Q")
_INODE = struct.Struct(">QQI")

_KINDS = {
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFREG: Kind.FILE,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
}
_SIZED = (Kind.FILE, Kind.SYMLINK)
_WITH_XATTRS = (Kind.FILE, Kind.DIR)


class HostNode:
    """One node, at the place where it was last seen.

    Attributes:
        parent: the directory it is in; None for the bound folder.
        name: its name there.
        base: tells the inode from every other of the folder, now and later.
        identity: `base`, or for a file with several names, something of this name's own: two
            names of one inode may have different levels in a view.
    """

    __slots__ = ("__weakref__", "base", "identity", "name", "parent")

    def __init__(self, parent: HostNode | None, name: bytes, base: bytes, identity: bytes) -> None:
        self.parent = parent
        self.name = name
        self.base = base
        self.identity = identity

    def path(self) -> list[bytes]:
        """Return its names from the bound folder down."""
        names = []
        node = self
        while node.parent is not None:
            names.append(node.name)
            node = node.parent
        names.reverse()
        return names

    def is_below(self, other: HostNode) -> bool:
        """Tell whether this node is `other` or lies below it."""
        node: HostNode | None = self
        while node is not None:
            if node is other:
                return True
            node = node.parent
        return False


class NodeTable:
    """All nodes that somebody holds, each once.

    Attributes:
        reused: the root's file system has no handles, so an inode number that comes again
            cannot be told from the old one; whoever removes a node says so with `forget`.
    """

    def __init__(self, root_fd: int, mounts: MountTable) -> None:
        self._mounts = mounts
        self._plain: WeakValueDictionary[bytes, HostNode] = WeakValueDictionary()
        # A file with several names, by inode and place.
        self._named: WeakValueDictionary[tuple[bytes, HostNode, bytes], HostNode] = (
            WeakValueDictionary()
        )
        handle = host_calls.file_handle(root_fd)
        self.reused = handle is None
        self._root_mount = host_calls.mount_id(root_fd) if handle is None else handle[1]
        if mounts.has_unstable_handles(self._root_mount):
            self.reused = True
        self._root_device = os.fstat(root_fd).st_dev
        base = self.base(root_fd)
        self.root = HostNode(None, b"", base, base)
        self._plain[base] = self.root

    def base(self, fd: int) -> bytes:
        """Return what tells the inode of `fd` from every other.

        Raises:
            FileNotFoundError: it is on a view of our own mounted below the folder, which would
                wait for itself.
        """
        handle = None if self.reused else host_calls.file_handle(fd)
        if handle is not None and handle[1] == self._root_mount:
            return b"h" + handle[0]
        mount = host_calls.mount_id(fd) if handle is None else handle[1]
        if mount != self._root_mount and self._mounts.is_own(mount):
            raise not_found()
        # The mount, not the device, goes in: a directory bound at two places is two nodes.
        if handle is not None and not self._mounts.has_unstable_handles(mount):
            return b"m" + _NUMBER.pack(mount) + handle[0]
        info = os.fstat(fd)
        inode = _INODE.pack(info.st_dev, info.st_ino, stat.S_IFMT(info.st_mode))
        if mount != self._root_mount:
            return b"n" + _NUMBER.pack(mount) + inode
        # Device numbers change over a restart of the host: the usual one is left out.
        return b"d" + inode if info.st_dev != self._root_device else b"i" + inode[8:]

    def intern(self, base: bytes, info: os.stat_result, parent: HostNode, name: bytes) -> HostNode:
        """Return the node of the inode `base`, seen just now as `name` in `parent`.

        Raises:
            FileNotFoundError: it moved so meanwhile that it would be its own ancestor.
        """
        if self._named:
            node = self._named.get((base, parent, name))
            if node is not None:
                return node
        shared = info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode)
        node = self._plain.get(base)
        if node is not None:
            if node.parent is parent and node.name == name:
                return node
            if not shared:
                if not self.move(node, parent, name):
                    raise not_found()
                return node
        elif not shared:
            node = self._plain[base] = HostNode(parent, name, base, base)
            return node
        node = HostNode(parent, name, base, self._name_identity(base, parent, name))
        self._named[base, parent, name] = node
        return node

    def find(self, base: bytes, parent: HostNode, name: bytes) -> HostNode | None:
        """Return the held node of the inode `base` that is `name` in `parent`, if any."""
        node = self._named.get((base, parent, name)) if self._named else None
        if node is not None:
            return node
        node = self._plain.get(base)
        return node if node is not None and (node.parent, node.name) == (parent, name) else None

    def move(self, node: HostNode, parent: HostNode, name: bytes) -> bool:
        """Note that `node` is at another place now; False if that cannot be (a cycle)."""
        if node.parent is None or parent.is_below(node):
            return False
        if node.identity != node.base:
            self.forget(node)
            self._named[node.base, parent, name] = node
        node.parent, node.name = parent, name
        return True

    def forget(self, node: HostNode) -> None:
        """Never again return `node` for an inode that looks like it."""
        if node.identity == node.base:
            if self._plain.get(node.base) is node:
                del self._plain[node.base]
        elif node.parent is not None:
            place = (node.base, node.parent, node.name)
            if self._named.get(place) is node:
                del self._named[place]

    def _name_identity(self, base: bytes, parent: HostNode, name: bytes) -> bytes:
        taken = {node.identity for node in self._named.values() if node.base == base}
        for number in range(len(taken) + 1):
            digest = hashlib.blake2b(digest_size=24, person=b"fusefs-link")
            for part in (base, parent.identity, name, _NUMBER.pack(number)):
                digest.update(_NUMBER.pack(len(part)) + part)
            identity = b"l" + digest.digest()
            if identity not in taken:
                return identity
        raise AssertionError("one of them is free")


def describe(
    node: HostNode, info: os.stat_result, fd: int, place: tuple[int, bytes] | None = None
) -> Node:
    """Return the answer for `node`, of which `fd` and `info` tell.

    Args:
        place: the directory's descriptor and the name that `fd` was opened by just now.

    Raises:
        FileNotFoundError: it is a device, which no tree shows.
    """
    kind = _KINDS.get(stat.S_IFMT(info.st_mode))
    if kind is None:
        raise not_found()
    return Node(
        node,
        kind,
        info.st_mode & 0o7777,
        info.st_uid,
        info.st_gid,
        info.st_size if kind in _SIZED else 0,
        info.st_atime_ns,
        info.st_mtime_ns,
        info.st_ctime_ns,
        None,
        0,
        kind in _WITH_XATTRS
        and (host_calls.has_xattrs(fd) if place is None else host_calls.has_xattrs_at(*place, fd)),
    )
