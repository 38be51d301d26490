"""Three-way merges of trees, and how two trees differ."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path as HostPath

from fusefs.contract.levels import Level
from fusefs.contract.paths import NAME_MAX, Path
from fusefs.forge.git_process import Limits, run
from fusefs.tree.repository_objects import BLOB, PROGRAM, TREE, RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import write_tree

_REGULAR = (BLOB, PROGRAM)
_NOT_TEXT = 128
"""The least status with which git-merge-file(1) gives up; below it are counts of conflicts."""

MERGE_PREFIX = "tmp_merge_"
"""How the names of a merge's folders begin; a backup leaves out whatever begins with ``tmp_``."""

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
    merged = merging.trees(*(TreeEntry(TREE, tree) for tree in (base, ours, theirs)))
    return (write_tree(objects, {}) if merged is None else merged.oid), merging.conflicts


class _Directory:
    """One directory being merged, of which those sides that have none count as empty.

    Attributes:
        path: where it is.
        sides: the entries of base, ours and theirs.
        names: those that the sides use.
        left: those of them that are yet to be merged.
        made: what comes of it.
    """

    def __init__(self, objects: RepositoryObjects, path: Path, *sides: TreeEntry | None) -> None:
        self.path = path
        self.sides: list[Mapping[bytes, TreeEntry]] = [
            objects.entries(side.oid) if side is not None and side.is_tree else {}
            for side in sides
        ]
        self.names = set[bytes]().union(*self.sides)
        self.left = iter(sorted(self.names))
        self.made: dict[bytes, TreeEntry] = {}

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

    def trees(self, *sides: TreeEntry | None) -> TreeEntry | None:
        """Merge directories. Nothing recurses: others may lie thousands deep in them."""
        way = [_Directory(self._objects, (), *sides)]
        while True:
            at = way[-1]
            name = next(at.left, None)
            if name is not None:
                base, ours, theirs = (side.get(name) for side in at.sides)
                found = self._entry((*at.path, name), base, ours, theirs, at)
                if isinstance(found, _Directory):
                    way.append(found)
                elif found is not None:
                    at.made[name] = found
                continue
            made = TreeEntry(TREE, write_tree(self._objects, at.made)) if at.made else None
            way.pop()
            if not way:
                return made
            if made is not None:
                way[-1].made[at.path[-1]] = made

    def _entry(
        self,
        path: Path,
        base: TreeEntry | None,
        ours: TreeEntry | None,
        theirs: TreeEntry | None,
        beside: _Directory,
    ) -> TreeEntry | _Directory | None:
        """Merge what stands at a path, or return the directory that is to be merged there; a file
        that finds no room there goes `beside` it, or inside."""
        if ours in (base, theirs):
            return theirs
        if base == theirs:
            return ours
        if not any(side is not None and side.is_tree for side in (ours, theirs)):
            return self._files(path, base, ours, theirs)
        inside = _Directory(self._objects, path, base, ours, theirs)
        for side, name, code in zip((ours, theirs), self._names, ("AU", "UA"), strict=True):
            if side is not None and not side.is_tree and side != base:
                # Where the other one has a directory by now.
                self.conflicts[self._put_aside(path, side, name, beside, inside)] = code
        return inside

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
        # In the clone, where collecting finds what a killed merge has left.
        with tempfile.TemporaryDirectory(
            prefix=MERGE_PREFIX, dir=self._objects.folder
        ) as folder:
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
    if old == new:
        return
    top = [None if tree is None else TreeEntry(TREE, tree) for tree in (old, new)]
    # Pairs yet to be looked at, the next one last; directories may lie thousands deep.
    pending: list[tuple[Path, TreeEntry | None, TreeEntry | None]] = [(path, top[0], top[1])]
    while pending:
        where, here, there = pending.pop()
        old_tree = here if here is not None and here.is_tree else None
        new_tree = there if there is not None and there.is_tree else None
        if old_tree is None and new_tree is None:
            yield where, there
            continue
        before, after = (
            {} if tree is None else objects.entries(tree.oid) for tree in (old_tree, new_tree)
        )
        if here != old_tree or there != new_tree:
            # A file in a directory's place; it comes after what is in the directory.
            files = here if old_tree is None else None, there if new_tree is None else None
            pending.append((where, *files))
        for name in sorted({*before, *after}, reverse=True):
            if before.get(name) != after.get(name):
                pending.append(((*where, name), before.get(name), after.get(name)))
