"""One repository on a forge, as its users call it: every operation once, whatever the forge.

Each change asks for the user's right anew, then goes through the ledger: a call that is sent again
with its key has been done once. What is looked for after a lost answer:

============== ===================================================================
branch, tag    the name, which was free before the plan, at the same commit
pull request   one of this title for head and base whose number was not there before
update, close  the pull request says what it was to say
merge          the pull request is merged
release        a release of the tag with this name; the tag had none before
============== ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fusefs.contract.errors import InvalidArgument
from fusefs.forge.errors import (
    AlreadyThere,
    AuthenticationFailed,
    Forbidden,
    Missing,
    Moved,
    Refused,
)
from fusefs.forge.ledger import Effect, Json, Ledger, Steps
from fusefs.forge.model import (
    Access,
    Branch,
    Driver,
    Method,
    PullRequest,
    Release,
    Right,
    State,
    Tag,
)
from fusefs.forge.names import check_commit, check_key, check_ref_name, check_text
from fusefs.forge.rights import RightsCache


class Forge:
    """A repository on a forge, as one user."""

    def __init__(self, driver: Driver, ledger: Ledger, rights: RightsCache | None = None) -> None:
        """Put `driver` behind the instance's ledger and the process's cache of rights."""
        self._driver = driver
        self._ledger = ledger
        self._rights = rights if rights is not None else RightsCache()

    @property
    def kind(self) -> str:
        """``local``, ``github``, ``gitlab`` or ``gitea``."""
        return self._driver.kind

    @property
    def repository(self) -> str:
        """A name of the repository that is its own among all forges."""
        return self._driver.repository

    def access(self, *, fresh: bool = False) -> Access:
        """Return what the user may do here: a maximum for every level inside a mount of it.

        Args:
            fresh: ask the forge, whatever it said before. A commit does.
        """
        return self._rights.access(self._driver, fresh=fresh)

    def create_branch(self, name: str, commit: str, *, key: str) -> Branch:
        """Make a branch at a commit that the forge has. Raises: AlreadyThere, Missing."""
        check_ref_name(name, "branch")
        check_commit(commit)
        driver = self._driver

        def look() -> None:
            if driver.find_branch(name) is not None:
                raise AlreadyThere(f"There is a branch {name} already. Take another name.")

        def find(_: Json) -> Json | None:
            now = driver.find_branch(name)
            return asdict(now) if now is not None and now.commit == commit else None

        outcome = self._once(
            "branch",
            key,
            {"name": name, "commit": commit},
            look,
            find,
            lambda: asdict(driver.create_branch(name, commit)),
        )
        return Branch(**outcome)

    def pull_requests(
        self, state: State | None = State.OPEN, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        """Return pull requests, the newest first.

        Args:
            state: None for all.
            head: only those from this branch.
            base: only those into this branch.
        """
        return self._driver.pull_requests(state, head=head, base=base, limit=limit)

    def pull_request(self, number: int) -> PullRequest:
        """Return one. Raises: Missing."""
        try:
            return self._driver.pull_request(number)
        except Missing:
            where = self._driver.repository
            raise Missing(
                f"There is no pull request #{number} that you may see in {where}."
            ) from None

    def create_pull_request(
        self, head: str, base: str, title: str, body: str = "", *, key: str
    ) -> PullRequest:
        """Ask for `head` to be merged into `base`.

        Raises:
            AlreadyThere: one from head to base is open; the text names it.
            Refused: head has nothing that base has not.
            Missing: there is no such branch.
        """
        check_ref_name(head, "branch")
        check_ref_name(base, "branch")
        check_text(title, "title")
        driver = self._driver

        def look() -> list[int]:
            there = driver.pull_requests(None, head=head, base=base)
            for request in there:
                if request.state is State.OPEN:
                    raise AlreadyThere(
                        f"Pull request #{request.number} from {head} into {base} is open already. "
                        "Update it, or close it first."
                    )
            return [request.number for request in there]

        def find(before: list[int]) -> Json | None:
            there = driver.pull_requests(None, head=head, base=base)
            made = [r for r in there if r.number not in before and r.title == title]
            return asdict(made[-1]) if made else None

        outcome = self._once(
            "pull request",
            key,
            {"head": head, "base": base, "title": title, "body": body},
            look,
            find,
            lambda: asdict(driver.create_pull_request(head, base, title, body)),
        )
        return _request(outcome)

    def update_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None, key: str
    ) -> PullRequest:
        """Change title or body of an open pull request. Raises: Missing, Refused (not open)."""
        if title is None and body is None:
            raise InvalidArgument("Nothing to update: give a title or a body.")
        if title is not None:
            check_text(title, "title")
        driver = self._driver

        def look() -> None:
            self._must_be_open(number)

        def find(_: Json) -> Json | None:
            now = driver.pull_request(number)
            same = (title is None or now.title == title) and (body is None or now.body == body)
            return asdict(now) if same else None

        outcome = self._once(
            "update of a pull request",
            key,
            {"number": number, "title": title, "body": body},
            look,
            find,
            lambda: asdict(driver.edit_pull_request(number, title=title, body=body)),
        )
        return _request(outcome)

    def close_pull_request(self, number: int, *, key: str) -> PullRequest:
        """Close a pull request without merging it. Raises: Missing, Refused (not open)."""
        driver = self._driver

        def look() -> None:
            self._must_be_open(number)

        def find(_: Json) -> Json | None:
            now = driver.pull_request(number)
            return asdict(now) if now.state is State.CLOSED else None

        outcome = self._once(
            "closing of a pull request",
            key,
            {"number": number},
            look,
            find,
            lambda: asdict(driver.edit_pull_request(number, close=True)),
        )
        return _request(outcome)

    def merge(
        self,
        number: int,
        method: Method = Method.MERGE,
        *,
        message: str = "",
        commit: str = "",
        key: str,
    ) -> PullRequest:
        """Merge an open pull request.

        Args:
            message: of the merge commit or the squashed one; empty: the forge's own words.
            commit: where its head must stand; empty: wherever it stands now.

        Raises:
            MergeConflict: both sides changed the same.
            Moved: the head is not at `commit`.
            Refused: the forge's rules say no, or it is not open.
        """
        if commit:
            check_commit(commit)
        driver = self._driver
        seen: list[PullRequest] = []

        def look() -> None:
            request = self._must_be_open(number)
            if commit and request.commit != commit:
                raise Moved(
                    f"Not merged: {request.head} is at {request.commit[:12]} now, not at "
                    f"{commit[:12]}. Look at what is new there, then merge again."
                )
            seen.append(request)

        def find(_: Json) -> Json | None:
            now = driver.pull_request(number)
            return asdict(now) if now.state is State.MERGED else None

        def do() -> Json:
            if not seen:
                look()
            return asdict(driver.merge(seen[-1], method, message))

        arguments = {"number": number, "method": method, "message": message, "commit": commit}
        return _request(self._once("merge", key, arguments, look, find, do))

    def create_tag(self, name: str, commit: str, message: str, *, key: str) -> Tag:
        """Make an annotated tag. It is never moved. Raises: AlreadyThere, Missing."""
        check_ref_name(name, "tag")
        check_commit(commit)
        check_text(message, "message")
        driver = self._driver

        def look() -> None:
            tag = driver.find_tag(name)
            if tag is not None:
                raise AlreadyThere(
                    f"There is a tag {name} already, at {tag.commit[:12]}. Tags are not moved; "
                    "take another name."
                )

        def find(_: Json) -> Json | None:
            now = driver.find_tag(name)
            return asdict(now) if now is not None and now.commit == commit else None

        outcome = self._once(
            "tag",
            key,
            {"name": name, "commit": commit, "message": message},
            look,
            find,
            lambda: asdict(driver.create_tag(name, commit, message)),
        )
        return Tag(**outcome)

    def create_release(
        self,
        tag: str,
        name: str = "",
        notes: str = "",
        *,
        draft: bool = False,
        prerelease: bool = False,
        key: str,
    ) -> Release:
        """Publish a tag that is there. Raises: AlreadyThere, Missing (no such tag)."""
        check_ref_name(tag, "tag")
        driver = self._driver
        wanted = Release(tag, name or tag, notes, draft, prerelease, created="")

        def look() -> None:
            if driver.find_tag(tag) is None:
                raise Missing(f"There is no tag {tag}. Make the tag first.")
            if driver.find_release(tag) is not None:
                raise AlreadyThere(f"There is a release of {tag} already.")

        def find(_: Json) -> Json | None:
            now = driver.find_release(tag)
            return asdict(now) if now is not None and now.name == wanted.name else None

        outcome = self._once(
            "release",
            key,
            asdict(wanted),
            look,
            find,
            lambda: asdict(driver.create_release(wanted)),
        )
        return Release(**outcome)

    def _once(
        self,
        operation: str,
        key: str,
        arguments: Json,
        look: Callable[[], Json],
        find: Callable[[Json], Json | None],
        do: Callable[[], Json],
    ) -> Json:
        driver = self._driver
        effect = Effect(operation, driver.repository, driver.user, key, arguments)
        check_key(key)
        try:
            self._must_write()
            return self._ledger.once(effect, Steps(look, find, do))
        except (AuthenticationFailed, Forbidden):
            self._rights.forget(driver)
            raise

    def _must_write(self) -> None:
        access = self.access(fresh=True)
        if access.right is Right.WRITE:
            return
        where = self._driver.repository
        if access.right is Right.READ:
            raise Forbidden(f"Your account may read {where} but not change it. {access.reason}")
        raise Forbidden(f"Your account has no access to {where}. {access.reason}")

    def _must_be_open(self, number: int) -> PullRequest:
        request = self.pull_request(number)
        if request.state is not State.OPEN:
            raise Refused(f"Pull request #{number} is {request.state} already.")
        return request


def _request(outcome: dict[str, Any]) -> PullRequest:
    return PullRequest(**{**outcome, "state": State(outcome["state"])})
