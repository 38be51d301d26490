"""Gitea and Forgejo: https://docs.gitea.com/api/ and https://forgejo.org/docs/latest/user/api-usage/.

The two have the same API for all that is used here.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar
from urllib.parse import quote

from fusefs.forge import refusals
from fusefs.forge.credentials import Credential
from fusefs.forge.errors import (
    AlreadyThere,
    ForgeError,
    Missing,
    Refused,
)
from fusefs.forge.github_like import GitHubLikeDriver, request_of
from fusefs.forge.model import (
    Access,
    Branch,
    Method,
    PullRequest,
    Release,
    Right,
    State,
    Tag,
)
from fusefs.forge.remote import select
from fusefs.forge.rest import Patience
from fusefs.forge.urls import Remote

_WAIT = 10.0
"""Seconds for Gitea to find out whether a new pull request can be merged."""

_LATER = "try again later"


class GiteaDriver(GitHubLikeDriver):
    """A repository on Gitea or Forgejo. See `fusefs.forge.model.Driver`."""

    kind = "gitea"
    page_size = "limit"
    drafts: ClassVar[dict[str, str]] = {"draft": "true"}

    def __init__(
        self,
        remote: Remote,
        credential: Credential | None,
        *,
        user: str = "",
        api: str = "",
        patience: Patience | None = None,
        wait: float = _WAIT,
        pause: float = 0.5,
    ) -> None:
        """Use the repository at `remote`; `wait` for checks, looking every `pause` seconds."""
        api = api or self.web_site(remote) + "/api/v1"
        super().__init__(remote, credential, user, api, patience)
        self._root = f"/repos/{quote(remote.path)}"
        self._patience = wait
        self._pause = pause

    def access(self) -> Access:
        about = self._about()
        if isinstance(about, Access):
            return about
        granted = about.get("permissions") or {"push": False, "pull": True}
        if not granted["pull"]:
            return Access(Right.NONE, self.hidden())
        for setting, text in (("archived", "archived"), ("mirror", "a mirror")):
            if about.get(setting):
                return Access(Right.READ, f"The repository is {text}.")
        if granted["push"]:
            return Access(Right.WRITE)
        if not self.credential:
            return Access(Right.READ, self.no_credential())
        return Access(Right.READ, "Ask its owner for write access.")

    def find_branch(self, name: str) -> Branch | None:
        found = self._rest.find(f"{self._root}/branches/{quote(name)}")
        return None if found is None else Branch(name, found["commit"]["id"])

    def create_branch(self, name: str, commit: str) -> Branch:
        if self._rest.find(f"{self._root}/git/commits/{commit}") is None:
            raise refusals.no_commit(commit)
        wanted = {"new_branch_name": name, "old_ref_name": commit}
        try:
            made = self._rest.call("POST", f"{self._root}/branches", wanted).body
        except Refused as error:
            if error.status == 409:
                raise refusals.branch_taken(name) from None
            raise
        return Branch(name, made["commit"]["id"])

    def pull_requests(
        self, state: State | None, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        name = "open" if state is State.OPEN else "all" if state is None else "closed"
        found = self._rest.pages(f"{self._root}/pulls", "limit", state=name)
        return select(map(request_of, found), state, head, base, limit)

    def create_pull_request(self, head: str, base: str, title: str, body: str) -> PullRequest:
        wanted = {"head": head, "base": base, "title": title, "body": body}
        try:
            return request_of(self._rest.call("POST", f"{self._root}/pulls", wanted).body)
        except Refused as error:
            if error.status == 409:
                raise AlreadyThere(
                    f"A pull request from {head} into {base} is open already."
                ) from None
            raise
        except Missing as error:
            raise self.missing_branch(head, base) or error from None

    def merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        title, _, rest = message.partition("\n")
        wanted = {"Do": str(method), "head_commit_id": request.commit}
        if message and method is not Method.REBASE:
            wanted |= {"MergeTitleField": title, "MergeMessageField": rest.strip()}
        give_up = time.monotonic() + self._patience
        while True:
            try:
                self._rest.call("POST", f"{self._root}/pulls/{request.number}/merge", wanted)
                return self.pull_request(request.number)
            except Refused as error:
                # "Later" means that it is still checking, or that there is a conflict.
                if _LATER not in error.text or time.monotonic() > give_up:
                    raise self._why_not_merged(request, error) from None
            time.sleep(self._pause)

    def find_tag(self, name: str) -> Tag | None:
        found = self._rest.find(f"{self._root}/tags/{quote(name)}")
        return None if found is None else _tag(found)

    def create_tag(self, name: str, commit: str, message: str) -> Tag:
        wanted = {"tag_name": name, "target": commit, "message": message}
        try:
            return _tag(self._rest.call("POST", f"{self._root}/tags", wanted).body)
        except Refused as error:
            if error.status == 409:
                raise refusals.tag_taken(name) from None
            raise
        except Missing:
            raise refusals.no_commit(commit) from None

    def create_release(self, release: Release) -> Release:
        try:
            return self._post_release(release)
        except Refused as error:
            if error.status == 409:
                raise refusals.release_taken(release.tag) from None
            raise

    def _why_not_merged(self, request: PullRequest, error: Refused) -> ForgeError:
        if "head out of date" in error.text:
            return refusals.moved(request)
        if error.status == 409 or _LATER in error.text:
            rejected = "PushRejected" in error.text or "push out of date" in error.text
            if not rejected and not self._pull(request.number).get("mergeable"):
                return refusals.conflict(request)
        return error


def _tag(given: dict[str, Any]) -> Tag:
    return Tag(given["name"], given["commit"]["sha"], (given["message"] or "").strip())
