"""Two repositories that differ only in what a session cannot see are one repository to it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pygit2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygit2.enums import ObjectType

from fusefs.contract.levels import Level
from fusefs.contract.view import Rules, View
from fusefs.tree.repository_history import VisibleHistory
from fusefs.tree.repository_objects import RepositoryObjects, TreeEntry
from fusefs.tree.repository_trees import edit_tree
from tests.conftest import Quick, Result
from tests.repositories.remote import Remote, git

GRANTS = [
    ["--grant", "/p=commit", "--grant", "/p/hidden=none", "--grant", "/p/d/hidden=none"],
    ["--grant", "/p/seen=commit", "--grant", "/p/d=commit", "--grant", "/p/d/hidden=none",
     "--grant", "/p/d/hidden/open=commit"],
]  # fmt: skip
VISIBLE = {"seen/a": "a\n", "d/b": "b\n", "d/hidden/open/c": "c\n"}


@dataclass
class Twin:
    """An instance with one of two repositories, and what its session was told."""

    cli: Quick
    remote: Remote
    told: list[Result]

    def __call__(self, *arguments: str, stdin: bytes = b"") -> None:
        self.told.append(self.cli(*arguments, "--session", "s", stdin=stdin, expect=None))


@pytest.fixture
def frozen_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits by sessions are all made at one time."""
    real = pygit2.Signature

    def signature(name: str, email: str) -> pygit2.Signature:
        return real(name, email, 1_800_000_000, 0)

    monkeypatch.setattr(pygit2, "Signature", signature)


def twin(folder: Path, grants: list[str], hidden: dict[str, str]) -> Twin:
    remote = Remote(folder, {**VISIBLE, **hidden})
    cli = Quick(folder / "instance")
    cli("init")
    cli("repo", "add", remote.url, "/p")
    cli("session", "create", "s", "--user", "S <s@x>", *grants)
    return Twin(cli, remote, [])


def ask(one: Twin) -> None:
    """Everything that a session can ask about a repository."""
    for path in ("/p", "/p/seen", "/p/d", "/p/d/hidden", "/p/d/hidden/open", "/p/hidden"):
        for words in (["status"], ["diff"], ["repo", "log"], ["repo", "show"],
                      ["repo", "worktree"]):  # fmt: skip
            one(*words, path)
            one(*words, path, "--json")
        one("ls", path)


def commit_hidden(one: Twin, number: int) -> None:
    one.remote.pull()
    one.remote.commit(f"hidden {number}", {"hidden/x": f"{number}\n", "d/hidden/y": f"{number}\n"})


def commit_seen(one: Twin, when: int) -> None:
    """Somebody else's visible commit, at one time in both."""
    one.remote.pull()
    one.remote.clock = when
    one.remote.commit("theirs", {"d/b": f"{when}\n"})


@pytest.mark.parametrize("grants", GRANTS, ids=["most", "little"])
def test_hidden_files_and_their_history_change_nothing(grants, tmp_path, frozen_commits):
    first = twin(tmp_path / "1", grants, {})
    second = twin(tmp_path / "2", grants, {"hidden/secret": "x\n", "d/hidden/z": "z\n"})
    twins = (first, second)
    commit_hidden(second, 1)
    second.cli("repo", "fetch")
    for one in twins:
        ask(one)
        one("write", "/p/seen/a", stdin=b"mine\n")
        one("write", "/p/d/hidden/open/deep/new", stdin=b"new\n")
        one("write", "/p/d/new/new", stdin=b"new\n")
        ask(one)
    commit_hidden(second, 2)
    for one in twins:
        one("commit", "-m", "mine", "/p/seen", "--key", "k")
        one("commit", "-m", "mine", "/p/seen", "--key", "k")
        one("commit", "-m", "deep", "/p/d/hidden/open", "--json")
        ask(one)
    commit_hidden(second, 3)
    for one in twins:
        one("sync", "/p/seen")
        one("sync", "/p/seen", "--json")
        commit_seen(one, 10_000)
        one("write", "/p/d/b", stdin=b"mine\n")
        one("commit", "-m", "too late", "/p/d/b")
    commit_hidden(second, 4)
    for one in twins:
        one("sync", "/p/seen", "--json")
        one("cat", "/p/d/b")
        one("write", "/p/d/b", stdin=b"both\n")
        one("commit", "-m", "both", "/p/d")
        one("repo", "restore", "/p/seen")
        ask(one)
    assert [(r.status, r.out, r.err) for r in first.told] == [
        (r.status, r.out, r.err) for r in second.told
    ]
    assert any("too late" not in r.out and "fusefs sync" in r.err for r in first.told)
    assert [r.out for r in first.told if "Author" in r.out and "theirs" in r.out]
    assert git(second.remote.url, "show", "main:hidden/x") == "4\n"


RULES = View(
    Rules(grants={(): Level.RO, (b"hidden",): Level.NONE, (b"d", b"hidden"): Level.NONE})
)
SEEN = st.dictionaries(
    st.sampled_from([b"a", b"d/b", b"d/e/c"]), st.sampled_from([b"1", b"2", None]), max_size=2
)
HIDDEN = st.dictionaries(
    st.sampled_from([b"hidden/x", b"d/hidden/y"]), st.sampled_from([b"1", b"2", None]), max_size=2
)


class Step(NamedTuple):
    """A commit of a history: which earlier ones it is built on, and what it changes.

    Attributes:
        between: in the second history, hidden changes committed just before it, on each parent.
    """

    parents: list[int]
    seen: dict[bytes, bytes | None]
    hidden: dict[bytes, bytes | None]
    between: list[dict[bytes, bytes | None]]


HISTORIES = st.lists(
    st.builds(
        Step,
        st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True),
        SEEN,
        HIDDEN,
        st.lists(HIDDEN, max_size=2),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=20, deadline=None)
@given(history=HISTORIES)
def test_a_log_tells_nothing_of_hidden_commits(history):
    """Histories with branches and merges, with hidden commits in between or without."""
    folder = tempfile.mkdtemp(prefix="fusefs-test-")
    try:
        repository = pygit2.init_repository(folder, bare=True)
        objects = RepositoryObjects(folder)
        logs = []
        for hides in (False, True):
            tip = Growth(repository, objects, hides=hides).grow(history)
            found = VisibleHistory(objects, RULES.root)
            logs.append(list(found.commits(tip)))
        assert logs[0] == logs[1]
        assert len({commit.message for commit in logs[0]}) == len(logs[0])
    finally:
        shutil.rmtree(folder)


class Growth:
    """Writes a history, with or without what is hidden in it."""

    def __init__(
        self, repository: pygit2.Repository, objects: RepositoryObjects, *, hides: bool
    ) -> None:
        self.repository, self.objects, self.hides = repository, objects, hides
        self.made: list[tuple[bytes, dict[bytes, bytes]]] = []

    def grow(self, history: list[Step]) -> bytes:
        for number, step in enumerate(history):
            above = [self.made[-back] for back in step.parents if back <= len(self.made)]
            if self.hides:
                above = [self.hidden(parent, step.between, number) for parent in above]
            files = {name: data for _, tree in reversed(above) for name, data in tree.items()}
            changes = {**step.seen, **(step.hidden if self.hides else {})}
            time = 1000 * (number + 1)
            self.made.append(self.commit([oid for oid, _ in above], files, changes, time, number))
        return self.made[-1][0]

    def hidden(
        self, parent: tuple[bytes, dict[bytes, bytes]],
        between: list[dict[bytes, bytes | None]], number: int,
    ) -> tuple[bytes, dict[bytes, bytes]]:  # fmt: skip
        for changes in between:
            parent = self.commit([parent[0]], parent[1], changes, 1000 * number + 7, -1)
        return parent

    def commit(
        self, parents: list[bytes], files: dict[bytes, bytes],
        changes: dict[bytes, bytes | None], time: int, number: int,
    ) -> tuple[bytes, dict[bytes, bytes]]:  # fmt: skip
        merged = {**files, **changes}
        after = {name: data for name, data in merged.items() if data is not None}
        edits = {
            tuple(name.split(b"/")): TreeEntry(0o100644, self.objects.write(data))
            for name, data in after.items()
        }
        empty = self.repository.odb.write(ObjectType.TREE, b"").raw
        tree = edit_tree(self.objects, empty, edits)
        who = pygit2.Signature("A", "a@x", time, 0)
        made = self.repository.create_commit(
            None, who, who, f"commit {number}", pygit2.Oid(raw=tree),
            [pygit2.Oid(raw=parent) for parent in parents],
        )  # fmt: skip
        return made.raw, after
