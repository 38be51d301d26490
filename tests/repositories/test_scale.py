"""Repositories that are large or deep: what is done in them costs what is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ObjectType, Option

from fusefs.session.committing import commit
from fusefs.session.session import Session
from fusefs.session.status import status
from fusefs.session.syncing import sync
from fusefs.store import keys, nodes, orphans
from fusefs.store.instance import Instance
from fusefs.store.kv import after_prefix
from fusefs.tree.instance_care import check
from fusefs.tree.repository_objects import RepositoryObjects
from tests.repositories.place import add_mount, add_session, git, repository

_MANY = 3_000
_DEEP = b"d/" * 1_100
"""Deeper than Python recurses."""


def make(source: Path, files: dict[bytes, bytes], parent: bytes = b"") -> None:
    """Commit files to the branch ``main`` of a bare repository."""
    if not source.exists():
        source.mkdir()
        git(source, "init", "-q", "--bare", "-b", "main")
    lines = [b"commit refs/heads/main\ncommitter a <a@localhost> 1700000000 +0000\ndata 1\nx\n"]
    lines += [b"from " + parent + b"\n"] if parent else []
    lines += [b"M 644 inline %s\ndata %d\n%s\n" % (n, len(d), d) for n, d in files.items()]
    git(source, "fast-import", "--quiet", "--force", stdin=b"".join(lines))


def stored(instance: Instance, prefix: bytes = keys.NODES) -> int:
    """Count what is in the store."""
    with instance.kv.read() as txn:
        return sum(1 for _ in txn.range(prefix, after_prefix(prefix)))


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[dict[bytes, bytes]], tuple[Instance, Session, Path]]:
    def open_(files: dict[bytes, bytes]) -> tuple[Instance, Session, Path]:
        source = tmp_path / "source"
        make(source, files)
        instance = Instance.init(tmp_path / "instance")
        add_mount(instance, source)
        return instance, add_session(instance), source

    return open_


Opened = Callable[[dict[bytes, bytes]], tuple[Instance, Session, Path]]


def test_a_change_stores_what_is_changed_and_the_directories_above(opened: Opened) -> None:
    names = [b"flat/f%05d" % number for number in range(_MANY)]
    instance, session, _ = opened(dict.fromkeys(names, b"x\n"))
    with instance:
        session.listing("/proj/flat")
        before = stored(instance)
        session.write("/proj/flat/f00007", b"new\n")
        assert stored(instance) - before == 2  # the directory and the file
        session.rm("/proj/flat/f00008")
        session.write("/proj/flat/f00008x", b"new\n")
        assert stored(instance) - before == 4
        listed = [entry.name for entry in session.list("/proj/flat")]
        expected = {name[5:].decode() for name in names} - {"f00008"} | {"f00008x"}
        assert listed == sorted(expected)
        assert [str(line) for line in status(repository(session))] == [
            " M flat/f00007", " D flat/f00008", "?? flat/f00008x",
        ]  # fmt: skip
        commit(repository(session), "three")
        assert repository(session).changes() == []
        assert check(instance).problems == []


def test_a_directory_that_is_emptied_and_removed_leaves_nothing(opened: Opened) -> None:
    instance, session, _ = opened({b"flat/f%d" % number: b"x\n" for number in range(500)})
    with instance:
        session.listing("/proj")
        before = stored(instance)
        place = session.place((b"proj", b"flat"))
        for number in range(500):
            session.view.remove(place, b"f%d" % number, directory=False)
        assert session.list("/proj/flat") == []
        session.view.remove(session.place((b"proj",)), b"flat", directory=True)
        assert stored(instance, keys.SUPERSEDED) == 501
        assert check(instance).problems == []
        orphans.collect(instance, grace=0)
        with instance.kv.read() as txn:
            assert nodes.is_empty(txn, keys.ORPHANS_ID)
        assert stored(instance) <= before + 1  # the node that orphans are below
        assert stored(instance, keys.SUPERSEDED) == 1
        assert check(instance).problems == []


def test_deep_directories(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each level is an object; they need not survive the loss of power.
    pygit2.option(Option.ENABLE_FSYNC_GITDIR, False)
    monkeypatch.setattr(pygit2, "option", lambda *_: None)
    instance, session, source = opened({_DEEP + b"f": b"x\n", _DEEP + b"g": b"x\n", b"top": b"x\n"})
    with instance:
        path = b"/proj/" + _DEEP
        session.write(path + b"f", b"mine\n")
        session.rm(path + b"g")
        session.write(path + b"new", b"mine\n")
        work = repository(session)
        assert len(status(work)) == 3
        assert b"+mine" in work.diff()
        work.restore(tuple(_DEEP[:-1].split(b"/")))
        assert [b"/".join(item.path) for item in work.changes()] == [_DEEP + b"new"]
        session.write(path + b"f", b"mine\n")
        made = commit(work, "deep")
        assert git(source, "cat-file", "blob", b"main:" + _DEEP + b"new") == b"mine\n"
        make(source, {_DEEP + b"g": b"theirs\n"}, made.commit.encode())
        session.rm(path + b"f")
        assert sync(repository(session)).conflicts == ()
        assert session.read(path + b"g") == b"theirs\n"
        session.rm(b"/proj/d")
        assert len(repository(session).changes()) == 3
        assert check(instance).problems == []


def test_odd_tree_objects(tmp_path: Path) -> None:
    make(tmp_path / "source", {b"f": b"x\n"})
    blob = bytes.fromhex(git(tmp_path / "source", "rev-parse", "main:f").decode().strip())
    objects = RepositoryObjects(str(tmp_path / "source"))

    def read(*entries: bytes) -> list[bytes]:
        data = b"".join(entries)
        return list(objects.entries(objects.repository.odb.write(ObjectType.TREE, data).raw))

    def entry(name: bytes, mode: bytes = b"100644") -> bytes:
        return mode + b" " + name + b"\0" + blob

    assert read() == []
    # What git would not check out is not shown; a name may have spaces, an id any byte.
    names = [b".git", b".git", b"a/b", b" b ", b"\n", b"x" * 256, b"gar", b""]
    assert read(*map(entry, names)) == [b"\n", b" b ", b"gar"]
    assert read(entry(b"a"), entry(b"a-"), entry(b"a", b"40000")) == [b"a", b"a-"]
    with pytest.raises(OSError, match="is not in the repository's clone"):
        read(entry(b"a"), entry(b"b")[:-1])
