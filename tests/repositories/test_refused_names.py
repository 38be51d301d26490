"""Names that git refuses can neither be made in a repository nor committed: git itself is asked."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ObjectType

from fusefs.contract.errors import NotPermitted
from fusefs.session.committing import commit
from fusefs.session.session import Session
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from fusefs.tree.repository_names import is_refused
from tests.conftest import Cli, Mount
from tests.daemon.calls import EXCHANGE, renameat2
from tests.repositories.place import add_mount, add_session, git, make_source, repository
from tests.repositories.remote import Remote

DOT_GIT = [
    ".git", ".GIT", ".giT", ".git ", ".git.", ".git . .", ".git::$INDEX_ALLOCATION", ".git:x",
    "git~1", "GIT~1", "git~1. ", "git~1:a", "a\\.git", ".git\\a", "a\\b\\GIT~1 ", "\\.git",
    ".g\u200cit", "\u200c.git", ".git\ufeff", ".\u202eGi\u206ft", "\ufeff.\u200fgit", ".git\ufffe",
]  # fmt: skip
DOT_GITMODULES = [
    ".gitmodules", ".GitModules", ".gitmodules ", ".gitmodules. .", ".gitmodules:x", "gitmod~1",
    "GITMOD~4 ", "gi7eba~1", "gi7eb~10", "~1000000", ".git\u200cmodules", "x\\.gitmodules",
]  # fmt: skip
HARMLESS = [
    ".gitignore", ".gitattributes", ".github", "git", "git~2", "git~10", ".git~", ".gi", ".gita",
    "..git", ".git_", ".g\u200cix", ".g\u0131t", "g\u200cit~1", "gitmod~5", "gi7eba~0",
    ".git\ufffd", "gi7d29~1", "a.git", " .git", ".g it", "gi7eba~1x", ".gitmodule\u017f",
]  # fmt: skip


def made_up(count: int) -> set[bytes]:
    """Return names that nearly are such names, the same ones each time."""
    chance = random.Random(7)
    pieces = [b".git", b".GIT", b"git", b"~1", b"~", b"1", b"2", b"0", b"modules", b"gitmod", b" ",
              b".", b":", b"\\", b"a", "\u200c".encode(), "\ufeff".encode(), "\ufffe".encode(),
              b"\xff", b"\xe2\x80", b"gi7eba", b"gi7e", b"\xf0\x9f\x98\x80"]  # fmt: skip
    return {
        b"".join(chance.choices(pieces, k=chance.randint(1, 5)))
        for _ in range(count)
    } - {b".", b".."}


def test_git_says_the_same(tmp_path: Path) -> None:
    repository = pygit2.init_repository(str(tmp_path), bare=True)
    blob = repository.create_blob(b"x").raw
    names = {name.encode() for name in (*DOT_GIT, *DOT_GITMODULES, *HARMLESS)}
    trees = {}
    for name in names | made_up(1500):
        for mode in (b"100644", b"120000"):
            tree = b"%s %s\0%s" % (mode, name, blob)
            trees[str(repository.odb.write(ObjectType.TREE, tree))] = name, mode == b"120000"
    git(tmp_path, "config", "fsck.gitmodulesSymlink", "warn")  # to be told of all
    git(tmp_path, "config", "fsck.gitmodulesBlob", "warn")
    said = subprocess.run(
        ["git", "fsck", "--no-dangling"], cwd=tmp_path, capture_output=True, check=False
    )
    told = said.stderr.decode(errors="replace")
    refused = set(re.findall(r"tree ([0-9a-f]{40}): (?:hasDotgit|gitmodulesSymlink)", told))
    for oid, (name, link) in trees.items():
        assert is_refused(name, link=link) == (oid in refused), (name, link)
    assert len(refused) > 100


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    def fill(top: Path) -> None:
        (top / "file").write_bytes(b"file\n")
        (top / "link").symlink_to("file")
        (top / "folder").mkdir()
        (top / "folder/in").write_bytes(b"in\n")

    source = make_source(tmp_path / "source", fill)
    with Instance.init(tmp_path / "instance") as instance:
        add_mount(instance, source)
        yield add_session(instance)


def test_nothing_can_be_called_so(session: Session) -> None:
    for name in DOT_GIT:
        path, below = f"/proj/{name}", f"/proj/folder/{name}"
        for attempt in (
            partial(session.write, path, b"x"), partial(session.write, f"{path}/config", b"x"),
            partial(session.mkdir, below), partial(session.symlink, path, "file"),
            partial(session.mv, "/proj/file", path), partial(session.mv, "/proj/folder", path),
            partial(session.mv, "/proj/link", below),
        ):  # fmt: skip
            with pytest.raises(NotPermitted):
                attempt()
    assert repository(session).changes() == []


def test_no_link_can_be_called_so(session: Session) -> None:
    for name in DOT_GITMODULES:
        path = f"/proj/{name}"
        with pytest.raises(NotPermitted):
            session.symlink(path, "file")
        with pytest.raises(NotPermitted):
            session.mv("/proj/link", path)
        session.write(path, b"x")  # a file can, and a directory
        session.mv(path, f"/proj/folder/{name}")
        session.mkdir(path)


def test_anything_else_can_be_called_so(session: Session) -> None:
    for name in HARMLESS:
        session.write(f"/proj/{name}", b"x")
        session.symlink(f"/proj/folder/{name}", "in")
    assert len(commit(repository(session), "x").paths) == 2 * len(HARMLESS)


def test_calls_on_a_mount_are_refused(cli: Cli, mount: Mount, tmp_path: Path) -> None:
    remote = Remote(tmp_path / "forge", {"a": "a\n"})
    cli("repo", "add", remote.url, "/p")
    cli("session", "create", "s", "--grant", "/=commit")
    top = mount("s") / "p"
    (top / "link").symlink_to("a")
    (top / ".gitmodules").write_text("x")
    for name in (".git", ".g\u200cit", "git~1", ".GIT ", ".git::$INDEX_ALLOCATION"):
        for call in (
            lambda at: os.close(os.open(at, os.O_CREAT | os.O_WRONLY)), os.mkdir, os.mkfifo,
            lambda at: os.symlink("a", at), lambda at: os.rename(top / "a", at),
        ):  # fmt: skip
            with pytest.raises(OSError) as caught:
                call(top / name)
            assert caught.value.errno == errno.EPERM, name
    for one, other in ((".gitmodules", "link"), ("link", ".gitmodules")):
        with pytest.raises(OSError) as caught:
            renameat2(top / one, top / other, EXCHANGE)
        assert caught.value.errno == errno.EPERM
    with pytest.raises(PermissionError):
        os.rename(top / "link", top / ".gitmodules")
    assert sorted(os.listdir(top)) == [".gitmodules", "a", "link"]


def test_what_others_committed_so_is_not_shown_and_stays(session: Session) -> None:
    """As git does not check it out."""
    work = repository(session)
    source = Path(work.spec.url)
    names = [b".g\xe2\x80\x8cit", b"git~1", b"a\\.git"]
    blob = git(source, "hash-object", "-w", "--stdin", stdin=b"evil\n").decode().strip()
    lines = git(source, "ls-tree", "-z", "main").split(b"\0")
    lines[-1:] = [b"100644 blob %s\t%s" % (blob.encode(), name) for name in names]
    lines.append(b"120000 blob %s\t.gitmodules" % blob.encode())
    tree = git(source, "mktree", "-z", stdin=b"\0".join(lines) + b"\0").decode().strip()
    made = git(source, "commit-tree", "-p", "main", "-m", "evil", tree).decode().strip()
    git(source, "update-ref", "refs/heads/main", made)
    assert sync(work).conflicts == ()
    assert {listed.name for listed in session.list("/proj")} == {"file", "link", "folder"}
    session.write("/proj/file", b"changed\n")
    commit(repository(session), "mine")
    kept = git(source, "ls-tree", "-z", "--name-only", "main").split(b"\0")
    assert {*names, b".gitmodules"} <= set(kept)
