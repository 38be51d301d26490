"""The history of a repository as far as somebody may see its files.

A commit counts where it changes something visible. What is between two such commits leaves no
trace: which commits are shown, and in what order, follows from visible content and from what those
commits say of themselves.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from typing import NamedTuple

import pygit2

from fusefs.contract.paths import Path
from fusefs.contract.view import Cursor
from fusefs.tree.repository_merge import entry_at
from fusefs.tree.repository_objects import RepositoryObjects

_NOTHING = b""


class Commit(NamedTuple):
    """What a commit says of itself.

    Attributes:
        author: as ``Name <mail>``.
        time: when it was written, in seconds since the epoch; 0 where it says none or one before.
        offset: of its author's clock from UTC, in minutes.
        message: the whole text.
    """

    author: str
    time: int
    offset: int
    message: str


class VisibleHistory:
    """Compares trees by what is visible of them, by the rules below one cursor."""

    def __init__(self, objects: RepositoryObjects, cursor: Cursor, path: Path = ()) -> None:
        """Look at what is at and below `path` through the rules at `cursor`, the repository's
        top."""
        self._objects = objects
        self._path = path
        for name in path:
            cursor = cursor.child(name)
        self._cursor = cursor
        self._known: dict[tuple[bytes, int], bytes] = {}
        self._shown: dict[pygit2.Oid, pygit2.Commit | None] = {}

    def visible_part(self, commit: bytes) -> bytes:
        """Return a hash that two commits share if their visible files are the same."""
        entry = entry_at(self._objects, self._objects.tree_of(commit), self._path)
        if entry is None:
            return _NOTHING
        if entry.is_tree:
            return self._part(entry.oid, self._cursor)
        return b"%o %s" % (entry.mode, entry.oid) if self._cursor.visible else _NOTHING

    def _part(self, tree: bytes, cursor: Cursor) -> bytes:
        if cursor.uniform:
            return tree if cursor.visible else _NOTHING
        # Cursors live as long as the view; nothing else tells the rules of two places apart.
        key = (tree, id(cursor))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._hash(tree, cursor)
        return known

    def _hash(self, tree: bytes, cursor: Cursor) -> bytes:
        digest, found = hashlib.sha256(), False
        for name, entry in self._objects.entries(tree).items():
            below = cursor.child(name)
            if entry.is_tree:
                part = self._part(entry.oid, below)
            else:
                part = entry.oid if below.visible else _NOTHING
            if part:
                found = True
                digest.update(b"%o %s\0%d %s" % (entry.mode, name, len(part), part))
        return digest.digest() if found else _NOTHING

    def commits(self, tip: bytes) -> Iterator[Commit]:
        """Yield the commits before and at `tip` that changed something visible, newest first."""
        queue: list[tuple[int, int, pygit2.Commit]] = []
        seen: set[pygit2.Oid] = set()

        def add(commit: pygit2.Commit) -> None:
            shown = self._next_shown(commit)
            if shown is not None and shown.id not in seen:
                seen.add(shown.id)
                heapq.heappush(queue, (-shown.commit_time, len(seen), shown))

        add(self._objects.commit(tip))
        while queue:
            commit = heapq.heappop(queue)[2]
            author = commit.author
            name = b"%s <%s>" % (author.raw_name, author.raw_email)
            yield Commit(
                name.decode(errors="replace"), max(author.time, 0), author.offset,
                commit.raw_message.decode(errors="replace"),
            )  # fmt: skip
            for parent in commit.parents:
                add(parent)

    def _next_shown(self, commit: pygit2.Commit) -> pygit2.Commit | None:
        """Return the commit at or before this one that brought what is visible of it, or None.

        Of a merge that is like one of its parents, that parent's side is gone along alone
        (git-log(1), "History Simplification").
        """
        at: pygit2.Commit | None = commit
        way = []
        while at is not None and at.id not in self._shown:
            way.append(at.id)
            part = self.visible_part(at.id.raw)
            if part == _NOTHING and not at.parents:
                at = None
                break
            like = (p for p in at.parents if self.visible_part(p.id.raw) == part)
            same = next(like, None)
            if same is None:
                break
            at = same
        found = at if at is None else self._shown.get(at.id, at)
        self._shown.update(dict.fromkeys(way, found))
        return found
