"""Watching the host directories that a view shows, for what other programs do there.

A watched directory's names can be cached for long, and so can its own attributes. A file's
attributes are not: writes through a memory map or another hard link raise no event.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import trio

from fusefs.contract.errors import ContractError
from fusefs.daemon.inodes import Inode, InodeTable, Watch
from fusefs.tree.host_tree import HostTree
from fusefs.tree.host_watch import HostEvent, HostWatch

if TYPE_CHECKING:
    from fusefs.daemon.background import Background
    from fusefs.daemon.notify import Notifier
    from fusefs.session.view_tree import ViewTree

log = logging.getLogger(__name__)


class Watches:
    """The watches of one mount, on directories that its kernel knows."""

    def __init__(
        self,
        tree: ViewTree,
        inodes: InodeTable,
        notifier: Notifier,
        background: Background,
        changed: Callable[[], None],
    ) -> None:
        """Prepare; `changed` is called for each thing learnt."""
        self._tree = tree
        self._inodes = inodes
        self._notifier = notifier
        self._background = background
        self._changed = changed
        self._by_tree: dict[HostTree, HostWatch | None] = {}
        self._directories: dict[Hashable, Inode] = {}
        inodes.on_drop.append(self._unwatch)
        tree.tree.on_unbound.append(self._let_go)

    def watch(self, inode: Inode) -> None:
        """Watch a directory from now on, if it can be; ask before its entries are looked at."""
        backend, key = inode.place.backend, inode.place.key
        watched = False
        if isinstance(backend, HostTree):
            host = self._host(backend)
            watched = host is not None and host.watch(key)
        inode.watch = Watch(key, active=watched)
        if watched:
            self._directories[key] = inode

    def _host(self, backend: HostTree) -> HostWatch | None:
        if backend not in self._by_tree:
            try:
                host = HostWatch(backend)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENOSYS):
                    raise
                log.warning("host directories are not watched: %s", error.strerror)
                self._by_tree[backend] = None
            else:
                self._by_tree[backend] = host
                self._background.spawn(self._follow, backend, host)
        return self._by_tree[backend]

    def _unwatch(self, inode: Inode) -> None:
        backend, watch = inode.place.backend, inode.watch
        if watch is not None and watch.active and isinstance(backend, HostTree):
            self._directories.pop(watch.key, None)
            host = self._by_tree.get(backend)
            if host is not None:
                host.unwatch(watch.key)

    def _let_go(self, backend: HostTree) -> None:
        """End the watches of a folder that is bound no more."""
        host = self._by_tree.pop(backend, None)
        if host is None:
            return
        for key, inode in list(self._directories.items()):
            if inode.place.backend is backend:
                del self._directories[key]
                if inode.watch is not None:
                    inode.watch.active = False
        trio.lowlevel.notify_closing(host.fileno())
        host.close()

    async def _follow(self, backend: HostTree, host: HostWatch) -> None:
        while True:
            try:
                await trio.lowlevel.wait_readable(host.fileno())
            except trio.ClosedResourceError:
                return  # it is bound no more
            events = host.read_events()
            if events:
                self._changed()
                for event in events:
                    if event.kind == "overflow":
                        self._everything(backend)
                    elif (directory := self._directories.get(event.directory)) is not None:
                        self._apply(directory, event)

    def _apply(self, directory: Inode, event: HostEvent) -> None:
        if event.name is None:
            self._notifier.attributes(directory.number)
        elif event.kind == "entry":
            self._entry(directory, event.name)
        else:
            if directory.place.cursor.mixed:
                self._notifier.attributes(directory.number)  # its times follow from its files'
            inode = self._inode(directory, event.name)
            if inode is None:
                return
            # Where this mount itself writes, the kernel has the bytes, and compares times.
            if event.kind == "content" and not inode.changed:
                self._notifier.content(inode.number)
            else:
                self._notifier.attributes(inode.number)

    def _inode(self, directory: Inode, name: bytes) -> Inode | None:
        """Return the inode that a name stands for now, if the kernel knows it."""
        try:
            return self._inodes.at(self._tree.child(directory.place, name)[0])
        except (ContractError, OSError):
            return None

    def _entry(self, directory: Inode, name: bytes) -> None:
        """Drop a name, unless this mount itself changed it and it is still so.

        A directory whose name is dropped has no path until it is looked up again: who works in
        it would notice.
        """
        assert directory.watch is not None
        own = name in directory.watch.own
        directory.watch.own.discard(name)
        if not (own and self._inode(directory, name) is not None):
            self._notifier.entry(directory.number, name)
        self._notifier.attributes(directory.number)

    def _everything(self, backend: HostTree) -> None:
        """Drop all that is known of a folder, since events were lost."""
        for inode in self._inodes:
            if inode.place.backend is not backend:
                continue
            self._notifier.content(inode.number)
            parent = self._inodes.at(inode.place.parent)
            if parent is None:
                continue
            if parent.watch is not None:
                parent.watch.own.clear()
            if self._inode(parent, inode.place.name) is not inode:
                self._notifier.entry(parent.number, inode.place.name)

    def close(self) -> None:
        """End all watches."""
        for host in self._by_tree.values():
            if host is not None:
                host.close()
