"""Taking in what others committed: a three-way merge of base, staged changes and branch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, render
from fusefs.forge.credentials import find
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.committing import author
from fusefs.session.repository import Repository
from fusefs.store.mounts import WorkingCopy, set_working_copy
from fusefs.tree.repository_changes import Changes
from fusefs.tree.repository_merge import differences, merge
from fusefs.tree.repository_trees import edit_tree


@dataclass(frozen=True)
class Synced:
    """What a sync did.

    Attributes:
        base: the commit that changes are counted from now, in hexadecimal.
        conflicts: visible paths that show both sides and want to be looked at.
    """

    base: str
    conflicts: tuple[Path, ...]


def fetch(repository: Repository) -> None:
    """Bring the branches of the remote into the instance's clone.

    Raises:
        ForgeError: it cannot be fetched.
    """
    remote = parse(repository.spec.url)
    transport = Transport(remote, repository.spec.forge, find(remote, repository.spec.forge))
    transport.fetch(HostPath(repository.instance.mounts.folder(repository.spec)))


def sync(repository: Repository) -> Synced:
    """Move a working copy to the newest commit of its branch; what is staged stays staged.

    Where both changed the same lines, the file shows both sides as git does.

    Raises:
        InvalidArgument: a file that would change is open and being written.
        ForgeError: the remote cannot be asked.
    """
    fetch(repository)
    objects, copy = repository.tree.objects, repository.tree.copy
    tip = objects.branch(repository.spec.branch)
    if tip == copy.base:
        return Synced(tip.hex(), ())
    ours = _work_tree(repository)
    staged = objects.write_commit(ours, [copy.base], "staged\n", author(repository))
    names = ("staged", f"origin/{repository.spec.branch}")
    merged, conflicts = merge(objects, staged, tip, names=names)
    edits = dict(differences(objects, ours, merged))
    try:
        with repository.instance.kv.write() as txn:
            repository.tree.rewrite(
                txn, edits, repository.session.view.actor, repository.mount, prune=True
            )
            moved = WorkingCopy(copy.top, tip)
            set_working_copy(txn, repository.spec.id, repository.session.spec.name, moved)
    except OSError as error:
        if error.filename is None:
            raise
        busy = render((*repository.mount, *os.fsencode(error.filename).split(b"/")))
        raise InvalidArgument(f"Not synced: {busy} is being written; close it first.") from None
    repository.instance.commit()
    repository.tree.follow()
    visible = (path for path in conflicts if repository.level(path) >= Level.RO)
    return Synced(tip.hex(), tuple(visible))


def _work_tree(repository: Repository) -> bytes:
    """Return the whole working copy as a tree: what the session does not see is in it, too."""
    with repository.instance.kv.read() as txn:
        changes = Changes(repository.instance, repository.tree, txn)
        edits = {
            changed.path: None if changed.node is None else changes.write_blob(changed.node)
            for changed in changes.all()
        }
    return edit_tree(repository.tree.objects, repository.base, edits)
