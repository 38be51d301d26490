"""Taking in what others committed: a three-way merge of base, staged changes and branch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path, render
from fusefs.forge.credentials import find
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.committing import author
from fusefs.session.repository import Repository
from fusefs.store.mounts import set_working_copy
from fusefs.tree.repository_merge import differences, merge


@dataclass(frozen=True)
class Synced:
    """What a sync did.

    Attributes:
        base: the commit that changes are counted from now, in hexadecimal.
        conflicts: visible paths that show both sides and want to be looked at.
        taken: visible paths that others changed.
    """

    base: str
    conflicts: tuple[Path, ...]
    taken: tuple[Path, ...] = ()


def fetch(repository: Repository, watch: Watch | None = None) -> None:
    """Bring the branches of the remote into the instance's clone.

    Raises:
        ForgeError: it cannot be fetched.
    """
    remote = parse(repository.spec.url)
    credential = find(remote, repository.spec.forge)
    transport = Transport(remote, repository.spec.forge, credential, watch=watch or Watch())
    transport.fetch(HostPath(repository.instance.mounts.folder(repository.spec)))


def sync(repository: Repository, watch: Watch | None = None) -> Synced:
    """Move a working copy to the newest commit of its branch; what is staged stays staged.

    Where both changed the same lines, the file shows both sides as git does.

    Raises:
        InvalidArgument: a file that would change is open and being written.
        ForgeError: the remote cannot be asked.
    """
    fetch(repository, watch)
    tip = repository.tree.objects.branch(repository.branch)
    return _move(repository, repository.branch, tip, tip)


def switch(repository: Repository, branch: str, watch: Watch | None = None) -> Synced:
    """Move a working copy to the newest commit of another branch, where its commits go from now on.

    What is staged goes along, as changes to that branch; what was committed stays where it is.

    Raises:
        InvalidArgument: there is no such branch, or as `sync`.
        ForgeError: the remote cannot be asked.
    """
    fetch(repository, watch)
    objects = repository.tree.objects
    try:
        tip = objects.branch(branch)
    except FileNotFoundError:
        raise InvalidArgument(
            f"There is no branch {branch} in {repository.spec.url}. To make it: "
            f"fusefs branch {branch} {repository.absolute(())}"
        ) from None
    base = repository.tree.copy.base
    # As if the branch had been made of the base: so only what is staged is carried over.
    theirs = objects.write_commit(objects.tree_of(tip), [base], "switch\n", author(repository))
    return _move(repository, branch, tip, theirs)


def _move(repository: Repository, branch: str, tip: bytes, theirs: bytes) -> Synced:
    """Merge what is staged with `theirs`, a commit of the same tree as `tip`, and move to `tip`."""
    objects, copy = repository.tree.objects, repository.tree.copy
    if tip == copy.base:
        follow(repository, branch)
        return Synced(tip.hex(), ())
    ours = repository.work_tree()
    staged = objects.write_commit(ours, [copy.base], "staged\n", author(repository))
    names = ("staged", f"origin/{branch}")
    merged, conflicts = merge(objects, staged, theirs, names=names)
    edits = dict(differences(objects, ours, merged))
    try:
        with repository.instance.kv.write() as txn:
            repository.tree.rewrite(
                txn, edits, repository.session.view.actor, repository.mount, prune=True
            )
            moved = copy._replace(base=tip, branch=_name(repository, branch))
            set_working_copy(txn, repository.spec.id, repository.session.spec.name, moved)
    except OSError as error:
        if error.filename is None:
            raise
        busy = render((*repository.mount, *os.fsencode(error.filename).split(b"/")))
        raise InvalidArgument(f"Not synced: {busy} is being written; close it first.") from None
    repository.instance.commit()
    repository.tree.follow()
    changed = differences(objects, objects.tree_of(copy.base), objects.tree_of(tip))
    return Synced(
        tip.hex(),
        tuple(path for path in conflicts if repository.level(path) >= Level.RO),
        tuple(path for path, _ in changed if repository.level(path) >= Level.RO),
    )


def follow(repository: Repository, branch: str) -> None:
    """Have commits go to a branch that is at the working copy's base."""
    copy = repository.tree.copy._replace(branch=_name(repository, branch))
    if copy == repository.tree.copy:
        return
    with repository.instance.kv.write() as txn:
        set_working_copy(txn, repository.spec.id, repository.session.spec.name, copy)
    repository.instance.commit()
    repository.tree.follow()


def _name(repository: Repository, branch: str) -> str:
    """Return how a working copy notes a branch: one that follows the mount's says so."""
    return "" if branch == repository.spec.branch else branch
