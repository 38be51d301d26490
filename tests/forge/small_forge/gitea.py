"""Gitea's face of the small forge, by its API description and routers (routers/api/v1/repo)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from .server import Answer, Call, SmallForge
from .world import No, Repository, Request

ROOT = "/api/v1"


def error(status: int, message: str) -> Answer:
    return Answer(status, {"message": message, "url": "https://x/api/swagger"})


def face(forge: SmallForge, call: Call) -> Answer:
    match = re.fullmatch(r"/repos/([^/]+/[^/]+)(/.*)?", unquote(call.path))
    name, rest = (match[1], match[2] or "") if match else ("", "")
    right = forge.right(name, call.login)
    if right == "none":
        return error(404, "The target couldn't be found.")
    repository = forge.repositories[name]
    if call.method != "GET" and repository.archived:
        return error(423, f"repo: {name} is archived")
    if call.method != "GET" and right != "write":
        return error(403, "user should have a permission to write to a branch")
    try:
        return route(repository, rest, call, right)
    except No as no:
        return refused(no)


def refused(no: No) -> Answer:
    return {
        "missing": error(404, "The target couldn't be found."),
        "invalid-head": error(404, "The target couldn't be found."),
        "invalid-base": error(404, "The target couldn't be found."),
        "exists": error(409, "pull request already exists for these targets [id: 1]"),
        "moved": error(409, "head out of date"),
        "conflict": error(405, "Please try again later"),
        "protected": error(405, "User not allowed to merge PR"),
        "closed": error(404, "The target couldn't be found."),
    }[no.why]


def route(repository: Repository, rest: str, call: Call, right: str) -> Answer:
    method, body = call.method, call.body or {}
    if rest == "":
        return Answer(200, about(repository, right))
    if rest.startswith("/git/commits/"):
        sha = repository.sha(rest.removeprefix("/git/commits/"))
        return Answer(200, {"sha": sha}) if sha else error(404, "object does not exist")
    if rest.startswith("/branches"):
        return branches(repository, method, rest.removeprefix("/branches/"), body)
    if rest.startswith("/tags"):
        return tags(repository, method, rest.removeprefix("/tags/"), body)
    if rest.startswith("/releases"):
        return releases(repository, rest, call)
    if rest == "/pulls":
        if method == "POST":
            return Answer(201, pull(repository, created(repository, body, call)))
        return Answer(200, listed(repository, call.query))
    match = re.fullmatch(r"/pulls/(\d+)(/merge)?", rest)
    if match is None:
        return error(404, "not found")
    request = repository.request(int(match[1]))
    if match[2]:
        return merged(repository, request, body)
    if method == "PATCH":
        request.title = body.get("title", request.title)
        request.body = body.get("body", request.body)
        if body.get("state") == "closed":
            request.state = "closed"
        return Answer(201, pull(repository, request))
    return Answer(200, pull(repository, request))


def about(repository: Repository, right: str) -> Any:
    return {
        "full_name": repository.name,
        "private": repository.private,
        "archived": repository.archived,
        "mirror": False,
        "permissions": {
            "admin": False,
            "push": right == "write" or repository.archived,
            "pull": True,
        },
    }


def branches(repository: Repository, method: str, name: str, body: Any) -> Answer:
    if method == "POST":
        name = body["new_branch_name"]
        try:
            repository.create_ref(f"refs/heads/{name}", body["old_ref_name"])
        except No as no:
            if no.why == "missing":
                return error(500, "object does not exist")
            return error(409, "The branch already exists.")
    sha = repository.sha(f"refs/heads/{name}")
    if not sha:
        return error(404, "branch does not exist")
    return Answer(201 if method == "POST" else 200, {"name": name, "commit": {"id": sha}})


def tags(repository: Repository, method: str, name: str, body: Any) -> Answer:
    if method == "POST":
        name = body["tag_name"]
        if repository.object_of(f"refs/tags/{name}"):
            return error(409, "tag exist")
        if not repository.sha(body["target"]):
            return error(404, "target not found")
        made = repository.tag_object(name, body["target"], body["message"])
        repository.create_ref(f"refs/tags/{name}", made)
    made = repository.object_of(f"refs/tags/{name}")
    if not made:
        return error(404, "tag does not exist")
    text = repository.git("cat-file", "-p", made).partition("\n\n")[2]
    tag = {"name": name, "message": text, "id": made, "commit": {"sha": repository.sha(made)}}
    return Answer(201 if method == "POST" else 200, tag)


def releases(repository: Repository, rest: str, call: Call) -> Answer:
    if call.method == "POST":
        body = call.body
        if any(release["tag_name"] == body["tag_name"] for release in repository.releases):
            return error(409, "Release is has no Tag")
        made = {"created_at": "2026-01-02T03:04:05Z", "html_url": "https://x/releases/1"}
        repository.releases.append(made | body)
        return Answer(201, repository.releases[-1])
    if rest == "/releases":
        return Answer(200, repository.releases)
    for release in repository.releases:
        if release["tag_name"] == rest.removeprefix("/releases/tags/") and not release["draft"]:
            return Answer(200, release)
    return error(404, "release does not exist")


def created(repository: Repository, body: Any, call: Call) -> Request:
    try:
        return repository.open_request(
            body["head"], body["base"], body["title"], body["body"], str(call.login)
        )
    except No as no:
        if no.why != "no-commits":  # Gitea opens these too
            raise
        number = len(repository.requests) + 1
        repository.requests.append(
            Request(number, body["head"], body["base"], body["title"], "", str(call.login))
        )
        return repository.requests[-1]


def listed(repository: Repository, query: dict[str, str]) -> Any:
    states = {"open": {"open"}, "closed": {"closed", "merged"}}.get(query["state"])
    found = [
        repository.request(request.number)
        for request in reversed(repository.requests)
        if states is None or request.state in states
    ]
    size, page = int(query["limit"]), int(query["page"])
    return [
        pull(repository, request, listed=True) for request in found[(page - 1) * size : page * size]
    ]


def pull(repository: Repository, request: Request, *, listed: bool = False) -> Any:
    base = "" if listed else repository.sha(f"refs/heads/{request.base}")
    merged = request.state == "merged"
    return {
        "number": request.number,
        "title": request.title,
        "body": request.body,
        "head": {"ref": request.head, "sha": request.sha},
        "base": {"ref": request.base, "sha": base},
        "user": {"login": request.author},
        "state": "open" if request.state == "open" else "closed",
        "merged": merged,
        "mergeable": not listed
        and bool(repository.git("merge-tree", "--write-tree", base, request.sha, check=False)),
        "merge_commit_sha": request.merge_commit if merged else None,
        "created_at": request.created,
        "updated_at": request.created,
        "html_url": f"https://x/pulls/{request.number}",
    }


def merged(repository: Repository, request: Request, body: Any) -> Answer:
    checked = getattr(request, "checked", 0)
    request.checked = checked + 1  # type: ignore[attr-defined]
    if checked < 1:  # it finds out in the background whether it can be merged
        return error(405, "Please try again later")
    message = "\n\n".join(
        filter(None, [body.get("MergeTitleField"), body.get("MergeMessageField")])
    )
    repository.merge(request.number, body["Do"], message, body["head_commit_id"])
    return Answer(200)
