"""What all request handlers share."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FUSEError

from fusefs.contract.errors import NotFound
from fusefs.contract.paths import NAME_MAX, decode, render
from fusefs.daemon.attributes import VOLATILE, Presenter
from fusefs.daemon.background import Background
from fusefs.daemon.handles import DirectoryHandle, FileHandle, HandleTable
from fusefs.daemon.inodes import Inode, InodeTable
from fusefs.daemon.listings import Listings
from fusefs.daemon.notify import Notifier
from fusefs.daemon.options import MountOptions
from fusefs.daemon.watches import Watches
from fusefs.tree.backend import Owner

if TYPE_CHECKING:
    from fusefs.session.handles import ViewFile
    from fusefs.session.place import Place
    from fusefs.session.stat import Stat
    from fusefs.session.view_tree import ViewTree


_ENTRIES = (
    ("path", "parent_inode", "name"),
    ("path", "parent_inode_old", "name_old"),
    ("target", "parent_inode_new", "name_new"),
    ("target", "new_parent_inode", "new_name"),
)
"""Fields of the log, and the arguments that lead to them."""
_ON_DIRECTORIES = frozenset(("readdir", "releasedir", "fsyncdir"))


class Requests(pyfuse3.Operations):
    """The state of a mount, and the steps that many handlers take.

    Attributes:
        inodes: what the kernel knows.
        files: open files.
        directories: open directories.
        watches: those on host directories.
        initialised: set once the kernel speaks with us.
        mutations: grows with each change made through this mount or learnt of.
    """

    # Without it the kernel never asks for "." or "..", and an NFS handle that it has forgotten
    # is stale.
    supports_dot_lookup = False
    # With it the kernel would keep sizes and times of its own and never see other sessions'.
    enable_writeback_cache = False

    def __init__(
        self, tree: ViewTree, background: Background, notifier: Notifier, options: MountOptions
    ) -> None:
        super().__init__()
        self.inodes = InodeTable(tree.root)
        self.files: HandleTable[FileHandle] = HandleTable()
        self.directories: HandleTable[DirectoryHandle] = HandleTable()
        self.listings = Listings()
        self.inodes.on_drop.append(self.listings.drop)
        self.mutations = 0
        self.initialised = trio.Event()
        self._tree = tree
        self._background = background
        self._notifier = notifier
        self._presenter = Presenter(options.owner)
        self.watches = Watches(tree, self.inodes, notifier, background, self.learnt)
        self._owner = None if options.owner is None else Owner(*options.owner)
        self._hide_passages = options.passage_errno == errno.ENOENT
        self._serve_xattrs = options.xattrs
        # Bound once: these are on the way of every request.
        self._known = self.inodes.by_number
        self._know = self.inodes.know
        self._show = self._presenter.show
        self._absent = self._presenter.absent
        self._open_files = self.files.by_number
        self._try_lock_writer = background.try_lock_writer

    def init(self) -> None:
        """Note that the kernel speaks with us."""
        self.initialised.set()

    def is_open(self, inode: int) -> bool:
        """Tell whether the rules show the place of an inode."""
        return self._known[inode].place.cursor.visible

    def paths_of(self, op: str, named: dict[str, Any]) -> dict[str, str]:
        """Return the paths that the arguments of a request lead to, as fields of the log.

        An inode or handle that is not known, and a name that is an attribute's, have no path.
        """
        fields = {}
        inode = self._inode_of(op, named)
        if inode is not None:
            fields["path"] = render(inode.place.path)
            if isinstance(named.get("name"), bytes):
                fields["attribute"] = decode(named["name"])
        for key, directory, name in _ENTRIES:
            above = self.inodes.by_number.get(named.get(directory, 0))
            if above is not None and isinstance(named.get(name), bytes):
                fields[key] = render((*above.place.path, named[name]))
        return fields

    def _inode_of(self, op: str, named: dict[str, Any]) -> Inode | None:
        """Return the inode that a request is about by its number or by a handle."""
        if "inode" in named:
            return self.inodes.by_number.get(named["inode"])
        handles = self.directories if op in _ON_DIRECTORIES else self.files
        handle = handles.by_number.get(named.get("fh") or 0)
        return None if handle is None else handle.inode

    def learnt(self) -> None:
        """Note that others changed something: what was read ahead may not be so any more."""
        self.mutations += 1

    def _watched(self, directory: Inode) -> bool:
        """Tell whether a volatile directory is watched, and see to it that it is.

        To be asked before entries are looked at: what comes after is told.
        """
        if directory.watch is None:
            self.watches.watch(directory)
        return directory.watch is not None and directory.watch.active

    def _own_change(self, directory: Inode, name: bytes) -> None:
        """Note that this mount changed an entry itself; its event is no news."""
        if directory.watch is not None and directory.watch.active:
            directory.watch.own.add(name)

    def _made(self, parent: Inode, name: bytes, place: Place, stat: Stat) -> EntryAttributes:
        """Tell the kernel of a node that was just made."""
        self._own_change(parent, name)
        self.mutations += 1
        inode = self._know(place, stat.ino)
        attributes = self._show(inode, stat)
        if parent.volatile and not self._watched(parent):
            attributes.entry_timeout = VOLATILE
        inode.lookups += 1
        return attributes

    async def _ready_to_write(self, inode: Inode, file: ViewFile) -> None:
        """Wait until a file can be changed; nobody else runs between this and the change."""
        while (
            inode.copying is not None
            or file.pending_copy() is not None
            or not self._try_lock_writer()
        ):
            await self._background.prepare_write(inode, file)

    def _attributes(self, inode: Inode) -> EntryAttributes:
        """Return the attributes of an inode as they are now, also of an open file that is gone."""
        try:
            stat = self._tree.stat(inode.place)
        except NotFound:
            if not inode.files:
                raise
            stat = inode.files[0].file.stat()
        return self._show(inode, stat)

    def _owner_for(self, ctx: pyfuse3.RequestContext) -> Owner:
        return self._owner or Owner(ctx.uid, ctx.gid)


def check_name(name: bytes) -> None:
    """Refuse a name that no entry can have.

    Raises:
        FUSEError: ENAMETOOLONG.
    """
    if len(name) > NAME_MAX:
        raise FUSEError(errno.ENAMETOOLONG)
