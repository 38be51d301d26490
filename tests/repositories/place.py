"""A repository on the disk, an instance that has it mounted, and sessions at work in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from fusefs.contract.levels import Level
from fusefs.contract.paths import Path as TreePath
from fusefs.contract.sessions import SessionSpec
from fusefs.forge.transport import Transport
from fusefs.forge.urls import parse
from fusefs.session import rights
from fusefs.session.repository import Repository
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.store.mounts import MountSpec
from tests.forge.conftest import GIT_ENVIRONMENT

ALL: dict[TreePath, Level] = {(): Level.COMMIT}
MOUNT: TreePath = (b"proj",)
ENVIRONMENT = {**GIT_ENVIRONMENT, "LC_ALL": "C.UTF-8"}


def git(folder: Path, *words: str | bytes, stdin: bytes = b"") -> bytes:
    """Run git in a folder and return what it printed."""
    done = subprocess.run(
        ["git", *words], cwd=folder, input=stdin, capture_output=True, env=ENVIRONMENT,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def make_source(folder: Path, fill: Callable[[Path], object]) -> Path:
    """Make a bare repository `folder` whose branch ``main`` is what `fill` puts in a folder."""
    checkout = folder.with_name(folder.name + ".first")
    checkout.mkdir(parents=True)
    git(checkout, "init", "-q", "-b", "main")
    fill(checkout)
    git(checkout, "add", "-A", "-f")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "first")
    git(checkout, "clone", "-q", "--bare", str(checkout), str(folder))
    return folder


def commit_to(source: Path, change: Callable[[Path], object], message: str = "theirs") -> None:
    """Commit a change to the branch ``main`` of a bare repository, as somebody else."""
    checkout = source.with_name(source.name + ".first")
    git(checkout, "fetch", "-q", str(source), "main")
    git(checkout, "reset", "-q", "--hard", "FETCH_HEAD")
    change(checkout)
    git(checkout, "add", "-A", "-f")
    git(checkout, "commit", "-q", "--allow-empty", "-m", message)
    git(checkout, "push", "-q", str(source), "HEAD:main")


def add_mount(instance: Instance, source: Path, path: TreePath = MOUNT) -> MountSpec:
    """Mount a repository."""
    spec = MountSpec(instance.mounts.new_id(), str(source), "main", "local")
    clone = Path(instance.mounts.folder(spec))
    clone.parent.mkdir(exist_ok=True)
    Transport(parse(spec.url)).clone(clone)
    for depth in range(1, len(path)):
        Session(instance).mkdir(b"/" + b"/".join(path[:depth]))
    rights.learn(instance, spec)
    instance.mounts.put(path, spec, "-")
    return spec


def add_session(
    instance: Instance, name: str = "s", grants: dict[TreePath, Level] | None = None
) -> Session:
    """Define a session and open it."""
    spec = SessionSpec(name=name, grants=ALL if grants is None else grants)
    return Session(instance, instance.sessions.put(spec, "-"))


def seen(session: Session, top: bytes = b"/proj") -> dict[bytes, object]:
    """Return everything below a directory as a session sees it; directories only by their files."""
    found: dict[bytes, object] = {}
    for path, stat in session.walk(top):
        name = b"/" + b"/".join(path)
        kind = stat.kind.name
        if kind == "FILE":
            found[name[len(top) + 1 :]] = bool(stat.mode & 0o100), session.read(name)
        elif kind == "SYMLINK":
            found[name[len(top) + 1 :]] = session.read_link(name)
    return found


def looked(top: Path) -> dict[bytes, object]:
    """Return everything below a folder, as `seen` does."""
    found: dict[bytes, object] = {}
    start = os.fsencode(top)
    for directory, names, files in os.walk(start):
        if b".git" in names:
            names.remove(b".git")
        for name in (*names, *files):
            path = os.path.join(directory, name)
            short = os.path.relpath(path, start)
            if os.path.islink(path):
                found[short] = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[short] = bool(os.lstat(path).st_mode & 0o100), file.read()
    return found


def tree_of(folder: Path, commit: str) -> str:
    """Return the tree of a commit of a repository."""
    return git(folder, "rev-parse", f"{commit}^{{tree}}").decode().strip()


def repository(session: Session, path: str | bytes = "/proj") -> Repository:
    """Return the session's working copy."""
    return Repository(session, path)
