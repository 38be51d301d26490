"""What GitHub's REST API and those made after it have in common."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from fusefs.forge.model import PullRequest, Release, State
from fusefs.forge.remote import RemoteDriver


class GitHubLikeDriver(RemoteDriver):
    """A repository on GitHub or a forge with its API.

    Attributes:
        page_size: the name of the parameter that says how long a page is.
        drafts: what to ask for to have drafts of releases listed.
    """

    page_size: ClassVar[str]
    drafts: ClassVar[dict[str, str]]

    def pull_request(self, number: int) -> PullRequest:
        """See `fusefs.forge.model.Driver`."""
        return request_of(self._pull(number))

    def edit_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None, close: bool = False
    ) -> PullRequest:
        """See `fusefs.forge.model.Driver`."""
        wanted = {"title": title, "body": body, "state": "closed" if close else None}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return request_of(self._rest.call("PATCH", f"{self._root}/pulls/{number}", wanted).body)

    def find_release(self, tag: str) -> Release | None:
        """See `fusefs.forge.model.Driver`."""
        published = self._rest.find(f"{self._root}/releases/tags/{quote(tag)}")
        if published is not None:
            return release_of(published)
        # Drafts are in the list alone, the newest first.
        for draft in self._rest.pages(f"{self._root}/releases", self.page_size, **self.drafts):
            if draft["tag_name"] == tag:
                return release_of(draft)
        return None

    def _pull(self, number: int) -> dict[str, Any]:
        body: dict[str, Any] = self._rest.call("GET", f"{self._root}/pulls/{number}").body
        return body

    def _post_release(self, release: Release) -> Release:
        wanted = {
            "tag_name": release.tag,
            "name": release.name,
            "body": release.notes,
            "draft": release.draft,
            "prerelease": release.prerelease,
        }
        return release_of(self._rest.call("POST", f"{self._root}/releases", wanted).body)


def request_of(given: dict[str, Any]) -> PullRequest:
    """Return the pull request that a forge describes."""
    merged = bool(given.get("merged") or given.get("merged_at"))  # lists may have one alone
    return PullRequest(
        number=given["number"],
        title=given["title"],
        body=given["body"] or "",
        head=given["head"]["ref"],
        base=given["base"]["ref"],
        author=(given["user"] or {}).get("login", ""),
        state=State.MERGED if merged else State(given["state"]),
        created=given["created_at"],
        updated=given["updated_at"],
        commit=given["head"]["sha"],
        merge_commit=(given["merge_commit_sha"] or "") if merged else "",
        url=given["html_url"],
    )


def release_of(given: dict[str, Any]) -> Release:
    """Return the release that a forge describes."""
    return Release(
        tag=given["tag_name"],
        name=given["name"] or given["tag_name"],
        notes=given["body"] or "",
        draft=given["draft"],
        prerelease=given["prerelease"],
        created=given["created_at"],
        url=given["html_url"],
    )
