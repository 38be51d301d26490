"""The history of a repository as far as somebody may see its files.

A commit counts where it changes something visible. What is between two such commits leaves no
trace: which commits are shown, and in what order, follows from visible content and from what those
commits say of themselves.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterator
from typing import NamedTuple

from fusefs.contract.paths import Path
from fusefs.contract.view import Cursor
from fusefs.tree.repository_errors import git_errors
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


class _Found(NamedTuple):
    """A commit as it is in the clone: ids, when it was committed, and what it says of itself."""

    id: bytes
    tree: bytes
    parents: list[bytes]
    when: int
    shown: Commit


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
        self._shown: dict[bytes, _Found | None] = {}

    def visible_part(self, commit: bytes) -> bytes:
        """Return a hash that two commits share if their visible files are the same."""
        return self._visible_part(self._find(commit))

    def _visible_part(self, commit: _Found) -> bytes:
        entry = entry_at(self._objects, commit.tree, self._path)
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
        queue: list[tuple[int, int, _Found]] = []
        seen: set[bytes] = set()

        def add(commit: bytes) -> None:
            shown = self._next_shown(self._find(commit))
            if shown is not None and shown.id not in seen:
                seen.add(shown.id)
                heapq.heappush(queue, (-shown.when, len(seen), shown))

        add(tip)
        while queue:
            commit = heapq.heappop(queue)[2]
            yield commit.shown
            for parent in commit.parents:
                add(parent)

    def _next_shown(self, commit: _Found) -> _Found | None:
        """Return the commit at or before this one that brought what is visible of it, or None.

        Of a merge that is like one of its parents, that parent's side is gone along alone
        (git-log(1), "History Simplification").
        """
        at: _Found | None = commit
        way = []
        while at is not None and at.id not in self._shown:
            way.append(at.id)
            part = self._visible_part(at)
            if part == _NOTHING and not at.parents:
                at = None
                break
            parents = map(self._find, at.parents)
            same = next((p for p in parents if self._visible_part(p) == part), None)
            if same is None:
                break
            at = same
        found = at if at is None else self._shown.get(at.id, at)
        self._shown.update(dict.fromkeys(way, found))
        return found

    def _find(self, oid: bytes) -> _Found:
        """Return a commit.

        Raises:
            OSError: the clone does not have it.
        """
        try:
            commit = self._objects.commit(oid)
        except OSError:
            return _by_hand(oid, self._objects.read(oid))  # git may take it all the same
        author = commit.author
        name = b"%s <%s>" % (author.raw_name, author.raw_email)
        return _Found(
            oid, commit.tree_id.raw, [parent.raw for parent in commit.parent_ids],
            commit.commit_time,
            Commit(
                name.decode(errors="replace"), max(author.time, 0), author.offset,
                commit.raw_message.decode(errors="replace"),
            ),
        )  # fmt: skip


@git_errors()
def _by_hand(oid: bytes, data: bytes) -> _Found:
    """Parse a commit that libgit2 does not: who made it or when is left out, or is no such thing.

    Raises:
        OSError: it is none.
    """
    head, _, message = data.partition(b"\n\n")
    lines = [line.partition(b" ")[::2] for line in head.split(b"\n")]
    fields = dict(reversed(lines))  # of each the first one
    author = fields.get(b"author", b"")
    name = author[: author.find(b">") + 1]
    return _Found(
        oid, bytes.fromhex(fields[b"tree"].decode()),
        [bytes.fromhex(value.decode()) for key, value in lines if key == b"parent"],
        _time(fields.get(b"committer", b"")),
        Commit(name.decode(errors="replace"), _time(author), 0, message.decode(errors="replace")),
    )  # fmt: skip


def _time(who: bytes) -> int:
    """Return the seconds in ``NAME <MAIL> SECONDS ZONE``, 0 where there are none."""
    match = re.search(rb"> ([0-9]{1,18})( |$)", who)
    return 0 if match is None else int(match[1])
