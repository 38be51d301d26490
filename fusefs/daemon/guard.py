"""The one place where failures become errnos: every handler goes through `handler`.

pyfuse3 lets nothing but `FUSEError` out of a handler: anything else ends its main loop, and
every process using the mount with it.

What was answered so is logged: refusals at ``debug``, what the caller cannot have brought about
at ``error``. A line names the operation and the path, never what was written.
"""

from __future__ import annotations

import errno
import functools
import inspect
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import trio
from pyfuse3 import FUSEError

from fusefs.contract.errors import ContractError, NotFound
from fusefs.daemon.logs import FAILED, about, errno_name

log = logging.getLogger(__name__)


class _Handlers(Protocol):
    def is_open(self, inode: int) -> bool:
        """Tell whether the rules show the place of an inode."""

    def paths_of(self, op: str, named: dict[str, Any]) -> dict[str, str]:
        """Return the paths that the arguments of a request lead to, as fields of the log."""


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
    op = method.__name__
    by_inode = op in _BY_INODE
    names = tuple(inspect.signature(method).parameters)[1:]

    @functools.wraps(method)
    async def guarded(
        self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Answer:
        try:
            return await method(self, *arguments, **named)
        except FUSEError as answer:
            _tell_refusal(self, op, names, arguments, answer, answer.errno)
            raise
        except ContractError as refusal:
            number = refusal.errno
            if by_inode and isinstance(refusal, NotFound) and self.is_open(arguments[0]):  # type: ignore[arg-type]
                number = errno.ESTALE
            _tell_refusal(self, op, names, arguments, refusal, number)
            raise FUSEError(number) from None
        except UnknownInode as unknown:
            _tell_refusal(self, op, names, arguments, unknown, errno.ESTALE)
            raise FUSEError(errno.ESTALE) from None
        except UnknownHandle as unknown:
            _tell_refusal(self, op, names, arguments, unknown, errno.EBADF)
            raise FUSEError(errno.EBADF) from None
        except OSError as error:
            if error.errno in _FOR_THE_CALLER and not isinstance(error, TimeoutError):
                _tell_refusal(self, op, names, arguments, error, error.errno)
                raise FUSEError(error.errno) from None
            number = _TO_OTHERS.get(error.errno or 0, errno.EIO)
            if isinstance(error, TimeoutError):
                number = errno.ETIMEDOUT
            _tell_failure(self, op, names, arguments, error, number)
            raise FUSEError(number) from None
        except trio.TooSlowError as late:
            _tell_failure(self, op, names, arguments, late, errno.ETIMEDOUT)
            raise FUSEError(errno.ETIMEDOUT) from None
        except Exception as fault:  # noqa: BLE001 - logged and answered
            _tell_failure(self, op, names, arguments, fault, errno.EIO)
            raise FUSEError(errno.EIO) from None

    return guarded


_TO_OTHERS = {
    # EMFILE would speak of the caller's own limit.
    errno.EMFILE: errno.ENFILE,
    errno.ENFILE: errno.ENFILE,
}


def note_absent(requests: _Handlers, parent_inode: int, name: bytes, refusal: NotFound) -> None:
    """Log a lookup that is answered with "not there", which is no error to the kernel."""
    if log.isEnabledFor(logging.DEBUG):
        names = ("parent_inode", "name")
        _tell_refusal(requests, "lookup", names, (parent_inode, name), refusal, refusal.errno)


def _tell_refusal(
    requests: _Handlers,
    op: str,
    names: Sequence[str],
    arguments: Sequence[object],
    error: Exception,
    number: int,
) -> None:
    """Log what the caller was refused."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    if isinstance(error, FUSEError) and isinstance(error.__context__, ContractError):
        error = error.__context__
    fields = requests.paths_of(op, dict(zip(names, arguments, strict=False)))
    if isinstance(error, ContractError):
        fields["code"] = error.code
    text = error.text if isinstance(error, ContractError) else os.strerror(number)
    fields["errno"] = errno_name(number)
    log.debug("%s", text, extra=about(op, **fields))


def _tell_failure(
    requests: _Handlers,
    op: str,
    names: Sequence[str],
    arguments: Sequence[object],
    error: Exception,
    number: int,
) -> None:
    """Log what the caller cannot have brought about, with the way to it unless it was waiting."""
    fields = requests.paths_of(op, dict(zip(names, arguments, strict=False)))
    fields |= {"code": FAILED, "errno": errno_name(number)}
    if number == errno.ETIMEDOUT:
        text = str(error) or "not done before the deadline"
        log.error("%s", text, extra=about(op, **fields))
    else:
        log.error("failed", extra=about(op, **fields), exc_info=error)
