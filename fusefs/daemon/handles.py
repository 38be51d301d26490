"""Open files and directories, by the small numbers the kernel is given for them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from fusefs.daemon.guard import UnknownHandle
from fusefs.daemon.listings import FIRST_ENTRY, Collected

if TYPE_CHECKING:
    from fusefs.daemon.inodes import Inode
    from fusefs.session.handles import ViewDirectory, ViewFile
    from fusefs.session.place import Place
    from fusefs.session.stat import Stat

    Listed = tuple[bytes, Place, Stat]

_FIRST_BATCH = 64
_PAUSE = 0.02


class FileHandle:
    """An open regular file.

    Attributes:
        append: opened with O_APPEND.
        keeps_set_ids: its opener's writes leave set-id bits alone, or have cleared them.
        unflushed: something was written since the last flush.
        jobs: work on the file in other threads; it is closed only when there is none.
    """

    __slots__ = ("append", "file", "inode", "jobs", "keeps_set_ids", "unflushed")

    def __init__(
        self, inode: Inode, file: ViewFile, *, append: bool, keeps_set_ids: bool
    ) -> None:
        self.inode = inode
        self.file = file
        self.append = append
        self.keeps_set_ids = keeps_set_ids
        self.unflushed = False
        self.jobs: set[object] = set()

    async def idle(self) -> None:
        """Wait until no other thread works on the file: only one that was given up does."""
        while True:
            if not self.jobs:
                return
            await trio.sleep(_PAUSE)


class DirectoryHandle:
    """An open directory, with the names that were given out.

    A position is the number of names given out before it plus `FIRST_ENTRY`, so it stays good
    while entries come and go: reading goes on after the *name* that stands before it. A name
    that is given out again, after a seek back, keeps its position.

    Attributes:
        batch: how many entries to read at once.
        ahead: entries that were read and did not fit into the last reply.
        ahead_at: the position where they follow, and the mount's count of changes then.
        last: the position behind the entry that was given out last.
        as_of: how many changes the mount had seen when the listing began.
        collected: the listing as it was given out so far, None where it is not to be kept.
    """

    __slots__ = (
        "_names", "_positions", "ahead", "ahead_at", "as_of", "batch", "collected", "directory",
        "inode", "last",
    )  # fmt: skip

    def __init__(self, inode: Inode, directory: ViewDirectory) -> None:
        self.inode = inode
        self.directory = directory
        self.batch = _FIRST_BATCH
        self.ahead: list[Listed] = []
        self.ahead_at = (-1, -1)
        self.last = FIRST_ENTRY
        self.as_of = -1
        self.collected: Collected | None = None
        self._names: list[bytes] = []
        self._positions: dict[bytes, int] | None = None

    def rewind(self) -> None:
        """Start anew: all positions given out so far lose their meaning, as POSIX has it."""
        self._names.clear()
        self._positions = None
        self.ahead = []
        self.collected = None

    def begin(self, changes: int) -> None:
        """Note that the first entry is asked for, after so many changes."""
        if not self._names:
            self.as_of = changes
            self.collected = None if self.inode.volatile else Collected(changes)

    def name_before(self, position: int) -> bytes | None:
        """Return the name after which reading goes on at `position`: b"" at the first entry,
        None where no such position was given out."""
        index = position - FIRST_ENTRY
        if not 0 <= index <= len(self._names):
            return None
        if index < len(self._names) and self._positions is None:
            self._positions = {
                name: at for at, name in enumerate(self._names, start=FIRST_ENTRY + 1)
            }
        return self._names[index - 1] if index else b""

    def position_after(self, name: bytes) -> int:
        """Return the position behind `name`, whose entry is about to be given out."""
        if self._positions is None:
            return len(self._names) + FIRST_ENTRY + 1
        return self._positions.get(name, len(self._names) + FIRST_ENTRY + 1)

    def given(self, name: bytes, position: int) -> None:
        """Note that the entry `name` was given out, with `position` behind it."""
        self.last = position
        if position == len(self._names) + FIRST_ENTRY + 1:
            self._names.append(name)
            if self._positions is not None:
                self._positions[name] = position


_Handle = TypeVar("_Handle")


class HandleTable(Generic[_Handle]):
    """Handles of one kind. Numbers are reused, the smallest first."""

    def __init__(self) -> None:
        self.by_number: dict[int, _Handle] = _Handles()
        self._free: list[int] = []

    def add(self, handle: _Handle) -> int:
        """Give `handle` a number."""
        number = heapq.heappop(self._free) if self._free else len(self.by_number) + 1
        self.by_number[number] = handle
        return number

    def remove(self, number: int) -> _Handle:
        """Take the handle `number` out.

        Raises:
            UnknownHandle: there is none.
        """
        handle = self.by_number[number]
        del self.by_number[number]
        heapq.heappush(self._free, number)
        return handle

    def remove_all(self) -> list[_Handle]:
        """Take all handles out."""
        handles = list(self.by_number.values())
        self.by_number.clear()
        self._free.clear()
        return handles


class _Handles(dict[int, _Handle]):
    def __missing__(self, number: int) -> _Handle:
        raise UnknownHandle(number)
