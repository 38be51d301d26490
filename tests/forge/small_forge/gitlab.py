"""GitLab's face of the small forge, by https://docs.gitlab.com/api/ (projects, branches, tags,
merge_requests, releases) and what GitLab answers in practice."""

from __future__ import annotations

import re
import subprocess
from typing import Any
from urllib.parse import unquote

from .server import Answer, Call, SmallForge
from .world import No, Repository, Request

ROOT = "/api/v4"


def error(status: int, message: Any) -> Answer:
    return Answer(status, {"message": message})


def face(forge: SmallForge, call: Call) -> Answer:
    match = re.fullmatch(r"/projects/([^/]+)(/.*)?", call.path)
    name, rest = (unquote(match[1]), match[2] or "") if match else ("", "")
    right = forge.right(name, call.login)
    if right == "none":
        return error(404, "404 Project Not Found")
    if call.method != "GET" and right != "write":
        # merging is the one thing that GitLab answers 401 for
        return (
            error(401, "401 Unauthorized")
            if rest.endswith("/merge")
            else error(403, "403 Forbidden")
        )
    repository = forge.repositories[name]
    try:
        return route(repository, rest, call, right)
    except No as no:
        return refused(no)


def refused(no: No) -> Answer:
    return {
        "missing": error(404, "404 Not found"),
        "exists": error(
            409, [f"Another open merge request already exists for this source branch: !{no.detail}"]
        ),
        "invalid-head": error(422, {"source_branch": ["does not exist"]}),
        "invalid-base": error(422, {"target_branch": ["does not exist"]}),
        "moved": error(409, "SHA does not match HEAD of source branch"),
        "conflict": error(422, "Branch cannot be merged"),
        "protected": error(401, "401 Unauthorized"),
        "closed": error(405, "405 Method Not Allowed"),
    }[no.why]


def route(repository: Repository, rest: str, call: Call, right: str) -> Answer:
    method, body = call.method, call.body or {}
    if rest == "":
        return Answer(200, about(repository, call.login, right))
    kind, _, name = rest.removeprefix("/repository/").partition("/")
    if kind == "branches":
        return branches(repository, method, unquote(name), body)
    if kind == "tags":
        return tags(repository, method, unquote(name), body)
    if rest.startswith("/releases"):
        return releases(repository, method, unquote(rest.removeprefix("/releases/")), body)
    if rest == "/merge_requests":
        if method == "POST":
            return Answer(201, merge_request(repository, created(repository, body, call)))
        return Answer(200, listed(repository, call.query))
    match = re.fullmatch(r"/merge_requests/(\d+)(/\w+)?", rest)
    if match is None:
        return error(404, "404 Not Found")
    request = repository.request(int(match[1]))
    if match[2] == "/merge":
        return merged(repository, request, body)
    if match[2] == "/rebase":
        return rebased(repository, request)
    if method == "PUT":
        request.title = body.get("title", request.title)
        request.body = body.get("description", request.body)
        if body.get("state_event") == "close":
            request.state = "closed"
    return Answer(200, merge_request(repository, request))


def about(repository: Repository, login: str | None, right: str) -> Any:
    level = {"read": 20, "write": 30}[right]
    answer: dict[str, Any] = {
        "id": 1,
        "path_with_namespace": repository.name,
        "visibility": "private" if repository.private else "public",
        "archived": repository.archived,
        "repository_access_level": "enabled",
        "merge_method": repository.merge_method,
        "squash_option": "default_off" if "squash" in repository.allowed else "never",
    }
    if login is not None:
        access = {"access_level": 30 if repository.archived else level, "notification_level": 3}
        answer["permissions"] = {"project_access": access, "group_access": None}
    return answer


def branches(repository: Repository, method: str, name: str, body: Any) -> Answer:
    if method == "POST":
        name = body["branch"]
        try:
            repository.create_ref(f"refs/heads/{name}", body["ref"])
        except No as no:
            text = {"exists": "Branch already exists",
                    "missing": f"Invalid reference name: {body['ref']}"}[no.why]  # fmt: skip
            return error(400, text)
    sha = repository.sha(f"refs/heads/{name}")
    if not sha:
        return error(404, "404 Branch Not Found")
    return Answer(201 if method == "POST" else 200, {"name": name, "commit": {"id": sha}})


def tags(repository: Repository, method: str, name: str, body: Any) -> Answer:
    if method == "POST":
        name = body["tag_name"]
        if repository.object_of(f"refs/tags/{name}"):
            return error(400, f"Tag {name} already exists")
        if not repository.sha(body["ref"]):
            return error(400, f"Target {body['ref']} is invalid")
        made = repository.tag_object(name, body["ref"], body["message"])
        repository.create_ref(f"refs/tags/{name}", made)
    made = repository.object_of(f"refs/tags/{name}")
    if not made:
        return error(404, "404 Tag Not Found")
    annotated = repository.git("cat-file", "-t", made) == "tag"
    text = repository.git("cat-file", "tag", made).partition("\n\n")[2] if annotated else None
    tag = {"name": name, "message": text, "target": made, "commit": {"id": repository.sha(made)}}
    return Answer(201 if method == "POST" else 200, tag)


def releases(repository: Repository, method: str, tag: str, body: Any) -> Answer:
    if method == "POST":
        tag = body["tag_name"]
        if any(release["tag_name"] == tag for release in repository.releases):
            return error(409, "Release already exists")
        made = {"created_at": "2026-01-02T03:04:05.000Z", "_links": {"self": "https://x/"}}
        repository.releases.append(made | body)
        return Answer(201, repository.releases[-1])
    for release in repository.releases:
        if release["tag_name"] == tag:
            return Answer(200, release)
    return error(404, "404 Not Found")


def created(repository: Repository, body: Any, call: Call) -> Request:
    try:
        return repository.open_request(
            body["source_branch"],
            body["target_branch"],
            body["title"],
            body["description"],
            str(call.login),
        )
    except No as no:
        if no.why != "no-commits":  # GitLab opens these too
            raise
        head, base = body["source_branch"], body["target_branch"]
        repository.requests.append(
            Request(len(repository.requests) + 1, head, base, body["title"], "", str(call.login))
        )
        return repository.requests[-1]


def listed(repository: Repository, query: dict[str, str]) -> Any:
    wanted = {"opened": "open"}.get(query["state"], query["state"])
    found = [
        repository.request(request.number)
        for request in reversed(repository.requests)
        if wanted in {"all", request.state}
        and query.get("source_branch", "") in {"", request.head}
        and query.get("target_branch", "") in {"", request.base}
    ]
    size, page = int(query["per_page"]), int(query["page"])
    return [
        merge_request(repository, r, listed=True) for r in found[(page - 1) * size : page * size]
    ]


def merge_request(repository: Repository, request: Request, *, listed: bool = False) -> Any:
    status = "mergeable"
    if request.state == "open" and not listed:
        base = repository.sha(f"refs/heads/{request.base}")
        if not repository.git("merge-tree", "--write-tree", base, request.sha, check=False):
            status = "conflict"
    if request.rebasing:
        request.rebasing -= 1
    checked = getattr(request, "checked", 0)
    request.checked = checked + 1  # type: ignore[attr-defined]
    return {
        "iid": request.number,
        "title": request.title,
        "description": request.body or None,
        "source_branch": request.head,
        "target_branch": request.base,
        "author": {"username": request.author},
        "state": "opened" if request.state == "open" else request.state,
        "created_at": request.created,
        "updated_at": request.created,
        "sha": request.sha,
        "merge_commit_sha": request.merge_commit or None,
        "squash_commit_sha": None,
        "web_url": f"https://x/-/merge_requests/{request.number}",
        # GitLab finds out in the background, after it was first asked.
        "detailed_merge_status": "checking" if checked < 2 else status,
        "rebase_in_progress": request.rebasing > 0,
        "merge_error": request.rebase_error or None,
    }


def merged(repository: Repository, request: Request, body: Any) -> Answer:
    message = body.get("squash_commit_message") or body.get("merge_commit_message") or ""
    method = "squash" if body["squash"] else "merge"
    if repository.merge_method == "ff" and method == "merge":
        base = repository.sha(f"refs/heads/{request.base}")
        if repository.git("merge-base", base, request.sha) != base:
            return error(405, "405 Method Not Allowed")
        if body["sha"] != request.sha:
            raise No("moved", request.head)
        repository.git("update-ref", f"refs/heads/{request.base}", request.sha, base)
        request.state = "merged"
    else:
        repository.merge(request.number, method, message, body["sha"])
    return Answer(200, merge_request(repository, request))


def rebased(repository: Repository, request: Request) -> Answer:
    base = repository.sha(f"refs/heads/{request.base}")
    request.rebasing = 2
    try:
        new = repository.rebased(request.sha, base)
        repository.git("update-ref", f"refs/heads/{request.head}", new, request.sha)
    except (No, subprocess.CalledProcessError):
        request.rebase_error = "Rebase failed: Rebase locally, resolve all conflicts, then push."
    return Answer(202, {"rebase_in_progress": True})
