"""Handlers that find, make, move and remove entries, and those of attributes."""

from __future__ import annotations

import errno
import stat as st
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyfuse3 import (
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    ROOT_INODE,
    EntryAttributes,
    FUSEError,
    RequestContext,
    SetattrFields,
)

from fusefs.contract.errors import AccessDenied, NotFound
from fusefs.contract.kinds import Kind
from fusefs.daemon.attributes import VOLATILE
from fusefs.daemon.guard import handler, note_absent
from fusefs.daemon.inodes import Inode
from fusefs.daemon.requests import Requests, check_name
from fusefs.store.content import INLINE_MAX
from fusefs.tree.backend import Change

if TYPE_CHECKING:
    from fusefs.session.handles import ViewFile

_NODES = {0: Kind.FILE, st.S_IFREG: Kind.FILE, st.S_IFIFO: Kind.FIFO, st.S_IFSOCK: Kind.SOCKET}
_PERMISSIONS = 0o7777
_MOST_ABSENT = 10_000


class NameHandlers(Requests):
    """Requests about names and attributes."""

    @handler
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find an entry. That a name is not there is cached, where we would learn of it."""
        check_name(name)
        parent = self._known[parent_inode]
        uncertain = parent.volatile and not self._watched(parent)
        try:
            place, stat = self._tree.child(parent.place, name)
        except NotFound as missing:
            if uncertain:
                self._check_stands(parent)
                raise
            if not parent.place.is_live:
                raise  # it may be restored, and then the name is there
            if parent_inode == ROOT_INODE:
                absent = self.inodes.absent_at_top
                if len(absent) >= _MOST_ABSENT and name not in absent:
                    raise
                absent.add(name)
            note_absent(self, parent_inode, name, missing)
            return self._presenter.absent_now if parent.volatile else self._absent
        except AccessDenied:
            if self._hide_passages:
                raise FUSEError(errno.ENOENT) from None
            raise
        inode = self._know(place, stat.ino)
        attributes = self._show(inode, stat)
        if uncertain:
            attributes.entry_timeout = VOLATILE
        inode.lookups += 1
        return attributes

    def _check_stands(self, directory: Inode) -> None:
        """Have the kernel look a directory up again if another may stand in its place."""
        try:
            self._tree.stat(directory.place)
        except NotFound:
            raise FUSEError(errno.ESTALE) from None

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Take back lookups; it answers to nobody and cannot fail."""
        self.inodes.forget(inode_list)

    @handler
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        """Return attributes."""
        return self._attributes(self._known[inode])

    @handler
    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        """Change attributes; each time stands on its own (utimensat(2) with UTIME_OMIT)."""
        known = self._known[inode]
        if fields.update_size:
            await self._set_size(known, attr.st_size, fh)
        change = Change(
            mode=attr.st_mode & _PERMISSIONS if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            atime=attr.st_atime_ns if fields.update_atime else None,
            mtime=attr.st_mtime_ns if fields.update_mtime else None,
            ctime=attr.st_ctime_ns if fields.update_ctime else None,
        )
        if self._owner is not None:
            change = self._without_owner(change)
        if change != _NOTHING:
            if not self._try_lock_writer():
                await self._background.lock_writer()
            self._tree.set_attributes(known.place, change)
            self.mutations += 1
        return self._attributes(known)

    def _without_owner(self, change: Change) -> Change:
        """Take a change of owner out: everybody is shown the mount's own one."""
        assert self._owner is not None
        if change.uid not in (None, self._owner.uid) or change.gid not in (None, self._owner.gid):
            raise FUSEError(errno.EPERM)
        return Change(mode=change.mode, atime=change.atime, mtime=change.mtime, ctime=change.ctime)

    async def _set_size(self, inode: Inode, size: int, fh: int | None) -> None:
        """Cut or extend a file, through the handle or one made for it."""
        if fh is not None:
            await self._truncate(inode, self._open_files[fh].file, size)
        else:
            file = self._tree.open_file(inode.place, write=True)
            try:
                await self._truncate(inode, file, size)
            finally:
                self._background.finish(file.close())
        if inode.files:
            inode.changed = True
        inode.shown = None
        self.mutations += 1

    async def _truncate(self, inode: Inode, file: ViewFile, size: int) -> None:
        if size > INLINE_MAX:
            await self._ready_to_write(inode, file)
        elif not self._try_lock_writer():  # what is left is small: no base is copied for it
            await self._background.lock_writer()
        file.truncate(size)

    @handler
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Return the target of a symbolic link."""
        return self._tree.read_link(self._known[inode].place)

    @handler
    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        """Make a regular file, a FIFO or a socket; there are no devices."""
        kind = _NODES.get(st.S_IFMT(mode))
        if kind is None:
            raise FUSEError(errno.EPERM)
        return await self._create(parent_inode, name, kind, mode, ctx)

    @handler
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        """Make a directory."""
        return await self._create(parent_inode, name, Kind.DIR, mode, ctx)

    @handler
    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Make a symbolic link."""
        return await self._create(parent_inode, name, Kind.SYMLINK, 0o777, ctx, target)

    async def _create(
        self,
        parent_inode: int,
        name: bytes,
        kind: Kind,
        mode: int,
        ctx: RequestContext,
        target: bytes = b"",
    ) -> EntryAttributes:
        check_name(name)
        if not self._try_lock_writer():
            await self._background.lock_writer()
        parent = self._known[parent_inode]
        place, stat = self._tree.create(
            parent.place, name, kind, mode & _PERMISSIONS, self._owner_for(ctx), target=target
        )
        return self._made(parent, name, place, stat)

    @handler
    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse: there are no hard links."""
        raise FUSEError(errno.EPERM)

    @handler
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an entry that is no directory."""
        await self._remove(parent_inode, name, directory=False)

    @handler
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an empty directory."""
        await self._remove(parent_inode, name, directory=True)

    async def _remove(self, parent_inode: int, name: bytes, *, directory: bool) -> None:
        check_name(name)
        if not self._try_lock_writer():
            await self._background.lock_writer()
        parent = self._known[parent_inode]
        place = self._tree.remove(parent.place, name, directory=directory)
        self._own_change(parent, name)
        self.mutations += 1
        inode = self.inodes.at(place)
        if inode is not None:
            inode.removed = True

    @handler
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        """Move an entry, as renameat2(2)."""
        check_name(name_old)
        check_name(name_new)
        if flags not in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
            raise FUSEError(errno.EINVAL)
        if not self._try_lock_writer():
            await self._background.lock_writer()
        old, new = self._known[parent_inode_old], self._known[parent_inode_new]
        replaced = self._tree.rename(
            old.place,
            name_old,
            new.place,
            name_new,
            replace=flags == 0,
            exchange=flags == RENAME_EXCHANGE,
        )
        inode = self.inodes.at(replaced)
        if inode is not None:
            inode.removed = True
        self._own_change(old, name_old)
        self._own_change(new, name_new)
        self.mutations += 1


_NOTHING = Change()
