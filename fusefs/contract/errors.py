"""The contract's errors: exact texts, codes and errnos (contract section 7).

The core raises these and nothing else for a refusal. Every face translates them at one
place: the mount to `errno`, the tools to `text` and `code`, the CLI to an exit status.
"""

from __future__ import annotations

import errno


class ContractError(Exception):
    """A refusal that a session is told about.

    Attributes:
        text: the message, exactly as the contract words it.
        code: a stable ``FS_*`` identifier for programs.
        errno: what a system call on a mount answers.
    """

    code: str = "FS_INVALID_ARGUMENT"
    errno: int = errno.EINVAL

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InvalidArgument(ContractError):
    """An argument that no path, name or option can be (checked before anything else)."""


class NameTooLong(InvalidArgument):
    """A name of more than 255 bytes."""

    errno = errno.ENAMETOOLONG

    def __init__(self, path: str) -> None:
        super().__init__(f"Name too long: {path} has a name of more than 255 bytes.")


class NotFound(ContractError):
    """Missing, or not visible below a visible directory: the two answer alike."""

    code = "FS_NOT_FOUND"
    errno = errno.ENOENT

    def __init__(self, path: str) -> None:
        super().__init__(f"No such file or directory: {path}")


class AccessDenied(ContractError):
    """A passage, anything unseen below one, or creating where the level is none."""

    code = "FS_PERMISSION_DENIED"
    errno = errno.EACCES

    def __init__(self, path: str) -> None:
        super().__init__(f"Access denied: {path} is not open to this session.")


class NotPermitted(ContractError):
    """What this kind of tree does not have at all: hard links, devices, links in a chat.

    `what` completes "cannot be ...", as in ``a hard link``.
    """

    code = "FS_PERMISSION_DENIED"
    errno = errno.EPERM

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"Not permitted: {path} cannot be {what} here.")


class ReadOnly(ContractError):
    """A change at level ``ro``."""

    code = "FS_PERMISSION_DENIED"
    errno = errno.EROFS

    def __init__(self, path: str) -> None:
        super().__init__(f"Read-only: {path} can be read in this session but not changed.")


class IsADirectory(ContractError):
    """A directory where a file was meant."""

    code = "FS_NOT_REGULAR_FILE"
    errno = errno.EISDIR

    def __init__(self, path: str) -> None:
        super().__init__(f"Is a directory: {path}")


class NotADirectory(ContractError):
    """A file where a directory was meant."""

    code = "FS_NOT_REGULAR_FILE"
    errno = errno.ENOTDIR

    def __init__(self, path: str) -> None:
        super().__init__(f"Not a directory: {path}")


class DirectoryNotEmpty(ContractError):
    """A directory with visible entries where ``rmdir(2)`` or ``rename(2)`` needs an empty one."""

    code = "FS_EXISTS"
    errno = errno.ENOTEMPTY

    def __init__(self, path: str) -> None:
        super().__init__(f"Directory not empty: {path}")


class AlreadyExists(ContractError):
    """The target of a move, or of a creation that must be new, is there."""

    code = "FS_EXISTS"
    errno = errno.EEXIST

    def __init__(self, path: str) -> None:
        super().__init__(f"Already exists: {path}")


class CrossMount(ContractError):
    """A move from one backend to another."""

    code = "FS_CROSS_MOUNT"
    errno = errno.EXDEV

    def __init__(self, path: str, target: str) -> None:
        super().__init__(f"Not moved: {path} and {target} are not in the same repository.")


class MountBusy(ContractError):
    """Removing or moving the root of a mount, or of the tree."""

    code = "FS_BUSY"
    errno = errno.EBUSY

    def __init__(self, path: str) -> None:
        self.path = path
        what = "the root of the tree" if path == "/" else "a mount; whoever mounted it removes it"
        super().__init__(f"Not removed: {path} is {what}.")


class TooLarge(ContractError):
    """Over a size bound; sizes are in bytes."""

    code = "FS_TOO_LARGE"
    errno = errno.EFBIG

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"Too large: {path} is {size} bytes; the limit is {limit}.")


class NotText(ContractError):
    """Not UTF-8 text, or with a NUL, or not a regular file."""

    code = "FS_NOT_TEXT"
    errno = errno.EILSEQ

    def __init__(self, path: str) -> None:
        super().__init__(f"Not text: {path}")


class LinkLoop(ContractError):
    """More symbolic links on the way than a lookup follows (as ELOOP of path_resolution(7))."""

    code = "FS_NOT_FOUND"
    errno = errno.ELOOP

    def __init__(self, path: str) -> None:
        super().__init__(f"Too many links: {path}")


class UnusableLink(ContractError):
    """A symbolic link that no system call can follow, as one can be committed."""

    code = "FS_NOT_FOUND"

    def __init__(self, path: str, why: str, number: int) -> None:
        super().__init__(f"Not a usable link: the target of {path} {why}.")
        self.errno = number


class Blocked(ContractError):
    """What cannot be done as things are; the text says what is in the way, and what to do."""

    code = "FS_BLOCKED"
    errno = errno.EBUSY


class NotCommitted(ContractError):
    """A commit at level ``stage``."""

    code = "FS_PERMISSION_DENIED"
    errno = errno.EPERM

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Not committed: this session may change {path} but not commit it; "
            "the change stays staged."
        )


class NothingToCommit(ContractError):
    """A commit outside every mount."""

    code = "FS_NOT_FOUND"
    errno = errno.ENOENT

    def __init__(self, path: str) -> None:
        super().__init__(f"Nothing to commit: {path} is not in a repository.")


class NotInRepository(ContractError):
    """A question about a repository where there is none."""

    code = "FS_NOT_FOUND"
    errno = errno.ENOENT

    def __init__(self, path: str) -> None:
        super().__init__(
            f"Not in a repository: {path}. Give a path of the tree in one of: fusefs repo list"
        )


class NothingStaged(ContractError):
    """A commit, or putting back, where nothing is staged; `what` is what was not done."""

    code = "FS_NOTHING_STAGED"

    def __init__(self, what: str, path: str) -> None:
        super().__init__(f"Nothing to {what}: nothing is staged in {path}.")


class PartlyHidden(ContractError):
    """What only a session may be shown that sees all of a repository; `what` names it."""

    code = "FS_PERMISSION_DENIED"
    errno = errno.EACCES

    def __init__(self, what: str, path: str) -> None:
        super().__init__(
            f"Not shown: {what} would tell of all of {path}; this session sees a part of it."
        )


class Cancelled(ContractError):
    """The caller gave up."""

    code = "FS_ABORTED"
    errno = errno.EINTR

    def __init__(self) -> None:
        super().__init__("Cancelled.")
