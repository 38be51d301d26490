"""What all forges have in common: the words, and the little that a driver must be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fusefs.contract.levels import Level


class Right(StrEnum):
    """What the user's own account may do in a repository."""

    NONE = "none"
    READ = "read"
    WRITE = "write"

    @property
    def cap(self) -> Level:
        """The highest level of a session inside a mount of it (contract section 3)."""
        return {Right.NONE: Level.NONE, Right.READ: Level.RO, Right.WRITE: Level.COMMIT}[self]


@dataclass(frozen=True)
class Access:
    """A right, and in words why it is no higher (empty where there is nothing to say)."""

    right: Right
    reason: str = ""


class State(StrEnum):
    """Where a pull request stands."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


class Method(StrEnum):
    """How a pull request becomes part of its base."""

    MERGE = "merge"
    """A merge commit, also where a fast-forward were possible."""
    SQUASH = "squash"
    """One new commit."""
    REBASE = "rebase"
    """Each commit again, on top of the base."""


@dataclass(frozen=True)
class Branch:
    """A branch and the commit (hexadecimal) it points at."""

    name: str
    commit: str


@dataclass(frozen=True)
class PullRequest:
    """A wish to merge `head` into `base`, both branches of one repository. Times are ISO 8601, UTC.

    Attributes:
        commit: where the head stands; of a merged one, where it stood.
        merge_commit: the commit of the base that holds the merge, once merged.
        url: where a person looks at it; empty for the local forge.
    """

    number: int
    title: str
    body: str
    head: str
    base: str
    author: str
    state: State
    created: str
    updated: str
    commit: str
    merge_commit: str = ""
    url: str = ""


@dataclass(frozen=True)
class Tag:
    """An annotated tag; `commit` is what it points at in the end."""

    name: str
    commit: str
    message: str


@dataclass(frozen=True)
class Release:
    """A tag with notes for people."""

    tag: str
    name: str
    notes: str
    draft: bool
    prerelease: bool
    created: str
    url: str = ""


class Driver(Protocol):
    """One repository on one forge, as one user. Every call is done anew; nothing is remembered.

    `fusefs.forge.forge.Forge` makes of it what users call: it looks before it creates, and does
    once what is sent twice. So a driver never repeats a change of its own accord, and its errors
    say (`maybe_done`) when a change may have happened all the same. All may raise
    `fusefs.forge.errors.ForgeError`.
    """

    @property
    def kind(self) -> str:
        """``local``, ``github``, ``gitlab`` or ``gitea``."""
        ...

    @property
    def repository(self) -> str:
        """A name of the repository that is its own among all forges."""
        ...

    @property
    def user(self) -> str:
        """Whose idempotency keys count here; stays when the user's token is renewed."""
        ...

    @property
    def credential(self) -> str:
        """Tells one credential from another, without giving it away."""
        ...

    def access(self) -> Access:
        """Ask what the user may do. A repository that cannot be seen is `Right.NONE`."""
        ...

    def find_branch(self, name: str) -> Branch | None:
        """Return the branch, or None."""
        ...

    def create_branch(self, name: str, commit: str) -> Branch:
        """Make a branch that is not there yet."""
        ...

    def pull_requests(
        self, state: State | None, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        """Return the newest first; an empty `head` or `base` means any, a None state too."""
        ...

    def pull_request(self, number: int) -> PullRequest:
        """Return one. Raises: Missing."""
        ...

    def create_pull_request(self, head: str, base: str, title: str, body: str) -> PullRequest:
        """Open one. Raises: AlreadyThere, Refused (nothing between head and base), Missing."""
        ...

    def edit_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None, close: bool = False
    ) -> PullRequest:
        """Change what is given of an open one."""
        ...

    def merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        """Merge it if its head is still at ``request.commit``.

        Raises: MergeConflict, Moved, Refused.
        """
        ...

    def find_tag(self, name: str) -> Tag | None:
        """Return the tag, or None. A lightweight one has no message."""
        ...

    def create_tag(self, name: str, commit: str, message: str) -> Tag:
        """Make an annotated tag that is not there yet."""
        ...

    def find_release(self, tag: str) -> Release | None:
        """Return the release of a tag, drafts too where the user may see them; or None."""
        ...

    def create_release(self, release: Release) -> Release:
        """Make a release of a tag that is there."""
        ...
