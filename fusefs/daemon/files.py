"""Handlers of open regular files."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext

from fusefs.contract.errors import AlreadyExists, ContractError
from fusefs.daemon.guard import handler
from fusefs.daemon.handles import FileHandle
from fusefs.daemon.inodes import Inode
from fusefs.daemon.requests import Requests, check_name
from fusefs.tree.backend import Change

if TYPE_CHECKING:
    from fusefs.session.handles import ViewFile


class FileHandlers(Requests):
    """Requests about the content of files."""

    @handler
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open a file; O_TRUNC comes with it, no setattr follows."""
        known = self._known[inode]
        truncate = bool(flags & os.O_TRUNC)
        write = truncate or flags & os.O_ACCMODE != os.O_RDONLY
        if truncate and not self._try_lock_writer():
            await self._background.lock_writer()
        append = bool(flags & os.O_APPEND)
        file = self._tree.open_file(known.place, write=write, truncate=truncate, append=append)
        if truncate:
            known.changed = True
            known.shown = None
            self.mutations += 1
            if ctx.uid != 0:
                self._drop_set_ids(known)
        # Through the page cache an append would arrive cut at page borders, and changes made in
        # a mapping of the file would look like appends.
        number = self._add_file(known, file, append=append, uid=ctx.uid)
        info = FileInfo(fh=number, direct_io=append)
        if known.volatile:
            seen = file.stat()
            content = (seen.size, seen.mtime)
            info.keep_cache = content == known.content
            known.content = content
        elif known.shown is not None and not known.changed:
            found = file.found
            if found is not None and (found.size, found.mtime) != known.shown:
                # Others changed it just now. Until the kernel has heard of that it would cut the
                # new bytes at the old size, or put them beside old ones.
                self._notifier.attributes_now(known.number)
                info.keep_cache = False
        return info

    @handler
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        """Make a file and open it, for writing whatever its mode is."""
        check_name(name)
        append = bool(flags & os.O_APPEND)
        if not self._try_lock_writer():
            await self._background.lock_writer()
        parent = self._known[parent_inode]
        try:
            place, made, file = self._tree.create_file(
                parent.place,
                name,
                mode & 0o7777,
                self._owner_for(ctx),
                append=append,
            )
        except AlreadyExists:
            if flags & os.O_EXCL:
                raise
            # Somebody else was faster. At ESTALE the kernel looks again, finds the file and
            # opens it, with its mode checked.
            raise FUSEError(errno.ESTALE) from None
        attributes = self._made(parent, name, place, made)
        inode = self._known[attributes.st_ino]
        inode.changed = True
        number = self._add_file(inode, file, append=append, uid=ctx.uid)
        return FileInfo(fh=number, direct_io=append), attributes

    def _drop_set_ids(self, inode: Inode) -> None:
        """Clear the set-id bits of a file that is cut: the kernel leaves O_TRUNC's to us."""
        mode = self._tree.stat(inode.place).mode
        kept = mode & ~(stat.S_ISUID | (stat.S_ISGID if mode & stat.S_IXGRP else 0))
        if kept != mode:
            self._tree.set_attributes(inode.place, Change(mode=kept))

    def _add_file(self, inode: Inode, file: ViewFile, *, append: bool, uid: int) -> int:
        # What goes through the page cache has its set-id bits cleared by the kernel.
        keeps_set_ids = not append or uid == 0
        handle = FileHandle(inode, file, append=append, keeps_set_ids=keeps_set_ids)
        inode.opened(handle)
        return self.files.add(handle)

    @handler
    async def read(self, fh: int, off: int, size: int) -> bytes:
        """Return bytes: at once where they are at hand, else out of a thread."""
        handle = self._open_files[fh]
        data = handle.file.read_nowait(off, size)
        if data is None:
            return await self._background.in_thread(handle, handle.file.read, off, size)
        return data

    @handler
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        """Write all of `buf`."""
        handle = self._open_files[fh]
        inode, file = handle.inode, handle.file
        while (
            inode.copying is not None
            or file.pending_copy() is not None
            or not self._try_lock_writer()
        ):
            await self._background.prepare_write(inode, file)
        inode.changed = handle.unflushed = True
        inode.shown = None
        try:
            written = file.write(off, buf)
        except ContractError:
            self._notifier.content(inode.number)  # a mapping may hold what was refused
            raise
        if not handle.keeps_set_ids:
            self._drop_set_ids(inode)
            handle.keeps_set_ids = True
        if handle.append:
            # It went past the page cache, and to an end that the kernel may not know.
            self._notifier.content(inode.number)
        self.mutations += 1
        return written

    @handler
    async def flush(self, fh: int) -> None:
        """Make what was written safe from the death of this process: close(2) waits for it."""
        handle = self._open_files[fh]
        if handle.unflushed:
            if not self._try_lock_writer():
                await self._background.lock_writer()
            handle.file.flush()
            handle.unflushed = False
            self.mutations += 1

    @handler
    async def release(self, fh: int) -> None:
        """Close a handle."""
        handle = self.files.remove(fh)
        inode = handle.inode
        inode.closed(handle)
        try:
            self._background.close(handle)
        finally:
            self.inodes.drop_unused(inode)

    @handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        """Make a file durable, and every change that was made before."""
        handle = self._open_files[fh]
        await self._background.in_thread(handle, handle.file.sync_data)
        self._tree.sync()
