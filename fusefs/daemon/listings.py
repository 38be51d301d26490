"""Listings that were given out lately, ready to be given out again.

The kernel keeps no listing for pyfuse3, so each `ls` asks anew. As long as nothing at all changed
in the mount since, the answer is the same, and need not be made again. A listing goes when the
kernel forgets the directory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pyfuse3 import EntryAttributes

if TYPE_CHECKING:
    from fusefs.daemon.inodes import Inode

FIRST_ENTRY = 2
"""The position of the first entry of a directory; ``.`` is at 0 and ``..`` at 1."""

_MOST_ENTRIES = 32_768
_LONGEST = 8_192


class Shown(NamedTuple):
    """An entry as the kernel was told of it."""

    name: bytes
    inode: Inode
    attributes: EntryAttributes


class Listings:
    """Whole listings, the last used ones, by directory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Inode, list[Shown]] = OrderedDict()
        self._entries = 0
        self._as_of = -1

    def get(self, directory: Inode, changes: int) -> list[Shown] | None:
        """Return the listing of a directory, if it is kept and nothing changed since.

        Args:
            directory: the directory.
            changes: how many changes the mount has seen so far.
        """
        if changes != self._as_of:
            return None
        listing = self._kept.get(directory)
        if listing is not None:
            self._kept.move_to_end(directory)
        return listing

    def keep(self, directory: Inode, changes: int, listing: list[Shown]) -> None:
        """Keep the whole listing of a directory, as of so many changes."""
        if changes != self._as_of:
            self._kept.clear()
            self._entries = 0
            self._as_of = changes
        self._entries += len(listing) - len(self._kept.pop(directory, ()))
        self._kept[directory] = listing
        while self._entries > _MOST_ENTRIES:
            _, dropped = self._kept.popitem(last=False)
            self._entries -= len(dropped)

    def drop(self, directory: Inode) -> None:
        """Do not keep the listing of a directory any longer."""
        self._entries -= len(self._kept.pop(directory, ()))


class Collected:
    """A listing on its way to be kept: all of it was given out in order, with no change."""

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.entries: list[Shown] = []

    def reaches(self, position: int) -> bool:
        """Tell whether all entries before a position are noted, and no others."""
        return len(self.entries) == position - FIRST_ENTRY

    def add(self, entries: list[Shown]) -> bool:
        """Note entries that were given out; tell whether the listing may still be kept."""
        self.entries += entries
        return len(self.entries) <= _LONGEST
