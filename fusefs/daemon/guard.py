"""The one place where failures become errnos: every handler goes through `handler`.

pyfuse3 lets nothing but `FUSEError` out of a handler: anything else ends its main loop, and
every process using the mount with it.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import trio
from pyfuse3 import FUSEError

from fusefs.contract.errors import ContractError, NotFound

log = logging.getLogger(__name__)


class _Handlers(Protocol):
    def is_open(self, inode: int) -> bool:
        """Tell whether the rules show the place of an inode."""


_Self = TypeVar("_Self", bound=_Handlers)
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_FOR_THE_CALLER = frozenset((
    errno.E2BIG, errno.EACCES, errno.EBUSY, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EINTR,
    errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMLINK, errno.ENAMETOOLONG, errno.ENODATA,
    errno.ENODEV, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.EOPNOTSUPP, errno.EOVERFLOW, errno.EPERM, errno.ERANGE, errno.EROFS, errno.ESTALE,
    errno.ETIMEDOUT, errno.ETXTBSY, errno.EXDEV,
))  # fmt: skip
_BY_INODE = frozenset((
    "getattr", "setattr", "readlink", "open", "opendir",
    "getxattr", "setxattr", "listxattr", "removexattr",
))  # fmt: skip


class UnknownInode(Exception):
    """The kernel named an inode that it was never told of, or has forgotten."""


class UnknownHandle(Exception):
    """The kernel named a handle that is not open."""


def handler(
    method: Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, _Answer]]:
    """Make a request handler of `method`: whatever goes wrong in it is answered with an errno.

    A request that names an inode whose node is gone is answered with ESTALE: the kernel then
    looks the path up again, and finds what stands there now or nothing.
    """
    by_inode = method.__name__ in _BY_INODE

    @functools.wraps(method)
    async def guarded(
        self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Answer:
        try:
            return await method(self, *arguments, **named)
        except FUSEError:
            raise
        except ContractError as refusal:
            number = refusal.errno
            if by_inode and isinstance(refusal, NotFound) and self.is_open(arguments[0]):  # type: ignore[arg-type]
                number = errno.ESTALE
            raise FUSEError(number) from None
        except UnknownInode:
            raise FUSEError(errno.ESTALE) from None
        except UnknownHandle:
            raise FUSEError(errno.EBADF) from None
        except trio.TooSlowError:
            log.error("%s%s: not done before the deadline", method.__name__, _shown(arguments))
            raise FUSEError(errno.ETIMEDOUT) from None
        except OSError as error:
            raise FUSEError(_translate(error, method.__name__, arguments)) from None
        except Exception:
            log.exception("%s%s failed", method.__name__, _shown(arguments))
            raise FUSEError(errno.EIO) from None

    return guarded


def _translate(error: OSError, name: str, arguments: tuple[object, ...]) -> int:
    """Return the errno to answer; what the caller cannot have brought about is logged."""
    if error.errno is not None and error.errno in _FOR_THE_CALLER:
        return error.errno
    if isinstance(error, TimeoutError):
        log.error("%s%s: %s", name, _shown(arguments), error)
        return errno.ETIMEDOUT
    log.error("%s%s failed", name, _shown(arguments), exc_info=error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return errno.ENFILE  # EMFILE would speak of the caller's own limit
    return errno.EIO


def _shown(arguments: tuple[object, ...]) -> str:
    """Return the plain arguments of a request, for the log; content is not shown."""
    plain = (
        os.fsdecode(value) if isinstance(value, bytes) else value
        for value in arguments
        if isinstance(value, int) or (isinstance(value, bytes) and len(value) <= 255)
    )
    return str(tuple(plain))
