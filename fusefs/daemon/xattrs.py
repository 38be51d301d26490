"""Handlers of extended attributes.

Only ``user.*`` is kept. The kernel asks for ``security.capability`` before each write, so what
is not kept is answered before anything is looked at.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from pyfuse3 import FUSEError, RequestContext

from fusefs.daemon.guard import handler
from fusefs.daemon.requests import Requests

_KEPT = b"user."
_OURS = b"user.fusefs."
_ABSENT_AT_ONCE = (b"security.", b"trusted.")


class XattrHandlers(Requests):
    """Requests about extended attributes."""

    @handler
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Return an attribute's value."""
        if not self._serve_xattrs:
            raise FUSEError(errno.ENOSYS)  # the kernel does not ask again
        if not name.startswith(_KEPT):
            raise FUSEError(errno.ENODATA if name.startswith(_ABSENT_AT_ONCE) else errno.EOPNOTSUPP)
        steps = self._tree.get_xattr_in_steps(self._known[inode].place, name)
        return await self._background.in_steps(steps)

    @handler
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        """Return the attributes' names."""
        if not self._serve_xattrs:
            raise FUSEError(errno.ENOSYS)
        return self._tree.list_xattrs(self._known[inode].place)

    @handler
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        """Set an attribute."""
        await self._check_change(name)
        self._tree.set_xattr(self._known[inode].place, name, value)
        self.mutations += 1

    @handler
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an attribute."""
        await self._check_change(name)
        self._tree.remove_xattr(self._known[inode].place, name)
        self.mutations += 1

    async def _check_change(self, name: bytes) -> None:
        if not self._serve_xattrs:
            raise FUSEError(errno.ENOSYS)
        # Ours are told, not kept. Copying programs pass over EOPNOTSUPP and nothing else.
        if not name.startswith(_KEPT) or name.startswith(_OURS):
            raise FUSEError(errno.EOPNOTSUPP)
        if not self._try_lock_writer():
            await self._background.lock_writer()
