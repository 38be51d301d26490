"""Targets of symbolic links (contract section 4)."""

from __future__ import annotations

import errno

from fusefs.contract.errors import InvalidArgument, UnusableLink
from fusefs.contract.paths import Path, render, resolve

TARGET_MAX = 4095
"""The longest target of a symbolic link, in bytes (PATH_MAX of Linux)."""


def check_target(target: bytes, link: Path) -> None:
    """Check that a symbolic link at `link` can have a target: a blob in a repository may hold any.

    Raises:
        UnusableLink: no system call would take it.
    """
    if not target:
        raise UnusableLink(render(link), "is empty", errno.ENOENT)
    if b"\0" in target:
        raise UnusableLink(render(link), "has a NUL", errno.EINVAL)
    if len(target) > TARGET_MAX:
        raise UnusableLink(render(link), f"is {len(target):,} bytes long", errno.ENAMETOOLONG)


def resolve_target(target: bytes, link: Path) -> Path:
    """Return the path that a symbolic link at `link` leads to.

    Raises:
        UnusableLink: it is none.
    """
    try:
        return resolve(target, link[:-1])
    except InvalidArgument as error:
        raise UnusableLink(render(link), "is no path", error.errno) from None
