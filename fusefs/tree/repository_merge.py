"""Three-way merges of trees, and how two trees differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path as HostPath

from fusefs.contract.paths import Path
from fusefs.forge.git_process import Limits, run
from fusefs.tree.repository_objects import BLOB, PROGRAM, TREE, RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import write_tree

_REGULAR = (BLOB, PROGRAM)
_NOT_TEXT = 128
"""The least status with which git-merge-file(1) gives up; below it are counts of conflicts."""

Sides = tuple[str, str]
"""What ours and theirs are called where they conflict."""


def merge(
    objects: RepositoryObjects, base: bytes, ours: bytes, theirs: bytes, *, names: Sides
) -> tuple[bytes, list[Path]]:
    """Merge two trees that began as a third, at the cost of what differs.

    Each path is merged on its own: renames are not guessed at, since where a file went, and with
    it what is staged, could then be told by files that a session does not see.

    Args:
        objects: the repository.
        base: the tree that both began as.
        ours: a tree.
        theirs: another one.
        names: see `Sides`.

    Returns:
        The merged tree, in which conflicting files show both sides, and those files' paths.

    Raises:
        OSError: git could not merge a file.
        ForgeError: git is not there, or takes too long.
    """
    merging = _Merge(objects, names)
    merged = merging.trees(*(TreeEntry(TREE, tree) for tree in (base, ours, theirs)))
    return (write_tree(objects, {}) if merged is None else merged.oid), merging.conflicts


class _Directories:
    """One directory being merged, of which those sides that have none count as empty.

    Attributes:
        path: where it is.
        sides: the entries of base, ours and theirs.
        names: those yet to be merged.
        merged: what comes of it.
    """

    def __init__(self, objects: RepositoryObjects, path: Path, *sides: TreeEntry | None) -> None:
        self.path = path
        self.sides: list[Mapping[bytes, TreeEntry]] = [
            objects.entries(side.oid) if side is not None and side.is_tree else {}
            for side in sides
        ]
        self.names = iter(sorted(set[bytes]().union(*self.sides)))
        self.merged: dict[bytes, TreeEntry] = {}


class _Merge:
    """One merge; an entry that is not there is None."""

    def __init__(self, objects: RepositoryObjects, names: Sides) -> None:
        self._objects = objects
        self._names = names
        self.conflicts: list[Path] = []

    def trees(self, *sides: TreeEntry | None) -> TreeEntry | None:
        """Merge directories. Nothing recurses: others may lie thousands deep in them."""
        way = [_Directories(self._objects, (), *sides)]
        while True:
            at = way[-1]
            name = next(at.names, None)
            if name is not None:
                base, ours, theirs = (side.get(name) for side in at.sides)
                found = self._entry((*at.path, name), base, ours, theirs, at.merged)
                if isinstance(found, _Directories):
                    way.append(found)
                elif found is not None:
                    at.merged[name] = found
                continue
            made = TreeEntry(TREE, write_tree(self._objects, at.merged)) if at.merged else None
            way.pop()
            if not way:
                return made
            if made is not None:
                way[-1].merged[at.path[-1]] = made

    def _entry(
        self,
        path: Path,
        base: TreeEntry | None,
        ours: TreeEntry | None,
        theirs: TreeEntry | None,
        beside: dict[bytes, TreeEntry],
    ) -> TreeEntry | _Directories | None:
        """Merge what stands at a path, or return the directories that are to be merged there;
        what finds no room there goes `beside` it."""
        if ours in (base, theirs):
            return theirs
        if base == theirs:
            return ours
        if not any(side is not None and side.is_tree for side in (ours, theirs)):
            return self._files(path, base, ours, theirs)
        for side, name in zip((ours, theirs), self._names, strict=True):
            if side is not None and not side.is_tree and side != base:
                # Where the other one has a directory by now.
                own = path[-1] + b"~" + name.replace("/", "_").encode()
                beside[own] = side
                self.conflicts.append((*path[:-1], own))
        return _Directories(self._objects, path, base, ours, theirs)

    def _files(
        self, path: Path, base: TreeEntry | None, ours: TreeEntry | None, theirs: TreeEntry | None
    ) -> TreeEntry | None:
        if ours is None or theirs is None:
            self.conflicts.append(path)  # removed here, changed there
            return ours or theirs
        if ours.mode not in _REGULAR or theirs.mode not in _REGULAR:
            self.conflicts.append(path)
            return ours
        mode = theirs.mode if base is not None and base.mode == ours.mode else ours.mode
        if ours.oid == theirs.oid:
            return TreeEntry(mode, ours.oid)
        is_file = base is not None and base.mode in _REGULAR
        data, is_clean = self._contents(base.oid if base and is_file else None, ours, theirs)
        if not is_clean:
            self.conflicts.append(path)
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
