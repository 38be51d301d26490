"""What the local forge does in a bare repository: branches, tags and merges, with no working tree.

A ref is moved by compare-and-swap, under its lock file, so pushes and other processes are safe to
have at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pygit2
from pygit2.enums import ObjectType, SortMode

from fusefs.forge.errors import (
    AlreadyThere,
    Forbidden,
    ForgeError,
    MergeConflict,
    Missing,
    Moved,
    Refused,
)
from fusefs.forge.git_process import run
from fusefs.forge.model import Method, Tag
from fusefs.forge.opening import open_repository


@dataclass(frozen=True)
class Author:
    """Who commits, as git's ``user.name`` and ``user.email``."""

    name: str
    email: str


@contextmanager
def opened(
    path: Path, author: Author | None = None, *, ours: bool = False
) -> Iterator[pygit2.Repository]:
    """Open a bare repository; what libgit2 raises in the block becomes one of our errors.

    Args:
        path: where it is.
        author: who writes in it.
        ours: it is a clone of an instance's, to which it belongs.

    Raises:
        Missing: there is no repository.
        Forbidden: it may not be read or written, or belongs to somebody else.
        ForgeError: it is damaged, or the disk failed.
    """
    try:
        repository = open_repository(path, ours=ours)
        if author is not None:
            repository.set_ident(author.name, author.email)
        yield repository
    # KeyError: an object that is referred to is missing.
    except (pygit2.GitError, OSError, KeyError) as error:
        raise _translated(error, path) from None


def _translated(error: Exception, path: Path) -> ForgeError:
    text = str(error)
    if "not owned by current user" in text:
        return Forbidden(
            f"{path} belongs to another user. If you trust it: "
            f"git config --global --add safe.directory {path}"
        )
    if isinstance(error, PermissionError) or "ermission denied" in text:
        return Forbidden(f"No permission in {path}: {text}")
    if "ot found" in text and not (path / "HEAD").exists():
        return Missing(f"There is no git repository at {path}.")
    return ForgeError(f"The repository at {path} cannot be used: {text}")


def branch_commit(repository: pygit2.Repository, name: str) -> str | None:
    """Return where a branch stands, or None."""
    try:
        return str(repository.lookup_reference(f"refs/heads/{name}").peel(pygit2.Commit).id)
    except (KeyError, pygit2.InvalidSpecError):
        return None


def commit_of(repository: pygit2.Repository, commit: str) -> pygit2.Commit:
    """Return a commit by its full name. Raises: Missing."""
    found = repository.get(commit)
    if not isinstance(found, pygit2.Commit):
        raise Missing(f"The repository has no commit {commit[:12]}. Push it first.")
    return found


def make_branch(repository: pygit2.Repository, name: str, commit: str) -> None:
    """Make a branch. Raises: AlreadyThere, Missing."""
    found = commit_of(repository, commit)
    try:
        repository.create_reference(f"refs/heads/{name}", found.id, False)
    except (pygit2.AlreadyExistsError, ValueError):
        raise AlreadyThere(f"There is a branch {name} already. Take another name.") from None
    except (pygit2.GitError, OSError) as error:
        if _blocked(repository, f"refs/heads/{name}"):
            raise AlreadyThere(
                f"No branch can be called {name} beside the present ones: "
                "a name cannot be both a branch and a folder of branches."
            ) from None
        raise error


def _blocked(repository: pygit2.Repository, ref: str) -> bool:
    return any(other.startswith(ref + "/") or ref.startswith(other + "/")
               for other in repository.references)  # fmt: skip


def read_tag(repository: pygit2.Repository, name: str) -> Tag | None:
    """Return a tag, or None; a lightweight one has no message."""
    try:
        ref = repository.lookup_reference(f"refs/tags/{name}")
    except (KeyError, pygit2.InvalidSpecError):
        return None
    target = repository[ref.target]
    message = (target.message or "").strip() if isinstance(target, pygit2.Tag) else ""
    return Tag(name, str(ref.peel(pygit2.Commit).id), message)


def make_tag(
    repository: pygit2.Repository, name: str, commit: str, message: str, author: Author
) -> None:
    """Make an annotated tag. Raises: AlreadyThere, Missing."""
    found = commit_of(repository, commit)
    try:
        repository.create_tag(
            name, found.id, ObjectType.COMMIT, _signature(author), message.strip() + "\n"
        )
    except (pygit2.AlreadyExistsError, ValueError):
        raise AlreadyThere(f"There is a tag {name} already. Tags are not moved.") from None


def contains(repository: pygit2.Repository, branch: str, commit: str) -> bool:
    """Whether `commit` is in the history of `branch`."""
    tip = branch_commit(repository, branch)
    if tip is None or repository.get(commit) is None:
        return False
    return tip == commit or repository.descendant_of(tip, commit)


def nothing_between(repository: pygit2.Repository, base: str, head: str) -> bool:
    """Whether the commit `head` brings nothing to the commit `base`."""
    return base == head or repository.descendant_of(base, head)


def merged(
    repository: pygit2.Repository,
    base: str,
    head: str,
    method: Method,
    message: str,
    author: Author,
) -> str:
    """Make the commit that merges the commit `head` into `base`; no ref is moved.

    Raises:
        MergeConflict: with the paths.
        Refused: nothing to merge, no common history, or merge commits where commits are to be
            made again.
    """
    if nothing_between(repository, base, head):
        raise Refused("Nothing to merge: the base has all of it already.")
    if repository.merge_base(base, head) is None:
        raise Refused("Not merged: the branches have no common history.")
    if method is Method.REBASE:
        return _rebased(repository, base, head, author)
    tree = _tree(repository, repository.merge_commits(base, head))
    parents: list[pygit2.Oid | str] = [base, head] if method is Method.MERGE else [base]
    who = _signature(author)
    return str(repository.create_commit(None, who, who, message, tree, parents))


def _rebased(repository: pygit2.Repository, base: str, head: str, author: Author) -> str:
    """Make each commit of `head` again on `base`; one that brings nothing any more is left out."""
    walker = repository.walk(head, SortMode.TOPOLOGICAL | SortMode.REVERSE)
    walker.hide(base)
    top = commit_of(repository, base)
    for commit in walker:
        if len(commit.parents) != 1:
            raise Refused(
                f"Not rebased: {str(commit.id)[:12]} is a merge commit. Use merge or squash."
            )
        index = repository.merge_trees(commit.parents[0].tree, top.tree, commit.tree)
        tree = _tree(repository, index)
        if tree == top.tree.id:
            continue
        made = repository.create_commit(
            None, commit.author, _signature(author), commit.message, tree, [top.id]
        )
        top = commit_of(repository, str(made))
    return str(top.id)


def _tree(repository: pygit2.Repository, index: pygit2.Index) -> pygit2.Oid:
    if index.conflicts is not None:
        paths = sorted(
            {side.path for sides in index.conflicts for side in sides if side is not None}
        )
        raise MergeConflict(
            "Not merged: both sides changed " + ", ".join(paths) + ". "
            "Merge the base into the branch, settle the conflicts there, then merge again.",
            paths,
        )
    return index.write_tree(repository)


def move_branch(repository: pygit2.Repository, name: str, old: str, new: str, why: str) -> None:
    """Move a branch from `old` to `new`, by git itself: killed in between, libgit2 would leave a
    lock file that nobody may push past. Raises: Moved: it was not at `old`."""
    output = run(
        ["update-ref", "-m", why, f"refs/heads/{name}", new, old], repository=Path(repository.path)
    )
    if output.status == 0:
        return
    if "cannot lock ref" in output.err:
        raise Moved(f"{name} has just been moved by somebody else. Try again.\n{output.err}")
    raise OSError(None, output.err)


def _signature(author: Author) -> pygit2.Signature:
    return pygit2.Signature(author.name, author.email)
