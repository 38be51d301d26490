"""What forges on the network refuse, in one wording for all of them."""

from __future__ import annotations

from fusefs.forge.errors import AlreadyThere, MergeConflict, Missing, Moved
from fusefs.forge.model import PullRequest


def branch_taken(name: str) -> AlreadyThere:
    """There is a branch of this name."""
    return AlreadyThere(f"There is a branch {name} already.")


def tag_taken(name: str) -> AlreadyThere:
    """There is a tag of this name."""
    return AlreadyThere(f"There is a tag {name} already. Tags are not moved.")


def release_taken(tag: str) -> AlreadyThere:
    """There is a release of this tag."""
    return AlreadyThere(f"There is a release of {tag} already.")


def no_branch(name: str) -> Missing:
    """There is no branch of this name."""
    return Missing(f"There is no branch {name} on the forge. Push it first.")


def no_commit(commit: str) -> Missing:
    """The forge does not have this commit."""
    return Missing(f"The forge has no commit {commit[:12]}. Push it first.")


def moved(request: PullRequest) -> Moved:
    """A pull request's head is not what the caller looked at."""
    return Moved(
        f"Not merged: {request.head} has moved. Look at what is new there, then try again."
    )


def conflict(request: PullRequest) -> MergeConflict:
    """A pull request cannot be merged as it is."""
    return MergeConflict(
        f"Not merged: {request.head} conflicts with {request.base}. Merge the base into the "
        "branch, settle the conflicts there, then merge again."
    )
