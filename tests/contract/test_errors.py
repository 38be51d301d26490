"""Texts, codes and errnos are exactly the contract's (section 7)."""

from __future__ import annotations

import errno

import pytest

from fusefs.contract import errors


@pytest.mark.parametrize(
    ("error", "text", "code", "number"),
    [
        (errors.NotFound("/p"), "No such file or directory: /p", "FS_NOT_FOUND", errno.ENOENT),
        (
            errors.AccessDenied("/p"),
            "Access denied: /p is not open to this session.",
            "FS_PERMISSION_DENIED",
            errno.EACCES,
        ),
        (
            errors.ReadOnly("/p"),
            "Read-only: /p can be read in this session but not changed.",
            "FS_PERMISSION_DENIED",
            errno.EROFS,
        ),
        (
            errors.NotCommitted("/p"),
            "Not committed: this session may change /p but not commit it; the change stays staged.",
            "FS_PERMISSION_DENIED",
            None,
        ),
        (
            errors.NothingToCommit("/p"),
            "Nothing to commit: /p is not in a repository.",
            "FS_NOT_FOUND",
            None,
        ),
        (errors.IsADirectory("/p"), "Is a directory: /p", "FS_NOT_REGULAR_FILE", errno.EISDIR),
        (errors.NotADirectory("/p"), "Not a directory: /p", "FS_NOT_REGULAR_FILE", errno.ENOTDIR),
        (errors.AlreadyExists("/p"), "Already exists: /p", "FS_EXISTS", errno.EEXIST),
        (
            errors.CrossMount("/p", "/q"),
            "Not moved: /p and /q are not in the same repository.",
            "FS_CROSS_MOUNT",
            errno.EXDEV,
        ),
        (
            errors.MountBusy("/p"),
            "Not removed: /p is a mount; whoever mounted it removes it.",
            "FS_BUSY",
            errno.EBUSY,
        ),
        (
            errors.MountBusy("/"),
            "Not removed: / is the root of the tree.",
            "FS_BUSY",
            errno.EBUSY,
        ),
        (
            errors.TooLarge("/p", 5, 4),
            "Too large: /p is 5 bytes; the limit is 4.",
            "FS_TOO_LARGE",
            errno.EFBIG,
        ),
        (errors.NotText("/p"), "Not text: /p", "FS_NOT_TEXT", None),
        (errors.Cancelled(), "Cancelled.", "FS_ABORTED", errno.EINTR),
    ],
)
def test_the_table(error: errors.ContractError, text: str, code: str, number: int | None) -> None:
    assert error.text == str(error) == text
    assert error.code == code
    assert number is None or error.errno == number
