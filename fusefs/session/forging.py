"""Branches, pull requests, merges, tags and releases: what a session asks a forge for.

All of these are about whole commits, with all the files in them. So a session may ask for them
only where it may commit on every path of the repository by its rules (contract sections 5 and 6):
another one would move, or be told of, what it cannot see. Here this is checked; what the user's own
account may do, the forge is asked anew each time (`fusefs.forge.forge.Forge`).
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path as HostPath
from typing import Any, cast

from fusefs.contract.errors import Blocked
from fusefs.contract.view import View
from fusefs.forge.connect import connect
from fusefs.forge.errors import AlreadyThere, MergeConflict, Missing
from fusefs.forge.forge import Forge
from fusefs.forge.git_process import Watch
from fusefs.forge.ledger import Effect, Steps
from fusefs.forge.local_git import Author
from fusefs.forge.model import Branch, Method, PullRequest, Release, State, Tag
from fusefs.forge.names import check_key
from fusefs.session import rights
from fusefs.session.commit_once import ledger
from fusefs.session.committing import author, transport
from fusefs.session.history import base_id, find_commit
from fusefs.session.repository import Repository
from fusefs.session.syncing import Synced, fetch, follow
from fusefs.session.syncing import switch as switch_copy
from fusefs.session.syncing import take_in as merge_into_copy
from fusefs.store import journal


class _Asked:
    """A forge that a session asks under a key.

    Attributes:
        forge: the forge.
        key: the call's key there. Keys are a session's own, also where two have one user.
    """

    def __init__(self, repository: Repository, forge: Forge, key: str) -> None:
        self.forge = forge
        self._repository = repository
        self._own = key
        self.key = hashlib.sha256(f"{repository.session.spec.name}\0{key}".encode()).hexdigest()

    def once(
        self, operation: str, given: Any, look: Callable[[], Any], do: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """Return what came of an operation whose arguments are partly found by looking.

        Sent again it has the arguments that were found first, wherever the working copy is by then.

        Args:
            operation: what a person calls it.
            given: the caller's arguments.
            look: finds the others.
            do: does it on the forge under `key`, given what was found.
        """
        found: list[Any] = []

        def look_first() -> Any:
            found.append(look())
            return found[0]

        def find(plan: Any) -> None:
            found.append(plan)  # the forge's own key tells what came of it

        mount, session = f"mount:{self._repository.spec.id:x}", self._repository.session.spec.name
        effect = Effect(operation, mount, session, self._own, given)
        steps = Steps(look_first, find, lambda: asdict(do(found[-1])))
        return cast(dict[str, Any], ledger(self._repository.instance).once(effect, steps))


def branch(repository: Repository, name: str, *, key: str | None = None) -> Branch:
    """Make a branch on the forge where the working copy stands; its commits go there from now on.

    What is staged stays staged. History that the forge has lost is sent there.

    Raises:
        ContractError: the session may not, by its rules or its user's right.
        ForgeError: AlreadyThere, or as `fusefs.forge.forge.Forge.create_branch`.
    """
    to = _forge_for(repository, key)
    try:
        made = Branch(
            **to.once(
                "branch",
                {"name": name},
                lambda: base_id(repository),
                lambda base: _branch_at(repository, to, name, base),
            )
        )
    except AlreadyThere as error:
        raise AlreadyThere(
            f"{error.text} To work on it: fusefs switch {name} {repository.absolute(())}"
        ) from None
    _record(repository, {"branch": name, "at": made.commit})
    if made.commit == base_id(repository):
        repository.tree.objects.note_branch(name, bytes.fromhex(made.commit))
        follow(repository, name)
    return made


def _branch_at(repository: Repository, to: _Asked, name: str, commit: str) -> Branch:
    try:
        return to.forge.create_branch(name, commit, key=to.key)
    except Missing:
        # The forge has lost the commit, with its history; here it is kept.
        folder = HostPath(repository.instance.mounts.folder(repository.spec))
        transport(repository).push(folder, commit, name, None)
        return Branch(name, commit)


def switch(repository: Repository, name: str, watch: Watch | None = None) -> Synced:
    """Go on with another branch: see `fusefs.session.syncing.switch`.

    Raises:
        ContractError: the session may not, or there is no such branch.
    """
    check_whole(repository)
    return switch_copy(repository, name, watch)


def take_in(repository: Repository, name: str, watch: Watch | None = None) -> Synced:
    """Merge another branch into the working copy: see `fusefs.session.syncing.take_in`.

    Raises:
        ContractError: the session may not, or there is no such branch.
    """
    check_whole(repository)
    return merge_into_copy(repository, name, watch)


def create_pull_request(
    repository: Repository,
    title: str,
    body: str = "",
    *,
    head: str | None = None,
    base: str | None = None,
    key: str | None = None,
) -> PullRequest:
    """Ask for one branch to be merged into another.

    Args:
        head: the branch with the commits; the working copy's if missing.
        base: the branch to merge into; the mount's if missing.

    Raises:
        Blocked: both are one branch.
        ContractError: the session may not.
        ForgeError: as `fusefs.forge.forge.Forge.create_pull_request`.
    """
    to = _forge_for(repository, key)

    def look() -> list[str]:
        chosen = [head or repository.branch, base or repository.spec.branch]
        if chosen[0] == chosen[1]:
            raise Blocked(
                f"Not opened: commits go to {chosen[0]} itself. First: "
                f"fusefs branch NAME {repository.absolute(())}"
            )
        return chosen

    made = to.once(
        "pull request",
        {"head": head, "base": base, "title": title, "body": body},
        look,
        lambda chosen: to.forge.create_pull_request(chosen[0], chosen[1], title, body, key=to.key),
    )
    opened = PullRequest(**{**made, "state": State(made["state"])})
    return _recorded(repository, "opened", opened)


def pull_requests(repository: Repository, state: State | None = State.OPEN) -> list[PullRequest]:
    """Return the pull requests of a state (None: all), the newest first."""
    to = _forge_for(repository, None)
    return to.forge.pull_requests(state)


def pull_request(repository: Repository, number: int) -> PullRequest:
    """Return a pull request."""
    to = _forge_for(repository, None)
    return to.forge.pull_request(number)


def update_pull_request(
    repository: Repository,
    number: int,
    *,
    title: str | None = None,
    body: str | None = None,
    key: str | None = None,
) -> PullRequest:
    """Change title or body of an open pull request."""
    to = _forge_for(repository, key)
    updated = to.forge.update_pull_request(number, title=title, body=body, key=to.key)
    return _recorded(repository, "updated", updated)


def close_pull_request(
    repository: Repository, number: int, *, key: str | None = None
) -> PullRequest:
    """Close a pull request without merging it."""
    to = _forge_for(repository, key)
    return _recorded(repository, "closed", to.forge.close_pull_request(number, key=to.key))


def merge(
    repository: Repository,
    number: int,
    method: Method = Method.MERGE,
    *,
    message: str = "",
    commit: str = "",
    key: str | None = None,
) -> PullRequest:
    """Merge a pull request on the forge. Working copies stay where they are until they sync.

    Args:
        message: of the merge commit or the squashed one; empty: the forge's own words.
        commit: where its head must stand; empty: wherever it stands now.

    Raises:
        ContractError: the session may not.
        ForgeError: as `fusefs.forge.forge.Forge.merge`.
    """
    to = _forge_for(repository, key)
    try:
        merged = to.forge.merge(number, method, message=message, commit=commit, key=to.key)
    except MergeConflict as error:
        request, where = to.forge.pull_request(number), repository.absolute(())
        raise MergeConflict(
            f"{error.text} That is: fusefs switch {request.head} {where}, then "
            f"fusefs sync --from {request.base} {where}",
            error.paths,
        ) from None
    return _recorded(repository, "merged", merged)


def tag(
    repository: Repository,
    name: str,
    message: str,
    *,
    at: str | None = None,
    key: str | None = None,
) -> Tag:
    """Make an annotated tag on the forge.

    Args:
        at: a commit as `fusefs.session.history.show` takes it; the working copy's base if missing.

    Raises:
        ContractError: the session may not, or there is no such commit.
        ForgeError: as `fusefs.forge.forge.Forge.create_tag`.
    """

    to = _forge_for(repository, key)

    def look() -> str:
        if at is None:
            return base_id(repository)
        fetch(repository)
        return find_commit(repository, at)

    made = to.once(
        "tag",
        {"name": name, "message": message, "at": at},
        look,
        lambda commit: to.forge.create_tag(name, commit, message, key=to.key),
    )
    _record(repository, {"tag": name, "at": made["commit"]})
    return Tag(**made)


def release(
    repository: Repository,
    tag_name: str,
    name: str = "",
    notes: str = "",
    *,
    draft: bool = False,
    prerelease: bool = False,
    key: str | None = None,
) -> Release:
    """Publish a tag on the forge.

    Raises:
        ContractError: the session may not.
        ForgeError: as `fusefs.forge.forge.Forge.create_release`.
    """

    to = _forge_for(repository, key)
    try:
        made = to.forge.create_release(
            tag_name, name, notes, draft=draft, prerelease=prerelease, key=to.key
        )
    except Missing as error:
        where = repository.absolute(())
        raise Missing(f"{error.text} With: fusefs tag {tag_name} {where} -m MSG") from None
    _record(repository, {"release": tag_name})
    return made


def _recorded(repository: Repository, what: str, request: PullRequest) -> PullRequest:
    """Put on record what was done to a pull request, and return it."""
    about: dict[str, object] = {what: f"#{request.number}", "head": request.head}
    if what in ("opened", "merged"):
        about["into"] = request.base
    if request.merge_commit:
        about["as"] = request.merge_commit
    _record(repository, about)
    return request


def _record(repository: Repository, about: Mapping[str, object]) -> None:
    """Put on record that the session asked for something on the forge, and that it is done.

    A call that is sent again, and does nothing any more, is a record, too.
    """
    instance = repository.instance
    with instance.kv.write() as txn:
        journal.append(
            txn, time=time.time_ns(), process=instance.process,
            actor=repository.session.spec.name, op=journal.Op.FORGE,
            path=b"/" + b"/".join(repository.mount), detail=journal.describe(about),
        )  # fmt: skip
        instance.journalled()
    instance.commit()


def check_whole(repository: Repository) -> None:
    """Raise why the session may not commit on every path of the repository, by its rules.

    Then the forge is asked for the user's right: one that was taken away holds no more.

    Raises:
        ContractError: the session may not.
        ForgeError: the forge does not answer.
    """
    session, mount = repository.session, repository.mount
    by_rules = View(session.spec.rules()).cursor(mount).commit_refusal(mount)
    if by_rules is not None:
        raise by_rules
    rights.ask_one(repository, must_answer=True)
    by_right = session.view.rules.cursor(mount).commit_refusal(mount)
    if by_right is not None:
        raise by_right


def _forge_for(repository: Repository, key: str | None) -> _Asked:
    """Return the repository's forge, for a session that may ask it."""
    if key is not None:
        check_key(key)
    check_whole(repository)
    spec = repository.spec
    connection = connect(
        spec.url,
        rights.home(repository.instance),
        Author(*author(repository)),
        user=repository.session.spec.name,
        kind=spec.forge,
    )
    return _Asked(repository, connection.forge, key or str(uuid.uuid4()))
