"""Handlers of open directories."""

from __future__ import annotations

import errno
import stat as st
from itertools import islice
from typing import TYPE_CHECKING

from pyfuse3 import EntryAttributes, FUSEError, ReaddirToken, RequestContext, readdir_reply

from fusefs.contract.errors import NotFound
from fusefs.daemon.attributes import VOLATILE
from fusefs.daemon.guard import handler
from fusefs.daemon.handles import DirectoryHandle
from fusefs.daemon.listings import FIRST_ENTRY, Shown
from fusefs.daemon.requests import Requests

if TYPE_CHECKING:
    from fusefs.daemon.handles import Listed

_MOST = 1024
"""Entries in one reply at most, so that nobody else waits for long."""


class DirectoryHandlers(Requests):
    """Requests about listings."""

    @handler
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Open a directory."""
        known = self._known[inode]
        if known.volatile:
            self._watched(known)
        handle = DirectoryHandle(known, self._tree.open_directory(known.place))
        known.directories += 1
        return self.directories.add(handle)

    @handler
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """List entries with their attributes from a position on."""
        handle = self.directories.by_number[fh]
        position = start_id
        if position == 0:
            handle.rewind()
            if not readdir_reply(token, b".", _bare(handle.inode.number), 1):
                return
            position = 1
        if position == 1:
            above = self.inodes.at(handle.inode.place.parent) or handle.inode
            if not readdir_reply(token, b"..", _bare(above.number), FIRST_ENTRY):
                return
            position = FIRST_ENTRY
        after = handle.name_before(position)
        if after is None:
            raise FUSEError(errno.EINVAL)
        if position == FIRST_ENTRY:
            handle.begin(self.mutations)
        if handle.as_of == self.mutations and self._reply_kept(handle, position, token):
            return
        if handle.collected is not None and not handle.collected.reaches(position):
            handle.collected = None  # somebody seeks
        entries = handle.ahead if handle.ahead_at == (position, self.mutations) else []
        handle.ahead = []
        handle.last = position
        given = 0
        while given < _MOST:
            if not entries:
                entries = self._read_on(handle, after)
                if not entries:
                    self._keep(handle)
                    return
            replied = self._reply(handle, entries, token)
            given += replied
            if replied < len(entries):
                handle.batch = given + 1  # what fits now will fit next time
                handle.ahead = entries[replied:]
                handle.ahead_at = (handle.last, self.mutations)
                return
            after, entries = entries[-1][0], []

    def _reply_kept(self, handle: DirectoryHandle, position: int, token: ReaddirToken) -> bool:
        """Give out entries of a kept listing, if there is one that the handle has followed."""
        kept = self.listings.get(handle.inode, handle.as_of)
        if kept is None:
            return False
        handle.collected = None
        known = self._known
        first = position
        for name, inode, attributes in islice(kept, position - FIRST_ENTRY, None):
            if known.get(inode.number) is not inode:
                return position > first  # forgotten meanwhile: it is to be made known again
            position += 1
            if not readdir_reply(token, name, attributes, position):
                return True
            inode.lookups += 1
            handle.given(name, position)
        return True

    def _keep(self, handle: DirectoryHandle) -> None:
        collected, handle.collected = handle.collected, None
        if collected is not None and collected.changes == self.mutations:
            self.listings.keep(handle.inode, collected.changes, collected.entries)

    def _read_on(self, handle: DirectoryHandle, after: bytes) -> list[Listed]:
        try:
            return list(handle.directory.entries(after, handle.batch))
        except NotFound:
            return []  # the directory was removed meanwhile

    def _reply(self, handle: DirectoryHandle, entries: list[Listed], token: ReaddirToken) -> int:
        """Give entries out until the reply is full; return how many."""
        know, show = self._know, self._show
        directory = handle.inode
        uncertain = directory.volatile and not self._watched(directory)
        given: list[Shown] = []
        for name, place, stat in entries:
            inode = know(place, stat.ino)
            position = handle.position_after(name)
            attributes = show(inode, stat)
            if uncertain:
                attributes.entry_timeout = VOLATILE
            if not readdir_reply(token, name, attributes, position):
                self.inodes.drop_unused(inode)
                break
            inode.lookups += 1
            handle.given(name, position)
            given.append(Shown(name, inode, attributes))
            if stat.volatile:
                handle.collected = None
        if handle.collected is not None and not handle.collected.add(given):
            handle.collected = None
        return len(given)

    @handler
    async def releasedir(self, fh: int) -> None:
        """Close a directory."""
        handle = self.directories.remove(fh)
        handle.inode.directories -= 1
        try:
            handle.directory.close()
        finally:
            self.inodes.drop_unused(handle.inode)

    @handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Make every change that was made before durable."""
        self._tree.sync()


def _bare(number: int) -> EntryAttributes:
    """Return the attributes for ``.`` or ``..``: the kernel takes the number and the type."""
    attributes = EntryAttributes()
    attributes.st_ino = number
    attributes.st_mode = st.S_IFDIR
    return attributes
