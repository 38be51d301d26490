"""Making tree objects out of others and changes, at the cost of the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pygit2.enums import ObjectType

from fusefs.contract.paths import Path
from fusefs.tree.repository_objects import TREE, RepositoryObjects, TreeEntry

Edits = Mapping[Path, TreeEntry | None]
"""Paths and what stands there from now on; None for nothing."""


def edit_tree(objects: RepositoryObjects, tree: bytes, edits: Edits) -> bytes:
    """Return the id of a tree like `tree` but for `edits`; directories left empty are dropped."""
    return _edit(objects, tree, edits.items()) or write_tree(objects, {})


def _edit(
    objects: RepositoryObjects, tree: bytes | None, edits: Iterable[tuple[Path, TreeEntry | None]]
) -> bytes | None:
    entries = {} if tree is None else objects.all_entries(tree)
    below: dict[bytes, list[tuple[Path, TreeEntry | None]]] = {}
    for path, entry in edits:
        if len(path) > 1:
            below.setdefault(path[0], []).append((path[1:], entry))
        elif entry is None:
            entries.pop(path[0], None)
        else:
            entries[path[0]] = entry
    for name, inner in below.items():
        found = entries.get(name)
        is_tree = found is not None and found.is_tree
        if not is_tree and all(entry is None for _, entry in inner):
            continue  # a file took the place of a directory
        made = _edit(objects, found.oid if found is not None and is_tree else None, inner)
        if made is None:
            entries.pop(name, None)
        else:
            entries[name] = TreeEntry(TREE, made)
    if not entries:
        return None
    return write_tree(objects, entries)


def write_tree(objects: RepositoryObjects, entries: Mapping[bytes, TreeEntry]) -> bytes:
    """Write a tree object: ``mode name NUL id``, a directory sorted as if it ended in ``/``.

    By hand, since names need not be text.
    """
    ordered = sorted(
        entries.items(), key=lambda item: item[0] + b"/" if item[1].is_tree else item[0]
    )
    data = b"".join(b"%o %s\0%s" % (entry.mode, name, entry.oid) for name, entry in ordered)
    return objects.repository.odb.write(ObjectType.TREE, data).raw
