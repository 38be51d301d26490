"""Taking in what others committed: a three-way merge of base, staged changes and branch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path as HostPath

from fusefs.contract.errors import InvalidArgument
from fusefs.contract.levels import Level
from fusefs.contract.paths import Path
from fusefs.forge.credentials import find
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.committing import author
from fusefs.session.repository import Repository
from fusefs.store.kv import Reader
from fusefs.tree.repository_changes import Changes
from fusefs.tree.repository_merge import differences, entry_at, merge

_TRIES = 5


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

    Where both changed the same lines, the file shows both sides as git does. Ignored files are
    left as they are.

    Raises:
        InvalidArgument: a file that would change is open and being written, or something that
            git does not keep stands in the way.
        ForgeError: the remote cannot be asked.
    """
    fetch(repository, watch)
    began = repository.tree.copy.base
    for _ in range(_TRIES):
        tip = repository.tree.objects.branch(repository.spec.branch)
        if tip == repository.tree.copy.base:
            return Synced(tip.hex(), (), ())
        conflicts = _merge(repository, tip)
        repository.tree.follow()
        if conflicts is not None:
            return _synced(repository, began, tip, conflicts)
    raise InvalidArgument(
        f"Not synced: files in {repository.absolute(())} are being changed. Try again."
    )


def _synced(
    repository: Repository, began: bytes, tip: bytes, conflicts: Iterable[Path]
) -> Synced:
    objects = repository.tree.objects
    changed = differences(objects, objects.tree_of(began), objects.tree_of(tip))
    return Synced(
        tip.hex(),
        tuple(path for path in conflicts if repository.level(path) >= Level.RO),
        tuple(path for path, _ in changed if repository.level(path) >= Level.RO),
    )


def _merge(repository: Repository, tip: bytes) -> list[Path] | None:
    """Merge `tip` into a working copy; None if that was changed meanwhile.

    What the session has changed is counted from the base, whatever the histories of both are.
    """
    objects, copy = repository.tree.objects, repository.tree.copy
    ours = repository.write_tree(repository.all_changes())
    who = author(repository)
    staged = objects.write_commit(ours, [copy.base], "staged\n", who)
    theirs = objects.write_commit(objects.tree_of(tip), [copy.base], "theirs\n", who)
    names = ("staged", f"origin/{repository.spec.branch}")
    merged, conflicts = merge(objects, staged, theirs, names=names)
    # What was merged is in no branch: it is kept by this.
    kept = objects.write_commit(merged, [tip], "merged\n", who)
    objects.pin(copy.top, kept)
    edits = dict(differences(objects, ours, merged))
    with repository.instance.kv.write() as txn:
        if not _is_still(repository, txn, ours, edits) or not repository.move(txn, copy, tip):
            return None
        repository.rewrite(txn, edits, prune=True, failing="Not synced")
    repository.instance.commit()
    for top, commit in objects.pins():
        if top == copy.top and commit != kept:
            objects.unpin(top, commit)
    return conflicts


def _is_still(
    repository: Repository, txn: Reader, ours: bytes, paths: Iterable[Path]
) -> bool:
    """Tell whether the working copy has at `paths` what the tree `ours` has.

    Raises:
        InvalidArgument: there is an ignored file.
    """
    changes = Changes(repository.instance, repository.tree, txn)
    for path in paths:
        here, there = changes.at(path), entry_at(repository.tree.objects, ours, path)
        if there is not None and there.is_tree:
            there = None
        if here == there:
            continue
        if there is None and repository.ignored([path]):
            raise InvalidArgument(
                f"Not synced: {repository.absolute(path)} is ignored, but comes with the branch; "
                "move it away first."
            )
        return False
    return True
