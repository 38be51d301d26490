"""GitHub, and GitHub Enterprise Server: https://docs.github.com/en/rest (version 2022-11-28)."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote

from fusefs.forge import refusals
from fusefs.forge.credentials import Credential
from fusefs.forge.errors import AlreadyThere, ForgeError, Refused
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

_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


class GitHubDriver(GitHubLikeDriver):
    """A repository on GitHub. See `fusefs.forge.model.Driver`."""

    kind = "github"
    page_size = "per_page"
    drafts: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        remote: Remote,
        credential: Credential | None,
        *,
        user: str = "",
        api: str = "",
        patience: Patience | None = None,
    ) -> None:
        """Use the repository at `remote`; `api` is needed where it is not at its usual place."""
        if not api:
            api = (
                "https://api.github.com"
                if remote.host == "github.com"
                else self.web_site(remote) + "/api/v3"
            )
        super().__init__(remote, credential, user, api, patience, _HEADERS)
        self._owner = remote.path.split("/")[0]
        self._root = f"/repos/{quote(remote.path)}"

    def access(self) -> Access:
        about = self._about()
        if isinstance(about, Access):
            return about
        granted = about.get("permissions")
        if granted is None or not self.credential:
            return Access(Right.READ, self.no_credential())
        if about["archived"]:
            return Access(Right.READ, "The repository is archived.")
        if granted["push"]:
            return Access(Right.WRITE)
        if granted["pull"]:
            return Access(Right.READ, "Ask its owner for write access.")
        return Access(Right.NONE, self.hidden())

    def find_branch(self, name: str) -> Branch | None:
        ref = self._rest.find(f"{self._root}/git/ref/heads/{quote(name)}")
        return None if ref is None else Branch(name, ref["object"]["sha"])

    def create_branch(self, name: str, commit: str) -> Branch:
        self._create_ref(f"refs/heads/{name}", commit, refusals.branch_taken(name))
        return Branch(name, commit)

    def pull_requests(
        self, state: State | None, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        query = {"state": "open" if state is State.OPEN else "all" if state is None else "closed"}
        if head:
            query["head"] = f"{self._owner}:{head}"
        if base:
            query["base"] = base
        found = self._rest.pages(f"{self._root}/pulls", "per_page", **query)
        return select(map(request_of, found), state, head, base, limit)

    def create_pull_request(self, head: str, base: str, title: str, body: str) -> PullRequest:
        wanted = {"title": title, "body": body, "head": head, "base": base}
        try:
            return request_of(self._rest.call("POST", f"{self._root}/pulls", wanted).body)
        except Refused as error:
            if "already exists" in error.text:
                raise AlreadyThere(error.text) from None
            for field, branch in (("head", head), ("base", base)):
                if f"field {field}, code invalid" in error.text:
                    raise refusals.no_branch(branch) from None
            raise

    def merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        title, _, rest = message.partition("\n")
        wanted = {"sha": request.commit, "merge_method": str(method)}
        if message and method is not Method.REBASE:
            wanted |= {"commit_title": title, "commit_message": rest.strip()}
        try:
            self._rest.call("PUT", f"{self._root}/pulls/{request.number}/merge", wanted)
        except Refused as error:
            raise self._why_not_merged(request, error) from None
        return self.pull_request(request.number)

    def find_tag(self, name: str) -> Tag | None:
        ref = self._rest.find(f"{self._root}/git/ref/tags/{quote(name)}")
        if ref is None:
            return None
        target = ref["object"]
        if target["type"] != "tag":
            return Tag(name, target["sha"], "")
        tag = self._rest.call("GET", f"{self._root}/git/tags/{target['sha']}").body
        return Tag(name, tag["object"]["sha"], tag["message"].strip())

    def create_tag(self, name: str, commit: str, message: str) -> Tag:
        wanted = {"tag": name, "message": message, "object": commit, "type": "commit"}
        try:
            made = self._rest.call("POST", f"{self._root}/git/tags", wanted).body
        except ForgeError as error:
            error.maybe_done = False  # an object without a name is nothing
            if error.status in {404, 422}:
                raise refusals.no_commit(commit) from None
            raise
        self._create_ref(f"refs/tags/{name}", made["sha"], refusals.tag_taken(name))
        return Tag(name, commit, message.strip())

    def create_release(self, release: Release) -> Release:
        try:
            return self._post_release(release)
        except Refused as error:
            if "already_exists" in error.text:
                raise refusals.release_taken(release.tag) from None
            raise

    def _create_ref(self, ref: str, commit: str, taken: AlreadyThere) -> None:
        try:
            self._rest.call("POST", f"{self._root}/git/refs", {"ref": ref, "sha": commit})
        except Refused as error:
            if "already exists" in error.text:
                raise taken from None
            if "Object does not exist" in error.text:
                raise refusals.no_commit(commit) from None
            raise

    def _why_not_merged(self, request: PullRequest, error: Refused) -> ForgeError:
        if error.status == 409:
            return refusals.moved(request)
        now = self._rest.find(f"{self._root}/pulls/{request.number}")
        if now is not None and now["mergeable_state"] == "dirty":
            return refusals.conflict(request)
        return error
