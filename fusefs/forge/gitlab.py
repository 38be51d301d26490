"""GitLab: https://docs.gitlab.com/api/rest/ (version 4). Pull requests are its merge requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fusefs.contract.errors import InvalidArgument
from fusefs.forge import refusals
from fusefs.forge.credentials import Credential
from fusefs.forge.errors import (
    AlreadyThere,
    AuthenticationFailed,
    Forbidden,
    ForgeError,
    Refused,
    TimedOut,
)
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
from fusefs.forge.remote import RemoteDriver, select
from fusefs.forge.rest import Patience
from fusefs.forge.urls import Remote

_REPORTER, _DEVELOPER = 20, 30
"""Roles: https://docs.gitlab.com/api/access_requests/#valid-access-levels"""

_UNDECIDED = {"unchecked", "checking", "preparing", "approvals_syncing"}
"""Values of `detailed_merge_status` that change by themselves."""

_STATES = {"opened": State.OPEN, "locked": State.OPEN, "closed": State.CLOSED,
           "merged": State.MERGED}  # fmt: skip

_WAIT = 30.0
"""Seconds for what GitLab does in the background: checking, rebasing."""

_METHODS = {
    Method.MERGE: ({"merge", "rebase_merge"}, "Merge commit"),
    Method.REBASE: ({"ff"}, "Fast-forward merge"),
}
"""Where a project's setting decides, not the call: the settings that will do, and one's name."""


class GitLabDriver(RemoteDriver):
    """A project on GitLab. See `fusefs.forge.model.Driver`."""

    kind = "gitlab"

    def __init__(
        self,
        remote: Remote,
        credential: Credential | None,
        *,
        user: str = "",
        api: str = "",
        patience: Patience | None = None,
        pause: float = 0.5,
    ) -> None:
        """Use the project at `remote`; look every `pause` seconds at what is not done yet."""
        api = api or self.web_site(remote) + "/api/v4"
        super().__init__(remote, credential, user, api, patience)
        self._root = f"/projects/{quote(remote.path, safe='')}"
        self._pause = pause

    def access(self) -> Access:
        about = self._about()
        if isinstance(about, Access):
            return about
        granted = about.get("permissions")
        roles = [role["access_level"] for role in (granted or {}).values() if role]
        role = max(roles, default=0)
        code = about.get("repository_access_level", "enabled")
        if code == "disabled" or (code == "private" and role < _REPORTER):
            return Access(Right.NONE, "The project does not show its repository to you.")
        if role >= _DEVELOPER and not about["archived"]:
            return Access(Right.WRITE)
        if role >= _REPORTER or about["visibility"] != "private":
            if about["archived"]:
                return Access(Right.READ, "The project is archived.")
            if granted is None:
                return Access(Right.READ, self.no_credential())
            return Access(Right.READ, "Writing needs the role Developer in the project.")
        return Access(Right.NONE, "Reading the code needs the role Reporter in the project.")

    def find_branch(self, name: str) -> Branch | None:
        found = self._rest.find(f"{self._root}/repository/branches/{quote(name, safe='')}")
        return None if found is None else Branch(name, found["commit"]["id"])

    def create_branch(self, name: str, commit: str) -> Branch:
        wanted = {"branch": name, "ref": commit}
        try:
            made = self._rest.call("POST", f"{self._root}/repository/branches", wanted).body
        except Refused as error:
            if "already exists" in error.text:
                raise refusals.branch_taken(name) from None
            if "nvalid reference" in error.text:
                raise refusals.no_commit(commit) from None
            raise
        return Branch(name, made["commit"]["id"])

    def pull_requests(
        self, state: State | None, *, head: str = "", base: str = "", limit: int = 100
    ) -> list[PullRequest]:
        names = {State.OPEN: "opened", State.CLOSED: "closed", State.MERGED: "merged", None: "all"}
        query = {"state": names[state]}
        if head:
            query["source_branch"] = head
        if base:
            query["target_branch"] = base
        found = self._rest.pages(f"{self._root}/merge_requests", "per_page", **query)
        return select(map(_request, found), state, head, base, limit)

    def pull_request(self, number: int) -> PullRequest:
        return _request(self._merge_request(number))

    def create_pull_request(self, head: str, base: str, title: str, body: str) -> PullRequest:
        wanted = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        try:
            return _request(self._rest.call("POST", f"{self._root}/merge_requests", wanted).body)
        except Refused as error:
            if "already exists" in error.text:
                raise AlreadyThere(error.text) from None
            raise self.missing_branch(head, base) or error from None

    def edit_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None, close: bool = False
    ) -> PullRequest:
        wanted = {"title": title, "description": body, "state_event": "close" if close else None}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return _request(
            self._rest.call("PUT", f"{self._root}/merge_requests/{number}", wanted).body
        )

    def merge(self, request: PullRequest, method: Method, message: str) -> PullRequest:
        self._must_merge_so(method)
        commit = request.commit
        if method is Method.REBASE:
            commit = self._rebased(request)
        self._must_be_mergeable(request.number)
        wanted: dict[str, Any] = {"sha": commit, "squash": method is Method.SQUASH}
        if message and method is not Method.REBASE:
            name = "squash" if method is Method.SQUASH else "merge"
            wanted[f"{name}_commit_message"] = message
        path = f"{self._root}/merge_requests/{request.number}/merge"
        try:
            self._rest.call("PUT", path, wanted)
        except AuthenticationFailed:
            # So GitLab answers who may read but not merge.
            raise Forbidden("Your role in the project does not let you merge this.") from None
        except Refused as error:
            raise self._why_not_merged(request, error) from None
        merged = self._when(request.number, lambda now: now["state"] != "locked", done=True)
        return _request(merged)

    def find_tag(self, name: str) -> Tag | None:
        found = self._rest.find(f"{self._root}/repository/tags/{quote(name, safe='')}")
        return None if found is None else _tag(found)

    def create_tag(self, name: str, commit: str, message: str) -> Tag:
        wanted = {"tag_name": name, "ref": commit, "message": message}
        try:
            return _tag(self._rest.call("POST", f"{self._root}/repository/tags", wanted).body)
        except Refused as error:
            if "already exists" in error.text:
                raise refusals.tag_taken(name) from None
            if "is invalid" in error.text:
                raise refusals.no_commit(commit) from None
            raise

    def find_release(self, tag: str) -> Release | None:
        found = self._rest.find(f"{self._root}/releases/{quote(tag, safe='')}")
        return None if found is None else _release(found)

    def create_release(self, release: Release) -> Release:
        if release.draft or release.prerelease:
            raise InvalidArgument("GitLab has no drafts and no prereleases. Leave these out.")
        wanted = {
            "tag_name": release.tag,
            "name": release.name,
            "description": release.notes,
        }
        try:
            return _release(self._rest.call("POST", f"{self._root}/releases", wanted).body)
        except Refused as error:
            if error.status == 409:
                raise refusals.release_taken(release.tag) from None
            raise

    def _merge_request(self, number: int) -> dict[str, Any]:
        body: dict[str, Any] = self._rest.call(
            "GET",
            f"{self._root}/merge_requests/{number}",
            query={"include_rebase_in_progress": "true"},
        ).body
        return body

    def _when(
        self, number: int, ready: Callable[[dict[str, Any]], bool], *, done: bool = False
    ) -> dict[str, Any]:
        """Return the merge request as soon as it is `ready`.

        Args:
            done: what was asked for is under way, and may be done when the wait is given up.
        """
        give_up = time.monotonic() + _WAIT
        while True:
            now = self._merge_request(number)
            if ready(now):
                return now
            if time.monotonic() > give_up:
                raise TimedOut(
                    f"GitLab is still busy with !{number}. Try again later.", maybe_done=done
                )
            time.sleep(self._pause)

    def _must_merge_so(self, method: Method) -> None:
        """How commits get into a branch is a setting of the project, not of the call."""
        about = self._rest.call("GET", self._root).body
        if method is Method.SQUASH:
            if about.get("squash_option") == "never":
                raise Refused("The project does not allow squashing. Use merge or rebase.")
            return
        settings, name = _METHODS[method]
        if about.get("merge_method", "merge") not in settings:
            raise Refused(
                f"Not merged: for {method} the project's merge method has to be {name!r} "
                "(Settings, Merge requests). Use another method."
            )

    def _must_be_mergeable(self, number: int) -> None:
        now = self._when(number, lambda now: now["detailed_merge_status"] not in _UNDECIDED)
        status = now["detailed_merge_status"]
        if status in {"conflict", "broken_status"}:
            raise refusals.conflict(_request(now))
        if status != "mergeable":
            raise Refused(f"Not merged: GitLab says {status.replace('_', ' ')}.")

    def _rebased(self, request: PullRequest) -> str:
        """Have the source branch rebased; return its new tip."""
        if self._merge_request(request.number)["sha"] != request.commit:
            raise refusals.moved(request)
        self._rest.call("PUT", f"{self._root}/merge_requests/{request.number}/rebase")
        now = self._when(request.number, lambda now: not now.get("rebase_in_progress"))
        if now.get("merge_error"):
            raise refusals.conflict(request)
        return str(now["sha"])

    def _why_not_merged(self, request: PullRequest, error: Refused) -> ForgeError:
        if error.status == 409:
            return refusals.moved(request)
        if error.status in {406, 422}:
            return refusals.conflict(request)
        return error


def _request(given: dict[str, Any]) -> PullRequest:
    state = _STATES[given["state"]]
    # A fast-forward has neither a merge commit nor a squashed one.
    merged = given["merge_commit_sha"] or given.get("squash_commit_sha") or given["sha"]
    return PullRequest(
        number=given["iid"],
        title=given["title"],
        body=given["description"] or "",
        head=given["source_branch"],
        base=given["target_branch"],
        author=(given["author"] or {}).get("username", ""),
        state=state,
        created=given["created_at"],
        updated=given["updated_at"],
        commit=given["sha"] or "",
        merge_commit=merged if state is State.MERGED else "",
        url=given["web_url"],
    )


def _tag(given: dict[str, Any]) -> Tag:
    return Tag(given["name"], given["commit"]["id"], (given["message"] or "").strip())


def _release(given: dict[str, Any]) -> Release:
    return Release(
        tag=given["tag_name"],
        name=given["name"] or given["tag_name"],
        notes=given["description"] or "",
        draft=False,
        prerelease=False,
        created=given["created_at"],
        url=given.get("_links", {}).get("self", ""),
    )
