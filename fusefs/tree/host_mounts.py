"""What is mounted where on the host, as far as a bound folder must know."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
from typing import NamedTuple

from fusefs.tree import host_calls

OWN_TYPES = frozenset({b"fuse.fusefs"})
"""File system types of views that this program serves: it must not wait for itself."""

# Their node numbers come and go with the kernel's caches.
_UNSTABLE = re.compile(rb"fuse|fuseblk|fuse\..*|virtiofs")
# Changes made on other machines cause no inotify events here.
_SHARED = re.compile(
    rb"nfs|nfs4|cifs|smb3|smbfs|9p|ceph|afs|lustre|gfs2|ocfs2|vboxsf|hgfs|virtiofs|fuse|fuse\..*"
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of proc_pid_mountinfo(5)."""

    id: int
    point: bytes
    type: bytes


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), text)


def parse_mounts(text: bytes) -> list[Mount]:
    """Parse the text of ``/proc/self/mountinfo``."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(b" ")
        kind = fields[fields.index(b"-", 6) + 1]
        mounts.append(Mount(int(fields[0]), _unescape(fields[4]), _unescape(kind)))
    return mounts


def current_mounts() -> list[Mount]:
    """Return what is mounted now in this process's name space."""
    with open("/proc/self/mountinfo", "rb") as file:
        return parse_mounts(file.read())


def is_in_view(path: bytes) -> bool:
    """Tell whether an absolute path without links leads into a view of this program."""
    points = {mount.point for mount in current_mounts() if mount.type in OWN_TYPES}
    while path not in points:
        if path == b"/":
            return False
        path = os.path.dirname(path)
    return True


def _path_of(fd: int) -> bytes | None:
    """Return the path of what `fd` holds, None where no mount point is that deep."""
    try:
        return host_calls.path_of(fd)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


class MountTable:
    """The mounts of this process, read again only when the kernel says they changed."""

    def __init__(self) -> None:
        self._fd = os.open(b"/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)
        self._mounts: dict[int, Mount] = {}
        self._read()

    def is_own(self, mount: int) -> bool:
        """Tell whether the mount with the id `mount` is a view of this program."""
        return self._type(mount) in OWN_TYPES

    def has_unstable_handles(self, mount: int) -> bool:
        """Tell whether handles and inode generations of this mount do not last."""
        return _UNSTABLE.fullmatch(self._type(mount)) is not None

    def is_shared(self, mount: int) -> bool:
        """Tell whether others may change the file system without this kernel noticing."""
        return _SHARED.fullmatch(self._type(mount)) is not None

    def below(self, parent_fd: int, name: bytes) -> bool:
        """Tell whether anything is mounted at or below the directory `name` in `parent_fd`."""
        self._refresh()
        parent = _path_of(parent_fd)
        if parent is None:
            return False
        directory = os.path.join(parent, name)
        inside = directory + b"/"
        return any(
            mount.point == directory or mount.point.startswith(inside)
            for mount in self._mounts.values()
        )

    def own_entries(self, directory_fd: int) -> set[bytes]:
        """Return the names in a directory on which views of this program are mounted."""
        self._refresh()
        own = [mount.point for mount in self._mounts.values() if mount.type in OWN_TYPES]
        if not own:
            return set()
        directory = _path_of(directory_fd)
        return {os.path.basename(point) for point in own if os.path.dirname(point) == directory}

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _type(self, mount: int) -> bytes:
        self._refresh()
        found = self._mounts.get(mount)
        return b"" if found is None else found.type

    def _refresh(self) -> None:
        if self._poll.poll(0):
            self._read()

    def _read(self) -> None:
        pieces = []
        offset = 0
        with contextlib.suppress(BlockingIOError):
            while piece := os.pread(self._fd, 1 << 16, offset):
                pieces.append(piece)
                offset += len(piece)
        self._mounts = {mount.id: mount for mount in parse_mounts(b"".join(pieces))}
