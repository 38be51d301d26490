"""What a forge or a git remote refused or could not do, in words for the person at the shell.

They are refusals of the contract's family, so every face translates them as it does the others.
Drivers raise these and nothing else; HTTP answers become one of them in `fusefs.forge.rest`, git's
messages in `fusefs.forge.git_errors`, libgit2's in `fusefs.forge.local_git`. Every text is masked
here.
"""

from __future__ import annotations

import errno
import unicodedata
from collections.abc import Sequence

from fusefs.contract.errors import ContractError
from fusefs.forge.secrets import mask

_LONGEST = 2000
"""Characters of a text; a forge may answer with a page."""


def printable(text: str) -> str:
    """Return foreign text without secrets and control characters (a terminal obeys those)."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c)[0] != "C")
    text = mask("".join(kept)).strip()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


class ForgeError(ContractError):
    """Anything that went wrong with a forge.

    Attributes:
        maybe_done: the forge may have done it all the same; ask before repeating.
        status: of the HTTP answer behind it; 0 where there is none.
    """

    code = "FS_FORGE"
    errno = errno.EREMOTEIO
    maybe_done = False
    status = 0

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class AuthenticationFailed(ForgeError):
    """No credential, or one that the forge does not take."""

    code = "FS_FORGE_AUTHENTICATION"
    errno = errno.EACCES


class Forbidden(ForgeError):
    """The user's account on the forge may not do this."""

    code = "FS_FORGE_FORBIDDEN"
    errno = errno.EACCES


class Missing(ForgeError):
    """No such repository, branch, pull request ...; forges answer so for what is hidden, too."""

    code = "FS_FORGE_NOT_FOUND"
    errno = errno.ENOENT


class AlreadyThere(ForgeError):
    """The name is taken, or the pull request is open already."""

    code = "FS_FORGE_EXISTS"
    errno = errno.EEXIST


class Refused(ForgeError):
    """The forge's rules say no: a protected branch, a hook, nothing to merge.

    Attributes:
        said: of a push, the reason that was given, and what the other side said; else empty.
    """

    code = "FS_FORGE_REFUSED"
    errno = errno.EPERM

    def __init__(self, text: str, said: str = "") -> None:
        super().__init__(text)
        self.said = printable(said)


class Moved(ForgeError):
    """The branch is not where the caller last saw it."""

    code = "FS_FORGE_MOVED"
    errno = errno.EBUSY


class MergeConflict(ForgeError):
    """Both sides changed the same; `paths` are those in conflict, where the forge says so."""

    code = "FS_FORGE_CONFLICT"
    errno = errno.EBUSY

    def __init__(self, text: str, paths: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.paths = tuple(paths)


class HistoryLost(ForgeError):
    """The remote no longer has what this side builds on."""

    code = "FS_FORGE_HISTORY"
    errno = errno.ESTALE


class RateLimited(ForgeError):
    """Too many requests; `wait` is in seconds, None where the forge does not say."""

    code = "FS_FORGE_RATE_LIMIT"
    errno = errno.EAGAIN

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


class Unreachable(ForgeError):
    """No answer, a broken one, or one that says the forge itself is in trouble."""

    code = "FS_FORGE_UNREACHABLE"
    errno = errno.EHOSTUNREACH

    def __init__(self, text: str, *, maybe_done: bool = False) -> None:
        super().__init__(text)
        self.maybe_done = maybe_done


class TimedOut(Unreachable):
    """No answer within the time allowed."""

    code = "FS_FORGE_TIMEOUT"
    errno = errno.ETIMEDOUT


class ToolMissing(ForgeError):
    """A program that this needs is not installed."""

    code = "FS_UNAVAILABLE"
    errno = errno.ENOSYS


class KeyReused(ForgeError):
    """One idempotency key for two different calls."""

    code = "FS_FORGE_KEY_REUSED"
    errno = errno.EINVAL

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"This idempotency key was used for another {operation} before, with other arguments. "
            "Take a new key for a new call."
        )


class InProgress(ForgeError):
    """The same key is being worked on by another call, which took longer than this one waits."""

    code = "FS_FORGE_IN_PROGRESS"
    errno = errno.EALREADY

    def __init__(self, operation: str) -> None:
        super().__init__(f"The same {operation} is still under way in another call. Try again.")
        self.maybe_done = True
