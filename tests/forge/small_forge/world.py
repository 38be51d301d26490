"""What a small forge holds: repositories, pull requests, releases, users. Git does the git."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Forge",
    "GIT_AUTHOR_EMAIL": "forge@example.org",
    "GIT_COMMITTER_NAME": "Forge",
    "GIT_COMMITTER_EMAIL": "forge@example.org",
    "LC_ALL": "C",
}

UPDATE_HOOK = """#!/bin/sh
branch=${1#refs/heads/}
if grep -qxF "$branch" "$GIT_DIR/protected" 2>/dev/null; then
    echo "error: GH006: Protected branch update failed for $1." >&2
    echo "error: Changes must be made through a pull request." >&2
    exit 1
fi
"""


class No(Exception):
    """What the forge refuses; each face says it in its own words.

    Attributes:
        why: ``missing``, ``exists``, ``invalid-head``, ``no-commits``, ``conflict``,
            ``protected``, ``moved``, ``closed``, ``method``.
        detail: the name that it is about.
    """

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why, detail)
        self.why = why
        self.detail = detail


@dataclass
class Request:
    """A pull or merge request."""

    number: int
    head: str
    base: str
    title: str
    body: str
    author: str
    state: str = "open"
    sha: str = ""
    merge_commit: str = ""
    created: str = "2026-01-02T03:04:05Z"
    rebasing: int = 0
    """GitLab: how many more times it says that the rebase is in progress."""
    rebase_error: str = ""


@dataclass
class Repository:
    """A bare repository with what the forge keeps beside it."""

    path: Path
    name: str
    private: bool = True
    archived: bool = False
    rights: dict[str, str] = field(default_factory=dict)
    """Logins to ``read`` or ``write``."""
    merge_method: str = "merge"
    """GitLab's project setting."""
    allowed: tuple[str, ...] = ("merge", "squash", "rebase")
    requests: list[Request] = field(default_factory=list)
    releases: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def make(cls, path: Path, name: str) -> Repository:
        """Take a bare repository into the forge."""
        hook = path / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(UPDATE_HOOK)
        hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
        repository = cls(path, name)
        repository.git("config", "http.receivepack", "true")
        return repository

    def git(self, *arguments: str, check: bool = True, where: Path | None = None) -> str:
        """Run git; return what it printed. Raises: CalledProcessError."""
        done = subprocess.run(
            ["git", "-C", str(where or self.path), *arguments],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=check,
            timeout=60,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def protect(self, branch: str) -> None:
        """Let nobody push to a branch or merge into it."""
        (self.path / "protected").write_text(branch + "\n")

    def is_protected(self, branch: str) -> bool:
        file = self.path / "protected"
        return file.exists() and branch in file.read_text().split()

    def sha(self, ref: str) -> str:
        """Return the commit of a full ref or an id; empty when there is none."""
        return self.git("rev-parse", "-q", "--verify", f"{ref}^{{commit}}", check=False)

    def object_of(self, ref: str) -> str:
        """Return the object that a ref names: of an annotated tag, the tag."""
        return self.git("rev-parse", "-q", "--verify", ref, check=False)

    def create_ref(self, ref: str, sha: str) -> None:
        if self.object_of(ref):
            raise No("exists", ref)
        if not self.object_of(f"{sha}^{{object}}"):
            raise No("missing", sha)
        self.git("update-ref", ref, sha, "0" * 40)

    def tag_object(self, name: str, sha: str, message: str) -> str:
        text = f"object {sha}\ntype commit\ntag {name}\ntagger F <f@example.org> 0 +0000\n\n"
        done = subprocess.run(
            ["git", "-C", str(self.path), "mktag"],
            input=text + message + "\n",
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def request(self, number: int) -> Request:
        for request in self.requests:
            if request.number == number:
                if request.state == "open":
                    request.sha = self.sha(f"refs/heads/{request.head}") or request.sha
                return request
        raise No("missing", str(number))

    def open_request(self, head: str, base: str, title: str, body: str, author: str) -> Request:
        heads = {name: self.sha(f"refs/heads/{name}") for name in (head, base)}
        if not heads[base]:
            raise No("invalid-base", base)
        if not heads[head]:
            raise No("invalid-head", head)
        for request in self.requests:
            if (request.head, request.base, request.state) == (head, base, "open"):
                raise No("exists", str(request.number))
        if not self.git("rev-list", "-n1", f"{heads[base]}..{heads[head]}"):
            raise No("no-commits", f"{base} and {head}")
        number = len(self.requests) + 1
        self.requests.append(Request(number, head, base, title, body, author, sha=heads[head]))
        return self.requests[-1]

    def merge(self, number: int, method: str, message: str, sha: str) -> str:
        """Merge a request; return the new tip of its base."""
        request = self.request(number)
        if request.state != "open":
            raise No("closed", str(number))
        if method not in self.allowed:
            raise No("method", method)
        if sha and sha != request.sha:
            raise No("moved", request.head)
        if self.is_protected(request.base):
            raise No("protected", request.base)
        base = self.sha(f"refs/heads/{request.base}")
        tree = self.git("merge-tree", "--write-tree", base, request.sha, check=False)
        if not tree:
            raise No("conflict", request.head)
        if method == "rebase":
            new = self.rebased(request.sha, base)
        else:
            parents = ["-p", base] + (["-p", request.sha] if method == "merge" else [])
            new = self.git("commit-tree", tree, *parents, "-m", message or request.title)
        self.git("update-ref", f"refs/heads/{request.base}", new, base)
        request.state, request.merge_commit = "merged", new
        return new

    def rebased(self, head: str, base: str) -> str:
        """Return `head` made again on `base`."""
        work = Path(tempfile.mkdtemp(dir=self.path.parent))
        try:
            self.git("worktree", "add", "-q", "--detach", str(work), head)
            try:
                self.git("rebase", "-q", base, where=work)
            except subprocess.CalledProcessError:
                raise No("conflict", head) from None
            return self.git("rev-parse", "HEAD", where=work)
        finally:
            self.git("worktree", "remove", "--force", str(work), check=False)
            shutil.rmtree(work, ignore_errors=True)
