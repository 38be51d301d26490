"""Folders that appear whole or not at all, and replace an earlier one in one step.

A folder is made beside its place, under a name of its own, and then exchanged with what is
there. What a killed process left under that name is swept up by the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fusefs.store.content import sync_folder
from fusefs.store.flocks import try_lock
from fusefs.store.instance import InstanceError
from fusefs.tree import host_calls
from fusefs.tree.host_copy import remove_entry

_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS)


class StagedFolder:
    """A folder that is being made.

    Attributes:
        target: where it is to be.
        path: where it is made.
    """

    def __init__(self, target: Path, path: Path, fd: int) -> None:
        self.target = target
        self.path = path
        self._fd = fd

    def publish(self) -> None:
        """Make it durable, and put it where it is to be; what is there is removed afterwards.

        Raises:
            OSError: the disk refused; all is as it was.
        """
        host_calls.syncfs(self._fd)
        if self.target.exists():
            self._exchange()
        else:
            self.path.rename(self.target)
        sync_folder(self.target.parent)

    def _exchange(self) -> None:
        new, old = os.fsencode(self.path), os.fsencode(self.target)
        try:
            host_calls.renameat2(_AT_FDCWD, new, _AT_FDCWD, old, host_calls.RENAME_EXCHANGE)
        except OSError as error:
            if error.errno not in _NO_EXCHANGE:
                raise OSError(error.errno, error.strerror, os.fspath(self.target)) from error
            # Some file systems (NFS) cannot. `_put_back` helps where this is interrupted.
            aside = _aside(self.target)
            self.target.rename(aside)
            self.path.rename(self.target)
            aside.rename(self.path)


_AT_FDCWD = -100


@contextmanager
def staged(target: Path) -> Iterator[StagedFolder]:
    """Make an empty folder that `StagedFolder.publish` puts at `target`.

    At the end it is removed, or what it replaced is. Until then nobody else can do the same.

    Args:
        target: absolute, without symbolic links; missing, or a folder.

    Raises:
        InstanceError: somebody else does the same now, or `target` cannot be exchanged.
        OSError: the folder cannot be made.
    """
    if target.is_mount():
        raise InstanceError(
            f"{target} is a mount point, which cannot be replaced as a whole: "
            f"give a folder in it, such as {target / 'fusefs'}."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    path = target.parent / f".{target.name}.new"
    with contextlib.ExitStack() as locks:
        _put_back(target)
        if target.exists():
            locks.enter_context(locked(target))
        if path.exists():
            with locked(path):
                _remove(path)
        path.mkdir(0o700)
        fd = locks.enter_context(locked(path))
        try:
            yield StagedFolder(target, path, fd)
        finally:
            _remove(path)


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[int]:
    """Hold a lock on `folder` against others who make, replace or read it as a whole.

    Raises:
        InstanceError: another process has it.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not try_lock(fd, shared=shared):
            raise InstanceError(
                f"{folder} is used by another backup or restore: wait until it has ended."
            )
        yield fd
    finally:
        os.close(fd)


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def _put_back(target: Path) -> None:
    """Undo an exchange in steps that was interrupted."""
    aside = _aside(target)
    if aside.exists():
        if target.exists():
            with locked(aside):
                _remove(aside)
        else:
            aside.rename(target)


def _remove(folder: Path) -> None:
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            remove_entry(parent, os.fsencode(folder.name))
    finally:
        os.close(parent)
