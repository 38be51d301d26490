"""All request handlers of a mount: each adapts one FUSE request to one call of the view."""

from __future__ import annotations

import os

from pyfuse3 import RequestContext, StatvfsData

from fusefs.contract.paths import NAME_MAX
from fusefs.daemon.directories import DirectoryHandlers
from fusefs.daemon.files import FileHandlers
from fusefs.daemon.guard import handler
from fusefs.daemon.names import NameHandlers
from fusefs.daemon.xattrs import XattrHandlers

_BLOCK = 4096
_BLOCKS = 1 << 28  # 1 TiB
_NODES = 1 << 32


class Operations(NameHandlers, FileHandlers, DirectoryHandlers, XattrHandlers):
    """The file system, as pyfuse3 wants it.

    `poll` is not served: the kernel then answers it as for any regular file.
    """

    @handler
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        """Answer with constants: the instance's fill would tell of what is not visible."""
        return _FILL

    @handler
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        """Answer by the mode shown. With default_permissions the kernel does not ask this."""
        shown = self._attributes(self._known[inode]).st_mode
        return not mode & os.W_OK or bool(shown & 0o222)


def _fill() -> StatvfsData:
    fill = StatvfsData()
    fill.f_bsize = fill.f_frsize = _BLOCK
    fill.f_blocks = fill.f_bfree = fill.f_bavail = _BLOCKS
    fill.f_files = fill.f_ffree = fill.f_favail = _NODES
    fill.f_namemax = NAME_MAX
    return fill


_FILL = _fill()
