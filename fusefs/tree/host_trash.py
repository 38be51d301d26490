"""What a host directory needs of a trash: a place to move removed entries to."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fusefs.contract.kinds import Kind
from fusefs.tree import host_calls
from fusefs.tree.backend import Actor
from fusefs.tree.host_copy import copy_entry, is_empty_directory, remove_entry

MoveEntry = Callable[[int, bytes], None]
"""Moves the entry into the directory of the descriptor, under the name given."""


@dataclass(frozen=True, slots=True)
class TrashOrigin:
    """What is about to be removed.

    Attributes:
        path: where it is, from the bound folder down.
        size: bytes of a file; 0 for a directory.
        device: ``st_dev`` of its file system; on the same one, moving it costs nothing.
    """

    path: tuple[bytes, ...]
    kind: Kind
    size: int
    device: int
    actor: Actor


class HostTrash(Protocol):
    """Keeps what was removed from host directories."""

    def add(self, origin: TrashOrigin, move: MoveEntry) -> None:
        """Choose a directory and a name free in it, and call `move` with them exactly once.

        When `move` raises, nothing was moved: forget the entry and let the error through. When
        it returns, the entry is there whole, though not yet synced where it was renamed.
        """
        ...


def rename_new(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes) -> None:
    """Rename an entry to a name that must be free.

    Raises:
        FileExistsError: it is taken.
    """
    try:
        host_calls.renameat2(dir_fd, name, new_dir_fd, new_name, host_calls.RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # Some file systems (NFS) know no flags; EINVAL for a move into itself comes again below.
        with contextlib.suppress(FileNotFoundError):
            os.stat(new_name, dir_fd=new_dir_fd, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.rename(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=new_dir_fd)


def move_entry(dir_fd: int, name: bytes, new_dir_fd: int, new_name: bytes) -> OSError | None:
    """Move an entry to another directory, copying it where file systems differ.

    Returns:
        None, or the error that kept a part of the original where it was; the new entry is
        whole even then.

    Raises:
        OSError: nothing was moved (EEXIST for a taken name, ENOSPC, ...).
    """
    try:
        rename_new(dir_fd, name, new_dir_fd, new_name)
        return None
    except OSError as error:
        # EACCES: a directory that we may not write into can be removed when it is empty, but
        # not moved.
        if error.errno == errno.EACCES:
            if not is_empty_directory(dir_fd, name):
                raise
        elif error.errno != errno.EXDEV:
            raise
    info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    single = not stat.S_ISDIR(info.st_mode) or is_empty_directory(dir_fd, name)
    copy_entry(dir_fd, name, new_dir_fd, new_name)
    try:
        remove_entry(dir_fd, name)
    except OSError as error:
        if not single:
            return error
        remove_entry(new_dir_fd, new_name)
        raise
    return None
