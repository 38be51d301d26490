"""A session's working copy as a real git worktree on the host."""

from __future__ import annotations

import contextlib

from fusefs.contract.errors import Blocked, PartlyHidden
from fusefs.contract.sessions import OPERATOR
from fusefs.forge.errors import InProgress
from fusefs.forge.locks import locked
from fusefs.session.repository import Repository
from fusefs.tree.repository_worktree import RepositoryWorktree

_WAIT = 120.0
"""Seconds that one call waits for another one."""


def worktree(repository: Repository, *, materialise: bool) -> RepositoryWorktree:
    """Make the git worktree of a working copy, or bring it up to date.

    It is on a branch of its own, ``fusefs/SESSION``, at the working copy's base. Its folder, in the
    instance's, is for the owner of the instance: it is outside every view. One that could not be
    made whole is not left there.

    Args:
        repository: the session's working copy.
        materialise: write all files of the working copy into it.

    Raises:
        PartlyHidden: the session does not see all of the repository, and a worktree has it all.
        Blocked: somebody changed files in the worktree, which would be lost.
        OSError: git cannot write a file, or the disk is full.
    """
    if not repository.is_whole:
        raise PartlyHidden("a git worktree", repository.absolute(()))
    instance, session = repository.instance, repository.session.spec.name
    top = instance.mounts.worktrees(repository.spec)
    made = RepositoryWorktree(repository.tree.objects, top / _folder_name(session))
    top.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(top.parent / "worktrees.lock", b"worktrees", _WAIT) as mine:
        if not mine:
            raise InProgress("worktree")
        if materialise and made.has_changes():
            raise Blocked(
                f"Not written: files in {made.folder} were changed since they were put there. "
                f"Copy what you want to keep, then remove that folder: rm -r {made.folder}"
            )
        base, is_new = repository.tree.copy.base, not made.exists
        try:
            made.make(base)
            if materialise:
                made.materialise(repository.work_tree(), base)
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):  # what went wrong is told, not this
                    made.remove()
            raise
    return made


def _folder_name(session: str) -> str:
    """Return a name that is no other session's: those begin with a letter or a digit."""
    return "_owner" if session == OPERATOR.name else session
