"""Making tree objects out of others and changes, at the cost of the changes."""

from __future__ import annotations

from collections.abc import Mapping

from pygit2.enums import ObjectType

from fusefs.contract.paths import Path
from fusefs.tree.repository_errors import git_errors
from fusefs.tree.repository_objects import TREE, RepositoryObjects, TreeEntry

Edits = Mapping[Path, TreeEntry | None]
"""Paths and what stands there from now on; None for nothing."""


def edit_tree(objects: RepositoryObjects, tree: bytes, edits: Edits) -> bytes:
    """Return the id of a tree like `tree` but for `edits`; directories left empty are dropped."""
    top = _Directory(b"")
    for path, entry in edits.items():
        top.add(path, entry)
    top.look(objects, tree)
    order = [top]  # directories before those in them; grows while it is gone through
    for directory in order:
        order.extend(directory.changed(objects))
    for directory in reversed(order):
        for below in directory.written:
            directory.take(objects, below)
    return write_tree(objects, top.entries)


class _Directory:
    """A directory in which something is to be changed. Nothing recurses: it may lie deep.

    Attributes:
        entries: what is in it.
        written: directories in it that are changed.
    """

    __slots__ = ("_adds", "_below", "_edits", "entries", "name", "written")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.entries: dict[bytes, TreeEntry] = {}
        self.written: list[_Directory] = []
        self._edits: dict[bytes, TreeEntry | None] = {}
        self._below: dict[bytes, _Directory] = {}
        self._adds = False

    def add(self, path: Path, entry: TreeEntry | None) -> None:
        """Note an edit at a path below this directory."""
        at = self
        for name in path[:-1]:
            at._adds = at._adds or entry is not None
            at = at._below.setdefault(name, _Directory(name))
        at._adds = at._adds or entry is not None
        at._edits[path[-1]] = entry

    def look(self, objects: RepositoryObjects, tree: bytes | None) -> None:
        """Look at what is there, if anything, and do the edits of this directory alone."""
        self.entries = {} if tree is None else objects.all_entries(tree)
        for name, entry in self._edits.items():
            if entry is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = entry

    def changed(self, objects: RepositoryObjects) -> list[_Directory]:
        """Return the directories in this one that are changed."""
        for name, below in self._below.items():
            found = self.entries.get(name)
            is_tree = found is not None and found.is_tree
            if is_tree or below._adds:  # else a file took the place of a directory
                below.look(objects, found.oid if found is not None and is_tree else None)
                self.written.append(below)
        return self.written

    def take(self, objects: RepositoryObjects, below: _Directory) -> None:
        """Have the entry of a directory in this one, which is done, or none if it is empty."""
        if below.entries:
            self.entries[below.name] = TreeEntry(TREE, write_tree(objects, below.entries))
        else:
            self.entries.pop(below.name, None)


@git_errors()
def write_tree(objects: RepositoryObjects, entries: Mapping[bytes, TreeEntry]) -> bytes:
    """Write a tree object: ``mode name NUL id``, a directory sorted as if it ended in ``/``.

    By hand, since names need not be text.
    """
    ordered = sorted(
        entries.items(), key=lambda item: item[0] + b"/" if item[1].is_tree else item[0]
    )
    data = b"".join(b"%o %s\0%s" % (entry.mode, name, entry.oid) for name, entry in ordered)
    return objects.repository.odb.write(ObjectType.TREE, data).raw
