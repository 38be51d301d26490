"""Three-way merges of trees, and how two trees differ."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import count
from pathlib import Path as HostPath
from types import MappingProxyType
from typing import NamedTuple

from fusefs.contract.levels import Level
from fusefs.contract.paths import NAME_MAX, Path
from fusefs.forge.git_process import Limits, run
from fusefs.tree.repository_objects import BLOB, PROGRAM, TREE, RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import write_tree

_REGULAR = (BLOB, PROGRAM)
_NOT_TEXT = 128
"""The least status with which git-merge-file(1) gives up; below it are counts of conflicts."""

Sides = tuple[str, str]
"""What ours and theirs are called where they conflict."""


def merge(
    objects: RepositoryObjects,
    base: bytes,
    ours: bytes,
    theirs: bytes,
    *,
    names: Sides,
    level: Callable[[Path], Level],
) -> tuple[bytes, dict[Path, str]]:
    """Merge two trees that began as a third, at the cost of what differs.

    Each path is merged on its own: renames are not guessed at, since where a file went, and with
    it what is staged, could then be told by files that a session does not see. A file that finds a
    directory in its place gets another name, at which the session may do with it what it might
    before.

    Args:
        objects: the repository.
        base: the tree that both began as.
        ours: a tree.
        theirs: another one.
        names: see `Sides`.
        level: the level at a path, of the session for which it is merged.

    Returns:
        The merged tree, in which conflicting files show both sides, and those files' paths, each
        with two letters as git-status(1) has them: how the conflict came about.

    Raises:
        OSError: git could not merge a file.
        ForgeError: git is not there, or takes too long.
    """
    merging = _Merge(objects, names, level)
    began, here, there = (TreeEntry(TREE, tree) for tree in (base, ours, theirs))
    merged = merging.trees((), began, here, there)
    return (write_tree(objects, {}) if merged is None else merged.oid), merging.conflicts


class _Directory(NamedTuple):
    """A directory that is being merged: what it has so far, and the names that the sides use."""

    made: dict[bytes, TreeEntry]
    names: Set[bytes]

    def has_room(self, name: bytes) -> bool:
        """Tell whether a name is free in it."""
        return name not in self.names and name not in self.made


def _names_for(name: bytes, side: str) -> Iterator[bytes]:
    """Yield names for a file whose own name is taken."""
    for number in count():
        end = b"~" + side.replace("/", "_").encode() + (b"_%d" % number if number else b"")
        yield name[: NAME_MAX - len(end)] + end


class _Merge:
    """One merge; an entry that is not there is None."""

    def __init__(
        self, objects: RepositoryObjects, names: Sides, level: Callable[[Path], Level]
    ) -> None:
        self._objects = objects
        self._names = names
        self._level = level
        self.conflicts: dict[Path, str] = {}

    def trees(
        self,
        path: Path,
        base: TreeEntry | None,
        ours: TreeEntry | None,
        theirs: TreeEntry | None,
        aside: Mapping[bytes, TreeEntry] = MappingProxyType({}),
    ) -> TreeEntry | None:
        """Merge directories, of which those that are none count as empty; `aside` goes in, too."""
        sides = [self._entries(entry) for entry in (base, ours, theirs)]
        names = set().union(*sides)
        merged = dict(aside)
        for name in sorted(names):
            before, here, there = (side.get(name) for side in sides)
            found = self._entry((*path, name), before, here, there, _Directory(merged, names))
            if found is not None:
                merged[name] = found
        return TreeEntry(TREE, write_tree(self._objects, merged)) if merged else None

    def _entries(self, entry: TreeEntry | None) -> Mapping[bytes, TreeEntry]:
        if entry is None or not entry.is_tree:
            return {}
        return self._objects.entries(entry.oid)

    def _entry(
        self,
        path: Path,
        base: TreeEntry | None,
        ours: TreeEntry | None,
        theirs: TreeEntry | None,
        beside: _Directory,
    ) -> TreeEntry | None:
        """Merge what stands at a path; what finds no room there goes `beside` it, or inside."""
        if ours in (base, theirs):
            return theirs
        if base == theirs:
            return ours
        if not any(side is not None and side.is_tree for side in (ours, theirs)):
            return self._files(path, base, ours, theirs)
        inside = _Directory(
            {}, set().union(*(self._entries(side) for side in (base, ours, theirs)))
        )
        for side, name, code in zip((ours, theirs), self._names, ("AU", "UA"), strict=True):
            if side is not None and not side.is_tree and side != base:
                # Where the other one has a directory by now.
                at = self._put_aside(path, side, name, beside, inside)
                self.conflicts[at] = code
        return self.trees(path, base, ours, theirs, inside.made)

    def _put_aside(
        self, path: Path, side: TreeEntry, name: str, beside: _Directory, inside: _Directory
    ) -> Path:
        """Give a file another name, of its own level: beside the directory in its place, or,
        where the rules have another level there, in it. Return its path."""
        for directory, above in ((beside, path[:-1]), (inside, path)):
            for own in _names_for(path[-1], name):
                if self._level((*above, own)) != self._level(path):
                    break
                if directory.has_room(own):
                    directory.made[own] = side
                    return (*above, own)
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(b"/".join(path)))

    def _files(
        self, path: Path, base: TreeEntry | None, ours: TreeEntry | None, theirs: TreeEntry | None
    ) -> TreeEntry | None:
        if ours is None or theirs is None:
            self.conflicts[path] = "UD" if ours else "DU"  # removed by one, changed by the other
            return ours or theirs
        code = "AA" if base is None else "UU"
        if ours.mode not in _REGULAR or theirs.mode not in _REGULAR:
            self.conflicts[path] = code
            return ours
        mode = theirs.mode if base is not None and base.mode == ours.mode else ours.mode
        if ours.oid == theirs.oid:
            return TreeEntry(mode, ours.oid)
        is_file = base is not None and base.mode in _REGULAR
        data, is_clean = self._contents(base.oid if base and is_file else None, ours, theirs)
        if not is_clean:
            self.conflicts[path] = code
        return TreeEntry(mode, self._objects.write(data))

    def _contents(
        self, base: bytes | None, ours: TreeEntry, theirs: TreeEntry
    ) -> tuple[bytes, bool]:
        """Merge texts with git-merge-file(1); of what is no text, ours stays."""
        with tempfile.TemporaryDirectory(prefix="fusefs-merge-") as folder:
            files = [HostPath(folder, name) for name in ("ours", "base", "theirs")]
            for file, oid in zip(files, (ours.oid, base, theirs.oid), strict=True):
                file.write_bytes(b"" if oid is None else self._objects.read(oid))
            output = run(
                ["merge-file", "-q", "-L", self._names[0], "-L", "base", "-L", self._names[1],
                 *map(str, files)],
                repository=HostPath(self._objects.folder),
                limits=Limits(idle=Limits.total),
            )  # fmt: skip
            if not 0 <= output.status < _NOT_TEXT:
                return self._objects.read(ours.oid), False
            return files[0].read_bytes(), output.status == 0


def entry_at(objects: RepositoryObjects, tree: bytes, path: Path) -> TreeEntry | None:
    """Return what stands at a path below a tree, or None."""
    at: TreeEntry | None = TreeEntry(TREE, tree)
    for name in path:
        if at is None or not at.is_tree:
            return None
        at = objects.entries(at.oid).get(name)
    return at


def differences(
    objects: RepositoryObjects, old: bytes | None, new: bytes | None, path: Path = ()
) -> Iterable[tuple[Path, TreeEntry | None]]:
    """Yield the paths at which two trees have other files, with what the new one has there."""
    before = {} if old is None else objects.entries(old)
    after = {} if new is None else objects.entries(new)
    for name in sorted({*before, *after}):
        here, there = before.get(name), after.get(name)
        if here == there:
            continue
        below = (*path, name)
        old_tree = here.oid if here is not None and here.is_tree else None
        new_tree = there.oid if there is not None and there.is_tree else None
        if old_tree is not None or new_tree is not None:
            yield from differences(objects, old_tree, new_tree, below)
        if there is not None and new_tree is None:
            yield below, there
        elif here is not None and old_tree is None:
            yield below, None
