"""Taking in what others committed: a three-way merge of base, staged changes and branch."""

from __future__ import annotations

import os
from collections.abc import Iterable
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
from fusefs.store.mounts import WorkingCopy, set_working_copy
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
        InvalidArgument: there is no such branch, a merge is not committed yet, or as `sync`.
        ForgeError: the remote cannot be asked.
    """
    _check_no_merge(repository, "switched")
    tip = _fetched(repository, branch, watch)
    objects, base = repository.tree.objects, repository.tree.copy.base
    # As if the branch had been made of the base: so only what is staged is carried over.
    theirs = objects.write_commit(objects.tree_of(tip), [base], "switch\n", author(repository))
    return _move(repository, branch, tip, theirs)


def take_in(repository: Repository, branch: str, watch: Watch | None = None) -> Synced:
    """Merge the newest commit of another branch; the next commit of the working copy is the merge.

    Where both changed the same lines, the file shows both sides as git does.

    Raises:
        InvalidArgument: there is no such branch, a merge is not committed yet, or as `sync`.
        ForgeError: the remote cannot be asked.
    """
    _check_no_merge(repository, "merged")
    tip = _fetched(repository, branch, watch)
    objects, copy = repository.tree.objects, repository.tree.copy
    if objects.is_in_history(tip, copy.base):
        return Synced(copy.base.hex(), ())
    names = ("staged", f"origin/{branch}")
    edits, conflicts = _rewrite(repository, tip, names, copy._replace(merging=tip))
    return _shown(repository, copy.base, conflicts, edits)


def _check_no_merge(repository: Repository, what: str) -> None:
    if repository.tree.copy.merging:
        where = repository.absolute(())
        raise InvalidArgument(
            f"Not {what}: a merge is not committed yet. Commit it, or give it up: "
            f"fusefs repo restore --new {where}"
        )


def _fetched(repository: Repository, branch: str, watch: Watch | None) -> bytes:
    """Fetch, and return where a branch of the remote is."""
    fetch(repository, watch)
    try:
        return repository.tree.objects.branch(branch)
    except FileNotFoundError:
        raise InvalidArgument(
            f"There is no branch {branch} in {repository.spec.url}. To make it: "
            f"fusefs branch {branch} {repository.absolute(())}"
        ) from None


def _move(repository: Repository, branch: str, tip: bytes, theirs: bytes) -> Synced:
    """Merge what is staged with `theirs`, a commit of the same tree as `tip`, and move to `tip`."""
    objects, copy = repository.tree.objects, repository.tree.copy
    if tip == copy.base:
        follow(repository, branch)
        return Synced(tip.hex(), ())
    moved = copy._replace(base=tip, branch=_name(repository, branch))
    _, conflicts = _rewrite(repository, theirs, ("staged", f"origin/{branch}"), moved)
    changed = differences(objects, objects.tree_of(copy.base), objects.tree_of(tip))
    return _shown(repository, tip, conflicts, (path for path, _ in changed))


def _shown(
    repository: Repository, base: bytes, conflicts: Iterable[Path], taken: Iterable[Path]
) -> Synced:
    """Return what was done, without what the session does not see."""
    return Synced(
        base.hex(),
        tuple(path for path in conflicts if repository.level(path) >= Level.RO),
        tuple(path for path in taken if repository.level(path) >= Level.RO),
    )


def _rewrite(
    repository: Repository, theirs: bytes, names: tuple[str, str], moved: WorkingCopy
) -> tuple[list[Path], list[Path]]:
    """Merge the working copy with the commit `theirs`, and note its new state.

    Returns:
        The paths that are rewritten, and those in conflict.
    """
    repository.catch_up()
    objects, copy = repository.tree.objects, repository.tree.copy
    ours = repository.work_tree()
    parents = [copy.base, copy.merging] if copy.merging else [copy.base]
    staged = objects.write_commit(ours, parents, "staged\n", author(repository))
    merged, conflicts = merge(objects, staged, theirs, names=names)
    edits = dict(differences(objects, ours, merged))
    try:
        with repository.instance.kv.write() as txn:
            repository.tree.rewrite(
                txn, edits, repository.session.view.actor, repository.mount, prune=True
            )
            set_working_copy(txn, repository.spec.id, repository.session.spec.name, moved)
    except OSError as error:
        if error.filename is None:
            raise
        busy = render((*repository.mount, *os.fsencode(error.filename).split(b"/")))
        raise InvalidArgument(f"Not synced: {busy} is being written; close it first.") from None
    repository.instance.commit()
    repository.tree.follow()
    return list(edits), conflicts


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
