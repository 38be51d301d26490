"""A bare repository with some history, the instance's real store, and forges on them and beside."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusefs.forge.forge import Forge
from fusefs.forge.ledger import Ledger
from fusefs.forge.local import LocalDriver
from fusefs.forge.local_git import Author
from fusefs.forge.records import Records
from fusefs.store.instance import Instance

from .remote_site import KINDS, TOKEN, Site
from .small_forge import gitea, github, gitlab, openapi
from .small_forge.server import Answer, Call, SmallForge, running
from .small_forge.world import Repository

ALICE = Author("Alice", "alice@example.org")

GIT_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Bob",
    "GIT_AUTHOR_EMAIL": "bob@example.org",
    "GIT_COMMITTER_NAME": "Bob",
    "GIT_COMMITTER_EMAIL": "bob@example.org",
}


def git(repository: Path, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """Run git in `repository`; return what it printed, without the last line's end."""
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=GIT_ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert not check or done.returncode == 0, done
    return done.stdout.rstrip("\n")


def commit(
    repository: Path,
    branch: str,
    files: dict[str, str],
    message: str = "change",
    *,
    start: str = "",
) -> str:
    """Put a commit with `files` changed on a branch of a bare repository; return its id."""
    tip = git(repository, "rev-parse", "-q", "--verify", f"refs/heads/{branch}", check=False)
    parent = tip or (git(repository, "rev-parse", start) if start else "")
    lines = [f"commit refs/heads/{branch}", "committer Bob <bob@example.org> 1700000000 +0000"]
    lines += [f"data {len(message.encode())}", message]
    if parent:
        lines.append(f"from {parent}")
    for name, text in files.items():
        lines += [f"M 100644 inline {name}", f"data {len(text.encode())}", text]
    git(repository, "fast-import", "--quiet", "--force", stdin="\n".join(lines) + "\n")
    return git(repository, "rev-parse", f"refs/heads/{branch}")


def make_bare(path: Path) -> Path:
    """Make a bare repository whose `main` has one commit, and `topic` one on top of it."""
    subprocess.run(
        ["git", "init", "-q", "--bare", "-b", "main", "--template=", str(path)],
        check=True,
        env=GIT_ENVIRONMENT,
    )
    commit(path, "main", {"a.txt": "a\n", "b.txt": "b\n"}, "first")
    commit(path, "topic", {"topic.txt": "topic\n"}, "topic", start="main")
    return path


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare(tmp_path_factory.mktemp("pattern") / "bare.git")


@pytest.fixture
def bare(tmp_path: Path, pattern: Path) -> Path:
    """A repository of its own: see `make_bare`."""
    return Path(shutil.copytree(pattern, tmp_path / "bare.git"))


class InstanceRecords:
    """A real instance as the forge sees it."""

    def __init__(self, instance: Instance) -> None:
        self.read = instance.kv.read
        self.write = instance.kv.write
        self.commit = instance.commit


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    """The ordered store of a real instance."""
    with Instance.init(tmp_path / "instance") as instance:
        yield InstanceRecords(instance)


@pytest.fixture
def ledger(records: Records, tmp_path: Path) -> Ledger:
    return Ledger(records, tmp_path / "forge.lock")


Keys = Callable[[], str]


@pytest.fixture
def new_key() -> Keys:
    """A function that gives a fresh idempotency key each time."""
    count = iter(range(1, 10_000))
    return lambda: f"key-{next(count)}"


@pytest.fixture
def local(bare: Path, records: Records, ledger: Ledger) -> Forge:
    return Forge(LocalDriver(bare, records, ALICE), ledger)


class Memory:
    """Records without a disk, where what is tested is not the store."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._lock = threading.RLock()

    @contextmanager
    def write(self) -> Iterator[Memory]:
        with self._lock:
            yield self

    read = write

    def commit(self) -> None:
        """It is as durable as it gets."""

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield from sorted((k, v) for k, v in self._values.items() if start <= k < end)

    def put(self, key: bytes, value: bytes) -> None:
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        self._values.pop(key, None)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def site(bare: Path, memory: Memory, tmp_path: Path) -> Iterator[Site]:
    """The small forge; at the end, every call to GitHub's face must have been as described."""
    repository = Repository.make(bare, "owner/project")
    repository.rights = {"alice": "write", "reader": "read"}
    small = SmallForge(
        {"owner/project": repository},
        {TOKEN: "alice", "tok_reader": "reader", "tok_nobody": "nobody"},
        {github.ROOT: github.face, gitlab.ROOT: gitlab.face, gitea.ROOT: gitea.face},
    )
    wrong: list[str] = []

    def hold_against_the_description(root: str, call: Call, answer: Answer) -> None:
        if root == github.ROOT:
            wrong.extend(openapi.violations(call, answer))

    small.watchers.append(hold_against_the_description)
    with running(small):
        yield Site(small, Ledger(memory, tmp_path / "forge.lock"))
    assert small.crashes == []
    assert wrong == []


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(site: Site, kind: str) -> Forge:
    return site.forge(kind)
