"""Taking in what others committed: a three-way merge of base, staged changes and branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as HostPath
from typing import NamedTuple

from fusefs.contract.errors import Blocked
from fusefs.contract.paths import Path
from fusefs.forge.credentials import find
from fusefs.forge.git_process import Watch
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session.committing import author
from fusefs.session.conflicts import note_unmerged
from fusefs.session.repository import Repository
from fusefs.store.kv import Reader
from fusefs.store.working_copies import WorkingCopy, working_copy
from fusefs.tree.repository_changes import Changes
from fusefs.tree.repository_merge import differences, entry_at, merge
from fusefs.tree.repository_objects import TreeEntry
from fusefs.tree.repository_trees import write_tree

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


class _Step(NamedTuple):
    """What is to be done with a working copy.

    Attributes:
        branch: what is merged is called after it.
        theirs: the commit to merge into what is staged, if any.
        then: the working copy's state when that is done.
    """

    branch: str
    theirs: bytes | None
    then: WorkingCopy


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
        Blocked: a file that would change is open and being written, or something that
            git does not keep stands in the way; or the branch is gone.
        ForgeError: the remote cannot be asked.
    """
    fetch(repository, watch)
    return _carry_out(repository, lambda copy: _move(repository, copy, repository.branch))


def switch(repository: Repository, branch: str, watch: Watch | None = None) -> Synced:
    """Move a working copy to the newest commit of another branch, where its commits go from now on.

    What is staged goes along, as changes to that branch; what was committed stays where it is.

    Raises:
        Blocked: there is no such branch, a merge is not committed yet, or as `sync`.
        ForgeError: the remote cannot be asked.
    """

    def look(copy: WorkingCopy) -> _Step:
        _check_no_merge(repository, copy, "switched")
        return _move(repository, copy, branch)

    _check_no_merge(repository, repository.tree.copy, "switched")
    fetch(repository, watch)
    return _carry_out(repository, look)


def take_in(repository: Repository, branch: str, watch: Watch | None = None) -> Synced:
    """Merge the newest commit of another branch; the next commit of the working copy is the merge.

    Where both changed the same lines, the file shows both sides as git does.

    Raises:
        Blocked: there is no such branch, a merge is not committed yet, or as `sync`.
        ForgeError: the remote cannot be asked.
    """

    def look(copy: WorkingCopy) -> _Step:
        _check_no_merge(repository, copy, "merged")
        tip = _tip(repository, branch)
        if repository.tree.objects.is_in_history(tip, copy.base):
            return _Step(branch, None, copy)
        return _Step(branch, tip, copy._replace(merging=tip))

    _check_no_merge(repository, repository.tree.copy, "merged")
    fetch(repository, watch)
    return _carry_out(repository, look)


def _check_no_merge(repository: Repository, copy: WorkingCopy, what: str) -> None:
    if copy.merging:
        where = repository.absolute(())
        raise Blocked(
            f"Not {what}: a merge is not committed yet. Commit it, or give it up: "
            f"fusefs repo restore --new {where}"
        )


def _tip(repository: Repository, branch: str) -> bytes:
    """Return where a branch of the remote is, as far as it was fetched."""
    try:
        return repository.tree.objects.branch(branch)
    except FileNotFoundError:
        raise Blocked(
            f"There is no branch {branch} in {repository.spec.url}. To make it: "
            f"fusefs branch {branch} {repository.absolute(())}"
        ) from None


def _move(repository: Repository, copy: WorkingCopy, branch: str) -> _Step:
    """Return the step to the newest commit of a branch."""
    objects, tip = repository.tree.objects, _tip(repository, branch)
    then = copy._replace(base=tip, branch=_name(repository, branch))
    if tip == copy.base:
        return _Step(branch, None, then)
    # As if the tip had been made of the base: what the session has changed is counted from there,
    # whatever the histories of both are.
    who = author(repository)
    theirs = objects.write_commit(objects.tree_of(tip), [copy.base], "theirs\n", who)
    return _Step(branch, theirs, then)


def _carry_out(repository: Repository, look: Callable[[WorkingCopy], _Step]) -> Synced:
    """Do the step that `look` finds for the working copy; anew where it was changed meanwhile."""
    repository.catch_up()
    began = repository.tree.copy
    for _ in range(_TRIES):
        copy = repository.tree.copy
        step = look(copy)
        if step.then == copy:
            return Synced(copy.base.hex(), ())
        done = _do(repository, copy, step)
        repository.tree.follow()
        if done is not None:
            edits, conflicts = done
            objects, base = repository.tree.objects, step.then.base
            moved = differences(objects, objects.tree_of(began.base), objects.tree_of(base))
            taken = list(edits) if base == copy.base else [path for path, _ in moved]
            return _shown(repository, base, conflicts, taken)
    raise Blocked(
        f"Not synced: files in {repository.absolute(())} are being changed. Try again."
    )


def _shown(
    repository: Repository, base: bytes, conflicts: Iterable[Path], taken: Iterable[Path]
) -> Synced:
    """Return what was done, without what the session does not see."""
    return Synced(
        base.hex(),
        tuple(path for path in conflicts if not repository.hides(path)),
        tuple(path for path in taken if not repository.hides(path)),
    )


def _do(
    repository: Repository, copy: WorkingCopy, step: _Step
) -> tuple[dict[Path, TreeEntry | None], list[Path]] | None:
    """Do a step with the working copy `copy`.

    Returns:
        What is rewritten, and the paths in conflict; None if the working copy was changed
        meanwhile, and nothing was done.
    """
    objects = repository.tree.objects
    if step.theirs is None:
        with repository.instance.kv.write() as txn:
            if not repository.move(txn, copy, step.then):
                return None
        repository.instance.commit()
        return {}, []
    ours = repository.write_tree(repository.all_changes())
    who = author(repository)
    names = ("staged", f"origin/{step.branch}")
    base = objects.merge_base(copy.base, step.theirs)
    began = write_tree(objects, {}) if base is None else objects.tree_of(base)
    merged, conflicts = merge(
        objects, began, ours, objects.tree_of(step.theirs), names=names, level=repository.level
    )
    # What was merged is in no branch: it is kept by this, with all that is merged from.
    kept = objects.write_commit(merged, step.then.parents, "merged\n", who)
    objects.pin(copy.top, kept)
    edits = dict(differences(objects, ours, merged))
    with repository.instance.kv.write() as txn:
        ready = _ready(repository, txn, ours, edits)
        if ready is None or not repository.move(txn, copy, step.then):
            return None
        note_unmerged(repository, txn, merged, conflicts)
        repository.rewrite(txn, ready, prune=True, failing="Not synced")
    repository.instance.commit()
    for top, commit in objects.pins():
        if top == copy.top and commit != kept:
            objects.unpin(top, commit)
    return edits, list(conflicts)


def _ready(
    repository: Repository, txn: Reader, ours: bytes, edits: Mapping[Path, TreeEntry | None]
) -> dict[Path, TreeEntry | None] | None:
    """Return those of `edits` that can be made, None if the working copy has not got there what
    the tree `ours` has.

    An ignored file of the session's own stays where something comes that it does not see: the one
    hides the other, and neither is lost.

    Raises:
        Blocked: there is an ignored file that the session sees.
    """
    changes = Changes(repository.instance, repository.tree, txn)
    ready = {}
    for path, entry in edits.items():
        here, there = changes.at(path), entry_at(repository.tree.objects, ours, path)
        if there is not None and there.is_tree:
            there = None
        if here != there:
            if there is not None or not repository.ignored([path]):
                return None
            if repository.hides(path):
                continue
            raise Blocked(
                f"Not synced: {repository.absolute(path)} is ignored here, but comes with the "
                "branch; move your own away first."
            )
        ready[path] = entry
    return ready


def follow(repository: Repository, branch: str) -> None:
    """Have commits go to a branch that is at the working copy's base.

    If the working copy has moved on meanwhile, it stays on its branch.
    """
    base = repository.tree.copy.base
    with repository.instance.kv.write() as txn:
        copy = working_copy(txn, repository.spec.id, repository.session.spec.name)
        if copy is not None and copy.base == base:
            repository.move(txn, copy, copy._replace(branch=_name(repository, branch)))
    repository.instance.commit()
    repository.tree.follow()


def _name(repository: Repository, branch: str) -> str:
    """Return how a working copy notes a branch: one that follows the mount's says so."""
    return "" if branch == repository.spec.branch else branch
