"""How a node's attributes are shown to the kernel."""

from __future__ import annotations

import stat as st
from typing import TYPE_CHECKING

from pyfuse3 import EntryAttributes

from fusefs.contract.kinds import Kind
from fusefs.tree.unavailable import UnavailableTree

if TYPE_CHECKING:
    from fusefs.daemon.inodes import Inode
    from fusefs.session.stat import Stat

KEPT = 4 * 3600.0
"""Seconds that the kernel may keep what it is told when of each change of it."""

VOLATILE = 1.0
"""Seconds that the kernel may keep what can change behind our back."""

BLOCK_SIZE = 65536
"""Preferred size of a read or write, in bytes: programs that go by it (Python, cp, the listing
of a directory) then need fewer requests."""

_TYPES = {
    Kind.DIR: st.S_IFDIR,
    Kind.MOUNT: st.S_IFDIR,
    Kind.FILE: st.S_IFREG,
    Kind.SYMLINK: st.S_IFLNK,
    Kind.FIFO: st.S_IFIFO,
    Kind.SOCKET: st.S_IFSOCK,
}


class Presenter:
    """Makes the kernel's attributes of a node's."""

    def __init__(self, owner: tuple[int, int] | None) -> None:
        self._owner = owner
        self.absent = EntryAttributes()
        """The answer for a name that is not there, kept like one that is."""
        self.absent.st_ino = 0
        self.absent.entry_timeout = KEPT
        self.absent_now = EntryAttributes()
        """The same, where names can appear behind our back."""
        self.absent_now.st_ino = 0
        self.absent_now.entry_timeout = VOLATILE

    def show(self, inode: Inode, stat: Stat) -> EntryAttributes:
        """Return the attributes `stat` of an inode, and note what was shown."""
        attributes = EntryAttributes()
        attributes.st_ino = inode.number
        attributes.st_mode = _TYPES[stat.kind] | stat.mode
        owner = self._owner
        if owner is None:
            attributes.st_uid = stat.uid
            attributes.st_gid = stat.gid
        else:
            attributes.st_uid, attributes.st_gid = owner
        size = stat.size
        attributes.st_size = size
        attributes.st_blocks = (size + 511) >> 9
        attributes.st_blksize = BLOCK_SIZE
        attributes.st_atime_ns = stat.atime
        attributes.st_mtime_ns = stat.mtime
        attributes.st_ctime_ns = stat.ctime
        volatile = stat.volatile
        attributes.entry_timeout = KEPT
        if not volatile or (inode.watch is not None and inode.watch.active):
            attributes.attr_timeout = KEPT
        else:
            attributes.attr_timeout = VOLATILE
            if isinstance(inode.place.backend, UnavailableTree):
                attributes.entry_timeout = VOLATILE  # what belongs there may be back
        inode.volatile = volatile
        inode.shown = (size, stat.mtime)
        if inode.removed:
            attributes.st_nlink = 0
        return attributes
