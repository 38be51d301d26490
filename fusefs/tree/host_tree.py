"""A folder of the host, bound into the tree.

Its files stay where they are, and other programs may change them at any time. So a node is
known by its inode, found again by the names that led to it, and checked to be the same one
before anything is done; nothing outside the folder can be reached (`host_paths`).
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Hashable, Sequence

from fusefs.contract.kinds import Kind
from fusefs.tree import host_attributes, host_calls, host_scan
from fusefs.tree.backend import (
    PERSON,
    Actor,
    Change,
    Entry,
    Found,
    Node,
    Owner,
    Read,
    Scanned,
)
from fusefs.tree.host_copy import is_empty_directory, sync_directory
from fusefs.tree.host_create import create_entry
from fusefs.tree.host_files import HostFile, OpenNode, open_bytes, raise_descriptor_limit
from fusefs.tree.host_mounts import MountTable
from fusefs.tree.host_nodes import HostNode, NodeTable, describe
from fusefs.tree.host_paths import O_NODE, check_name, not_found, open_beneath
from fusefs.tree.host_scan import HostDirectory
from fusefs.tree.host_sync import Unsynced
from fusefs.tree.host_trash import HostTrash, TrashOrigin, move_entry, rename_new


def _refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class HostTree:
    """The backend (`fusefs.tree.backend.Backend`) of the folder `folder`.

    Devices are not shown. Only ``user.`` extended attributes are.
    """

    volatile = True

    def __init__(self, folder: str, trash: HostTrash) -> None:
        """Bind `folder`, an existing directory (a link to one is followed, once, now).

        Raises:
            OSError: it cannot be opened.
        """
        raise_descriptor_limit()
        self._root_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.mounts = MountTable()
        self._table = NodeTable(self._root_fd, self.mounts)
        self._trash = trash
        self._opened: dict[HostNode, OpenNode] = {}
        self._fresh: OpenNode | None = None
        self._unsynced = Unsynced()
        self._is_let_go = False

    def close(self) -> None:
        """Give all descriptors back."""
        self._drop_fresh()
        for opened in self._opened.values():
            opened.close()
        self._opened.clear()
        if self._root_fd >= 0 and not self._is_let_go:
            self.mounts.close()
            os.close(self._root_fd)
            self._root_fd = -1

    def let_go(self) -> None:
        """Keep nothing of the folder, which is bound no more, but the files that are open.

        Nothing is found in it from then on; its file system can be unmounted once they are closed.
        """
        self._drop_fresh()
        nowhere = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
        try:
            # Not closed: a thread that uses the number just now must not meet another directory.
            os.dup2(nowhere, self._root_fd, inheritable=False)
        finally:
            os.close(nowhere)
        self._is_let_go = True
        weakref.finalize(self, os.close, self._root_fd)
        weakref.finalize(self, self.mounts.close)

    def identity(self, key: Hashable) -> bytes:
        return _node(key).identity

    def root(self) -> Node:
        return self.stat(self._table.root)

    def open_node(self, node: HostNode) -> int:
        """Return a new ``O_PATH`` descriptor of `node`, which is beneath the folder.

        Raises:
            FileNotFoundError: it is not where it was last seen.
        """
        if self._is_let_go:
            raise not_found()
        fd = open_beneath(self._root_fd, node.path())
        try:
            if self._table.base(fd) != node.base:
                raise not_found()
        except BaseException:
            os.close(fd)
            raise
        return fd

    def stat(self, key: Hashable) -> Node:
        node = _node(key)
        fd = self._open_even_unlinked(node)
        try:
            return describe(node, os.fstat(fd), fd)
        finally:
            os.close(fd)

    def lookup(self, parent: Hashable, name: bytes) -> Node:
        check_name(name)
        directory = _node(parent)
        parent_fd = self.open_node(directory)
        try:
            return self._child(directory, parent_fd, name)
        finally:
            os.close(parent_fd)

    def open_directory(self, key: Hashable) -> HostDirectory:
        return HostDirectory(self, _node(key))

    def scan(self, key: Hashable, after: bytes = b"") -> Sequence[Scanned]:
        return host_scan.scan(self, _node(key), after)

    def read_files(self, files: Sequence[Found], limit: int) -> list[Read]:
        return host_scan.read_files(self, files, limit)

    def children(self, directory: HostNode, names: Sequence[bytes], limit: int) -> list[Entry]:
        """Return the first `limit` entries called so that are (still) there."""
        parent_fd = self.open_node(directory)
        found: list[Entry] = []
        try:
            for name in names:
                if len(found) >= limit:
                    break
                try:
                    found.append(Entry(name, self._child(directory, parent_fd, name)))
                except FileNotFoundError:
                    continue
        finally:
            os.close(parent_fd)
        return found

    def open_file(
        self, key: Hashable, *, write: bool, actor: Actor = PERSON
    ) -> HostFile:
        node = _node(key)
        opened = self._opened.get(node)
        if opened is None:
            if self._fresh is not None and self._fresh.node is node:
                opened, self._fresh = self._fresh, None
            else:
                opened = OpenNode(node, lambda for_writing: self._open_bytes(node, for_writing))
        try:
            file = HostFile(opened, write=write, closed=self._closed)
        except OSError:
            self._closed(opened)
            raise
        self._opened[node] = opened
        return file

    def read_link(self, key: Hashable) -> bytes:
        fd = self.open_node(_node(key))
        try:
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                raise _refusal(errno.EINVAL)
            return os.readlink(b"", dir_fd=fd)
        finally:
            os.close(fd)

    def create(self, parent: Hashable, name: bytes, kind: Kind, mode: int, owner: Owner,
               actor: Actor, *, target: bytes = b"") -> Node:  # fmt: skip
        check_name(name)
        self._drop_fresh()
        directory = _node(parent)
        parent_fd = self.open_node(directory)
        try:
            fd = create_entry(parent_fd, name, kind, mode, owner, target)
            try:
                info = os.fstat(fd)
                node = self._table.intern(self._table.base(fd), info, directory, name)
                answer = describe(node, info, fd)
            except BaseException:
                os.close(fd)
                raise
        finally:
            os.close(parent_fd)
        if kind == Kind.FILE:
            # Its mode may forbid us to open it again, and whoever creates is going to write.
            self._fresh = OpenNode(node, lambda write: self._open_bytes(node, write))
            self._fresh.adopt(fd)
        else:
            os.close(fd)
        self._unsynced.add(directory, node)
        return answer

    def set_attributes(self, key: Hashable, change: Change, actor: Actor) -> Node:
        node = _node(key)
        fd = self._open_even_unlinked(node)
        try:
            opened = self._opened.get(node)
            host_attributes.change(fd, change, -1 if opened is None else opened.writer_fd)
            self._unsynced.add(node)
            return describe(node, os.fstat(fd), fd)
        finally:
            os.close(fd)

    def remove(self, parent: Hashable, name: bytes, actor: Actor, *,
               directory: bool | None) -> None:  # fmt: skip
        check_name(name)
        self._drop_fresh()
        above = _node(parent)
        parent_fd = self.open_node(above)
        try:
            found = self._child(above, parent_fd, name)
            node = _node(found.key)
            self._check_removal(parent_fd, name, found.kind, directory)
            origin = TrashOrigin(
                (*above.path(), name), found.kind, found.size, os.fstat(parent_fd).st_dev, actor
            )
            left: list[OSError] = []

            def move(trash_fd: int, trash_name: bytes) -> None:
                error = move_entry(parent_fd, name, trash_fd, trash_name)
                if error is not None:
                    left.append(error)
                elif directory and not is_empty_directory(trash_fd, trash_name):
                    # Something came in since it was looked at.
                    rename_new(trash_fd, trash_name, parent_fd, name)
                    raise _refusal(errno.ENOTEMPTY)

            self._trash.add(origin, move)
        finally:
            os.close(parent_fd)
        self._unsynced.add(above)
        if left:
            raise left[0]
        if self._table.reused:
            self._table.forget(node)

    def put_back(self, path: tuple[bytes, ...], source_fd: int, source_name: bytes) -> None:
        """Move an entry from the directory `source_fd` (of the trash) to `path`.

        Raises:
            FileNotFoundError: the directory it belongs in is gone.
            FileExistsError: the name is taken.
        """
        if not path:
            raise _refusal(errno.EEXIST)
        for name in path:
            check_name(name)
        parent_fd = open_beneath(self._root_fd, path[:-1])
        try:
            if not stat.S_ISDIR(os.fstat(parent_fd).st_mode):
                raise not_found()
            error = move_entry(source_fd, source_name, parent_fd, path[-1])
            sync_directory(parent_fd)
        finally:
            os.close(parent_fd)
        if error is not None:
            raise error

    def rename(self, parent: Hashable, name: bytes, new_parent: Hashable, new_name: bytes,
               actor: Actor, *, replace: bool, exchange: bool = False) -> None:  # fmt: skip
        check_name(name)
        check_name(new_name)
        self._drop_fresh()
        old, new = _node(parent), _node(new_parent)
        old_fd = self.open_node(old)
        try:
            new_fd = self.open_node(new)
            try:
                self._rename((old, old_fd, name), (new, new_fd, new_name), replace, exchange)
            finally:
                os.close(new_fd)
        finally:
            os.close(old_fd)
        self._unsynced.add(old, new)

    def get_xattr(self, key: Hashable, name: bytes) -> bytes:
        fd = self._open_even_unlinked(_node(key))
        try:
            return host_attributes.get_xattr(fd, name)
        finally:
            os.close(fd)

    def list_xattrs(self, key: Hashable) -> Sequence[bytes]:
        fd = self._open_even_unlinked(_node(key))
        try:
            return host_attributes.list_xattrs(fd)
        finally:
            os.close(fd)

    def set_xattr(self, key: Hashable, name: bytes, value: bytes, actor: Actor) -> None:
        node = _node(key)
        fd = self._open_even_unlinked(node)
        try:
            host_attributes.set_xattr(fd, name, value)
        finally:
            os.close(fd)
        self._unsynced.add(node)

    def remove_xattr(self, key: Hashable, name: bytes, actor: Actor) -> None:
        node = _node(key)
        fd = self._open_even_unlinked(node)
        try:
            host_attributes.remove_xattr(fd, name)
        finally:
            os.close(fd)
        self._unsynced.add(node)

    def sync(self) -> None:
        """Make names and attributes durable; a file's bytes are so after its `sync_data`."""
        if not self._is_let_go:
            self._unsynced.sync(self._root_fd, self.open_node)

    def held(self, directory: HostNode, parent_fd: int, name: bytes) -> HostNode:
        """Return the node called `name` in a directory, whose descriptor is `parent_fd`."""
        fd = os.open(name, O_NODE, dir_fd=parent_fd)
        try:
            return self._table.intern(self._table.base(fd), os.fstat(fd), directory, name)
        finally:
            os.close(fd)

    def _child(self, directory: HostNode, parent_fd: int, name: bytes) -> Node:
        fd = os.open(name, O_NODE, dir_fd=parent_fd)
        try:
            base = self._table.base(fd)
            info = os.fstat(fd)
            node = self._table.intern(base, info, directory, name)
            return describe(node, info, fd, (parent_fd, name))
        finally:
            os.close(fd)

    def _rename(self, old: _Place, new: _Place, replace: bool, exchange: bool) -> None:
        source, base, links = self._probe(old)
        if not base:
            raise not_found()
        target, target_base, _ = self._probe(new)
        if exchange:
            host_calls.renameat2(*old[1:], *new[1:], host_calls.RENAME_EXCHANGE)
        elif not replace:
            rename_new(*old[1:], *new[1:])
        elif base == target_base and links > 1 and (old[0], old[2]) != (new[0], new[2]):
            # To rename(2) two links of one file are one, and it does nothing; here they are two
            # files, and the old name has to go.
            os.unlink(old[2], dir_fd=old[1])
        else:
            os.rename(old[2], new[2], src_dir_fd=old[1], dst_dir_fd=new[1])
        if source is target:
            return
        if target is not None and not exchange and (self._table.reused or base == target_base):
            self._table.forget(target)
        if source is not None:
            self._table.move(source, new[0], new[2])
        if target is not None and exchange:
            self._table.move(target, old[0], old[2])

    def _probe(self, place: _Place) -> tuple[HostNode | None, bytes, int]:
        """Return the held node, the inode's base and its links; b"" where nothing is."""
        directory, parent_fd, name = place
        try:
            fd = os.open(name, O_NODE, dir_fd=parent_fd)
        except FileNotFoundError:
            return None, b"", 0
        try:
            base = self._table.base(fd)
            return self._table.find(base, directory, name), base, os.fstat(fd).st_nlink
        finally:
            os.close(fd)

    def _check_removal(
        self, parent_fd: int, name: bytes, kind: Kind, directory: bool | None
    ) -> None:
        if kind != Kind.DIR:
            if directory:
                raise _refusal(errno.ENOTDIR)
            return
        if directory is False:
            raise _refusal(errno.EISDIR)
        if self.mounts.below(parent_fd, name):
            raise _refusal(errno.EBUSY)
        if directory and not is_empty_directory(parent_fd, name):
            raise _refusal(errno.ENOTEMPTY)

    def moved_to(self, key: Hashable) -> tuple[bytes, ...] | None:
        """Return the names of an open node from the folder down, if others have moved it; None
        where it is at its place, removed, or not open.

        Raises:
            FileNotFoundError: it is not below the folder any more, or too deep to tell.
        """
        opened = self._opened.get(_node(key))
        return None if opened is None else opened.moved_to(self._root_fd)

    def _open_even_unlinked(self, node: HostNode) -> int:
        """Like `open_node`, but find a node without a name through its open descriptors."""
        try:
            return self.open_node(node)
        except FileNotFoundError:
            opened = self._opened.get(node)
            if opened is None or opened.any_fd < 0:
                raise
            return os.dup(opened.any_fd)

    def _open_bytes(self, node: HostNode, write: bool) -> int:
        fd = self._open_even_unlinked(node)
        try:
            return open_bytes(fd, write=write)
        finally:
            os.close(fd)

    def _closed(self, opened: OpenNode) -> None:
        if opened.idle:
            opened.close()
            self._opened.pop(opened.node, None)

    def _drop_fresh(self) -> None:
        if self._fresh is not None:
            self._fresh.close()
            self._fresh = None


_Place = tuple[HostNode, int, bytes]


def _node(key: Hashable) -> HostNode:
    assert isinstance(key, HostNode)
    return key
