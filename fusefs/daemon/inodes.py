"""Inode numbers: what the kernel knows, and what each number stands for.

The kernel counts how often it was told of an inode and gives the counts back with *forget*.
An inode is dropped when the count is 0 and no handle is open, never before: an unlinked file
lives on in the handles that have it open.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

import trio
from pyfuse3 import ROOT_INODE

from fusefs.daemon.guard import UnknownInode

if TYPE_CHECKING:
    from fusefs.daemon.handles import FileHandle
    from fusefs.session.place import Place

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # odd, so that stepping by it reaches every number


class Copying:
    """The base of a large file is being copied before its first write."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: OSError | None = None


class Watch:
    """Whether a host directory is watched for changes by other programs.

    Attributes:
        key: its node in the backend.
        active: it is; False where that cannot be relied on.
        own: names that this mount changed and whose events have not come yet.
    """

    __slots__ = ("active", "key", "own")

    def __init__(self, key: Hashable, *, active: bool) -> None:
        self.key = key
        self.active = active
        self.own: set[bytes] = set()


class Inode:
    """A node that the kernel knows.

    Attributes:
        number: what the kernel calls it; the mount's root is always 1.
        place: where it is in the tree.
        lookups: how often the kernel was told of it and has not forgotten it.
        files: open handles of a regular file; None while there never was one.
        directories: number of open directory handles.
        volatile: the node changes behind our back.
        removed: its last name was removed, here or by others.
        changed: its bytes were changed through this mount and not published yet.
        copying: work to be waited for before the next write.
        content: (size, mtime) when a volatile file was last opened.
        shown: (size, mtime) that the kernel was told last; None once it knows better, having
            changed the file itself.
        watch: of a volatile directory, once it was asked for.
    """

    __slots__ = (
        "changed",
        "content",
        "copying",
        "directories",
        "files",
        "lookups",
        "number",
        "place",
        "removed",
        "shown",
        "volatile",
        "watch",
    )

    def __init__(self, number: int, place: Place) -> None:
        self.number = number
        self.place = place
        self.lookups = 0
        self.files: list[FileHandle] | None = None
        self.directories = 0
        self.volatile = False
        self.removed = False
        self.changed = False
        self.shown: tuple[int, int] | None = None
        self.copying: Copying | None = None
        self.content: tuple[int, int] | None = None
        self.watch: Watch | None = None

    def opened(self, handle: FileHandle) -> None:
        """Note an open handle."""
        if self.files is None:
            self.files = [handle]
        else:
            self.files.append(handle)

    def closed(self, handle: FileHandle) -> None:
        """Note that a handle is closed."""
        assert self.files is not None
        self.files.remove(handle)


class _Numbers(dict[int, Inode]):
    def __missing__(self, number: int) -> Inode:
        raise UnknownInode(number)


class InodeTable:
    """All inodes that the kernel knows.

    Attributes:
        by_number: number to inode; an unknown number raises `UnknownInode`.
        root: the mount's root, which is never forgotten.
        absent_at_top: names the kernel was told are not in the root. Every other directory's
            are dropped with the directory's own name; the root has none.
        on_drop: called with an inode that is dropped.
    """

    def __init__(self, root: Place) -> None:
        self.on_drop: list[Callable[[Inode], None]] = []
        self.root = Inode(ROOT_INODE, root)
        self.root.lookups = 1
        self.by_number = _Numbers({ROOT_INODE: self.root})
        root.face = self.root
        self.absent_at_top: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.by_number)

    def __iter__(self) -> Iterator[Inode]:
        return iter(list(self.by_number.values()))

    def at(self, place: Place | None) -> Inode | None:
        """Return the inode of a place, if the kernel knows it."""
        return None if place is None else cast("Inode | None", place.face)

    def know(self, place: Place, wanted: int) -> Inode:
        """Return the inode of a place; a new one is called `wanted` if that number is free.

        The caller counts the lookup, or calls `drop_unused`, before anybody else may run.
        """
        inode = cast("Inode | None", place.face)
        if inode is None:
            number = wanted
            while number <= ROOT_INODE or number in self.by_number:
                number = (number + _STEP) & _MASK
            inode = Inode(number, place)
            self.by_number[number] = inode
            place.face = inode
        return inode

    def forget(self, counts: Iterable[tuple[int, int]]) -> None:
        """Take back lookups that the kernel has forgotten."""
        for number, count in counts:
            inode = self.by_number.get(number)
            if inode is not None and inode is not self.root:
                inode.lookups = max(inode.lookups - count, 0)
                self.drop_unused(inode)

    def drop_unused(self, inode: Inode) -> None:
        """Drop an inode that neither the kernel nor a handle holds."""
        if not inode.lookups and not inode.files and not inode.directories:
            del self.by_number[inode.number]
            inode.place.face = None
            for tell in self.on_drop:
                tell(inode)
