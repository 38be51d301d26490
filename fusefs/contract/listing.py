"""How a listing reads (contract section 8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fusefs.contract.levels import Level
from fusefs.contract.sessions import World

_DIRECTORIES = frozenset({"dir", "mount"})


class ListedEntry(NamedTuple):
    """A visible entry of a directory.

    Attributes:
        kind: ``dir``, ``mount``, ``file``, ``symlink``, ``fifo`` or ``socket``.
        level: the session's level on the entry.
    """

    name: str
    kind: str
    level: Level


def format_listing(entries: Iterable[ListedEntry], *, world: World, directory_level: Level) -> str:
    """Return the text of a listing, without a line break at its end; no entries, no text.

    The arguments are those of `listing_lines`.
    """
    return "\n".join(listing_lines(entries, world=world, directory_level=directory_level))


def listing_lines(
    entries: Iterable[ListedEntry], *, world: World, directory_level: Level
) -> list[str]:
    """Return the lines of a listing.

    Args:
        entries: in any order.
        world: a chat marks mounts and what it cannot change; an agent's listing has no marks.
        directory_level: the session's level on the directory that is listed.
    """
    marked = world is World.CHAT
    lines = []
    for entry in sorted(entries, key=_order):
        line = f"{entry.name}/" if entry.kind in _DIRECTORIES else entry.name
        if marked and entry.kind == "mount":
            line += " [mount]"
        if marked and entry.level == Level.RO and directory_level >= Level.STAGE:
            line += " [read-only]"
        lines.append(line)
    return lines


def _order(entry: ListedEntry) -> tuple[bool, str]:
    return entry.kind not in _DIRECTORIES, entry.name
