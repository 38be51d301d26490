"""GitHub's face of the small forge. Answers are GitHub's published examples with our values."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from .openapi import example
from .server import Answer, Call, SmallForge
from .world import No, Repository, Request

ROOT = "/api/v3"
DOCS = "https://docs.github.com/rest"


def error(status: int, message: str, *errors: dict[str, Any] | str) -> Answer:
    body: dict[str, Any] = {"message": message, "documentation_url": DOCS}
    if errors:
        body["errors"] = [
            e
            if isinstance(e, dict)
            else {"resource": "PullRequest", "code": "custom", "message": e}
            for e in errors
        ]
    else:
        body["status"] = str(status)
    return Answer(status, body)


def face(forge: SmallForge, call: Call) -> Answer:
    match = re.fullmatch(r"/repos/([^/]+/[^/]+)(/.*)?", unquote(call.path))
    name, rest = (match[1], match[2] or "") if match else ("", "")
    if name in forge_renamed:
        return Answer(
            301 if call.method == "GET" else 307,
            {"message": "Moved Permanently", "documentation_url": DOCS, "url": ""},
            {"Location": "{url}" + ROOT + call.path.replace(name, forge_renamed[name])},
        )
    right = forge.right(name, call.login)
    if right == "none":
        return error(404, "Not Found")
    if call.method != "GET" and right != "write":
        return error(403, "Resource not accessible by personal access token")
    try:
        return route(forge.repositories[name], rest, call, right)
    except No as no:
        return refused(no)


forge_renamed: dict[str, str] = {"owner/old-name": "owner/project"}
"""Repositories by their former names."""


def refused(no: No) -> Answer:
    failed = "Validation Failed"
    if no.why in {"invalid-head", "invalid-base"}:
        field = no.why.removeprefix("invalid-")
        return error(422, failed, {"resource": "PullRequest", "field": field, "code": "invalid"})
    if no.why == "exists":
        return error(422, failed, "A pull request already exists for owner:topic.")
    if no.why == "no-commits":
        return error(422, failed, f"No commits between {no.detail}")
    if no.why == "moved":
        return plain(409, "Head branch was modified. Review and try the merge again.")
    if no.why == "protected":
        return plain(405, "At least 1 approving review is required by reviewers with write access.")
    if no.why == "method":
        return plain(405, f"{no.detail.capitalize()} merges are not allowed on this repository.")
    if no.why in {"conflict", "closed"}:
        return plain(405, "Pull Request is not mergeable")
    return error(404, "Not Found")


def plain(status: int, message: str) -> Answer:
    return Answer(status, {"message": message, "documentation_url": DOCS})


def route(repository: Repository, rest: str, call: Call, right: str) -> Answer:
    method, body = call.method, call.body or {}
    if (method, rest) == ("GET", ""):
        return Answer(200, about(repository, call.login, right))
    if method == "GET" and rest.startswith("/git/ref/"):
        return get_ref(repository, "refs/" + rest.removeprefix("/git/ref/"))
    if (method, rest) == ("POST", "/git/refs"):
        return create_ref(repository, body["ref"], body["sha"])
    if (method, rest) == ("POST", "/git/tags"):
        return create_tag(repository, body)
    if method == "GET" and rest.startswith("/git/tags/"):
        return get_tag(repository, rest.removeprefix("/git/tags/"))
    if rest == "/pulls":
        if method == "POST":
            made = repository.open_request(
                body["head"], body["base"], body["title"], body.get("body") or "", str(call.login)
            )
            return Answer(201, pull(repository, made))
        return Answer(200, list_pulls(repository, call.query))
    match = re.fullmatch(r"/pulls/(\d+)(/merge)?", rest)
    if match:
        request = repository.request(int(match[1]))
        if method == "PUT" and match[2]:
            new = repository.merge(
                request.number,
                body.get("merge_method", "merge"),
                "\n\n".join(filter(None, [body.get("commit_title"), body.get("commit_message")])),
                body.get("sha", ""),
            )
            return Answer(200, {"sha": new, "merged": True, "message": "merged"})
        if method == "PATCH":
            edit(request, body)
        return Answer(200, pull(repository, request))
    if rest.startswith("/releases"):
        return releases(repository, rest, call)
    return error(404, "Not Found")


def about(repository: Repository, login: str | None, right: str) -> Any:
    answer = example("full-repository-default-response")
    for other in ("source", "parent", "template_repository"):
        del answer[other]  # of a fork; in the example these are not as described
    answer |= {
        "language": "Python",
        "full_name": repository.name,
        "private": repository.private,
        "archived": repository.archived,
        "permissions": {
            "admin": False, "maintain": False, "push": right == "write", "triage": False,
            "pull": True,
        },
    }  # fmt: skip
    if login is None:
        del answer["permissions"]
    return answer


def get_ref(repository: Repository, ref: str) -> Answer:
    sha = repository.object_of(ref)
    if not sha:
        return error(404, "Not Found")
    return Answer(200, ref_body(repository, ref, sha))


def ref_body(repository: Repository, ref: str, sha: str) -> Any:
    kind = repository.git("cat-file", "-t", sha)
    url = f"https://api.github.com/repos/{repository.name}/git/"
    return example("git-ref") | {
        "ref": ref,
        "url": url + ref,
        "object": {"type": kind, "sha": sha, "url": f"{url}{kind}s/{sha}"},
    }


def create_ref(repository: Repository, ref: str, sha: str) -> Answer:
    try:
        repository.create_ref(ref, sha)
    except No as no:
        text = "Reference already exists" if no.why == "exists" else "Object does not exist"
        return Answer(422, {"message": text, "documentation_url": DOCS})
    return Answer(201, ref_body(repository, ref, sha))


def create_tag(repository: Repository, body: Any) -> Answer:
    if not repository.sha(body["object"]):
        return Answer(422, {"message": "Object does not exist", "documentation_url": DOCS})
    sha = repository.tag_object(body["tag"], body["object"], body["message"])
    answer = get_tag(repository, sha)
    return Answer(201, answer.body)


def get_tag(repository: Repository, sha: str) -> Answer:
    text = repository.git("cat-file", "tag", sha, check=False)
    if not text:
        return error(404, "Not Found")
    head, _, message = text.partition("\n\n")
    fields = dict(line.split(" ", 1) for line in head.split("\n"))
    answer = example("git-tag")
    answer |= {"tag": fields["tag"], "sha": sha, "message": message}
    answer["object"] |= {"sha": fields["object"], "type": "commit"}
    return Answer(200, answer)


def list_pulls(repository: Repository, query: dict[str, str]) -> Any:
    states = {"open": {"open"}, "closed": {"closed", "merged"}}.get(query.get("state", "open"))
    head = query.get("head", "").partition(":")[2]
    found = [
        repository.request(request.number)
        for request in reversed(repository.requests)
        if (states is None or request.state in states)
        and head in {"", request.head}
        and query.get("base", "") in {"", request.base}
    ]
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    items = example("pull-request-simple-items")
    return [items[0] | pull_fields(r, items[0]) for r in found[(page - 1) * size : page * size]]


def pull_fields(request: Request, base: Any) -> dict[str, Any]:
    merged = request.state == "merged"
    return {
        "number": request.number,
        "title": request.title,
        "body": request.body or None,
        "state": "open" if request.state == "open" else "closed",
        "user": base["user"] | {"login": request.author},
        "requested_teams": [],  # in the example not as described
        "head": base["head"] | {"ref": request.head, "sha": request.sha},
        "base": base["base"] | {"ref": request.base},
        "created_at": request.created,
        "merged_at": request.created if merged else None,
        # Of an open one it is GitHub's trial merge, and says nothing.
        "merge_commit_sha": request.merge_commit or "e5bd3914e2e596debea16f433f57875b5b90bcd6",
    }


def pull(repository: Repository, request: Request) -> Any:
    answer = example("pull-request")
    answer |= pull_fields(request, answer)
    base = repository.sha(f"refs/heads/{request.base}")
    clean = bool(repository.git("merge-tree", "--write-tree", base, request.sha, check=False))
    answer |= {
        "merged": request.state == "merged",
        "mergeable": clean,
        "mergeable_state": "clean" if clean else "dirty",
    }
    return answer


def edit(request: Request, body: Any) -> None:
    request.title = body.get("title", request.title)
    request.body = body.get("body", request.body)
    if body.get("state") == "closed":
        request.state = "closed"


def releases(repository: Repository, rest: str, call: Call) -> Answer:
    if call.method == "POST":
        body = call.body
        if any(r["tag_name"] == body["tag_name"] for r in repository.releases):
            return error(
                422,
                "Validation Failed",
                {"resource": "Release", "code": "already_exists", "field": "tag_name"},
            )
        repository.releases.insert(0, example("release") | body)
        return Answer(201, repository.releases[0])
    if rest == "/releases":
        return Answer(200, repository.releases)
    for release in repository.releases:
        if release["tag_name"] == rest.removeprefix("/releases/tags/") and not release["draft"]:
            return Answer(200, release)
    return error(404, "Not Found")
