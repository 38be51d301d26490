"""Conflicts that a merge left: in a file both sides stand until somebody decides; of what is no
text, or was removed by one side, it is noted what the merge left of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fusefs.contract.errors import ContractError
from fusefs.contract.paths import Path
from fusefs.session.repository import Repository
from fusefs.store.kv import Writer
from fusefs.store.working_copies import Unmerged, set_unmerged
from fusefs.store.working_copies import unmerged as unmerged_in
from fusefs.tree.repository_changes import Changed, Changes
from fusefs.tree.repository_merge import entry_at
from fusefs.tree.repository_objects import TreeEntry

_MOST_BYTES = 4 << 20
_BEGIN = re.compile(rb"^<<<<<<< staged\r?$", re.MULTILINE)
_END = re.compile(rb"^>>>>>>> origin/", re.MULTILINE)


def unmerged(repository: Repository) -> dict[Path, str]:
    """Return the visible paths in conflict, each with its code (see `Unmerged`).

    One is settled when the file shows both sides no more, or is another one than the merge left,
    or was committed.
    """
    with repository.instance.kv.read() as txn:
        noted = unmerged_in(txn, repository.tree.copy.top)
        if not noted:
            return {}
        changes = Changes(repository.instance, repository.tree, txn)
        left = [one for one in noted if not repository.hides(one.path)]
        same = {one.path for one in left if _packed(changes.at(one.path)) == one.left}
    return {
        one.path: one.code
        for one in left
        if one.path in same or _shows_both(_read(repository, one.path))
    }


def note_unmerged(
    repository: Repository, txn: Writer, merged: bytes, found: Mapping[Path, str]
) -> None:
    """Note the conflicts with which the tree `merged` came about, beside those noted before."""
    top = repository.tree.copy.top
    noted = {one.path: one for one in unmerged_in(txn, top)}
    for path, code in found.items():
        left = _packed(entry_at(repository.tree.objects, merged, path))
        noted[path] = Unmerged(path, code, left)
    set_unmerged(txn, top, noted.values())


def showing_both(repository: Repository) -> list[Unmerged]:
    """Return the noted conflicts in which a file still shows both sides."""
    with repository.instance.kv.read() as txn:
        noted = unmerged_in(txn, repository.tree.copy.top)
    return [one for one in noted if _shows_both(_read(repository, one.path))]


def _packed(entry: TreeEntry | None) -> bytes:
    return b"" if entry is None else entry.mode.to_bytes(4, "big") + entry.oid


def conflicting(repository: Repository, changes: Iterable[Changed]) -> list[Path]:
    """Return the paths of staged files that show both sides of a conflict."""
    return [
        changed.path
        for changed in changes
        if changed.node is not None
        and changed.node.size <= _MOST_BYTES
        and _shows_both(_read(repository, changed.path))
    ]


def _shows_both(data: bytes) -> bool:
    begin = _BEGIN.search(data)
    return begin is not None and _END.search(data, begin.end()) is not None


def _read(repository: Repository, path: Path) -> bytes:
    try:
        return repository.session.read(b"/" + b"/".join((*repository.mount, *path)))
    except ContractError:
        return b""  # a link that leads nowhere, a directory by now
