"""The trash: what comes back, how, and what is dropped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import AlreadyExists, NotFound
from fusefs.contract.paths import resolve
from fusefs.session.restore import restore
from fusefs.session.session import Session
from fusefs.store import orphans
from fusefs.store.check import check
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect
from fusefs.store.trash_can import TrashCan


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "i") as opened:
        yield opened
        assert check(opened).problems == []


def paths(session: Session) -> list[bytes]:
    return [b"/" + b"/".join(walked.path) for walked in session.walk("/")]


def unlink(session: Session, path: str) -> None:
    *parents, name = resolve(path)
    session.view.remove(session.place(tuple(parents)), name, directory=False)


def rmdir(session: Session, path: str) -> None:
    *parents, name = resolve(path)
    session.view.remove(session.place(tuple(parents)), name, directory=True)


def test_a_folder_removed_by_many_unlinks_restores_as_one(instance: Instance) -> None:
    session = Session(instance)
    for path in ("/top/a", "/top/sub/b", "/top/sub/deep/c", "/top/z"):
        session.write(path, path.encode())
    before = paths(session)
    for path in ("/top/a", "/top/sub/b", "/top/sub/deep/c"):
        unlink(session, path)
    rmdir(session, "/top/sub/deep")
    rmdir(session, "/top/sub")
    unlink(session, "/top/z")
    rmdir(session, "/top")
    assert paths(session) == []
    (entry,) = TrashCan(instance).entries()
    assert (entry.path, TrashCan(instance).size(entry)) == (b"/top", 37)
    restore(session, entry.id)
    assert paths(session) == before
    assert session.read("/top/sub/deep/c") == b"/top/sub/deep/c"
    assert TrashCan(instance).entries() == []


def test_what_another_session_removed_stays_apart(instance: Instance) -> None:
    mine, other = Session(instance), Session(instance)
    other.view.actor = type(other.view.actor)("other")
    mine.write("/top/a", b"a")
    mine.write("/top/b", b"b")
    unlink(other, "/top/a")
    unlink(mine, "/top/b")
    rmdir(mine, "/top")
    assert {entry.path for entry in TrashCan(instance).entries()} == {b"/top/a", b"/top"}


def test_a_name_that_is_taken_is_not_overwritten(instance: Instance) -> None:
    session = Session(instance)
    session.write("/a", b"old")
    session.rm("/a")
    session.write("/a", b"new")
    (entry,) = TrashCan(instance).entries()
    with pytest.raises(AlreadyExists):
        restore(session, entry.id)
    restore(session, entry.id, "/b")
    assert (session.read("/a"), session.read("/b")) == (b"new", b"old")


def test_it_comes_back_to_where_its_directory_is_now(instance: Instance) -> None:
    session = Session(instance)
    session.write("/old/a", b"a")
    session.rm("/old/a")
    session.mv("/old", "/new")
    (entry,) = TrashCan(instance).entries()
    restore(session, entry.id)
    assert session.read("/new/a") == b"a"


def test_without_its_directory_a_place_must_be_given(instance: Instance) -> None:
    session = Session(instance)
    session.write("/d/a", b"a")
    session.rm("/d/a")
    (first,) = TrashCan(instance).entries()
    TrashCan(instance).purge_older_than(-1)
    session.write("/e/a", b"a")
    session.rm("/e/a")
    session.rm("/e")
    entry = next(e for e in TrashCan(instance).entries() if e.path == b"/e")
    with pytest.raises(KeyError):
        restore(session, first.id)
    restore(session, entry.id)
    assert session.read("/e/a") == b"a"


def test_the_oldest_go_first_when_it_is_too_much(instance: Instance) -> None:
    session = Session(instance)
    for name in ("/1", "/2", "/3"):
        session.write(name, name.encode() * 500)
        session.rm(name)
    assert TrashCan(instance).enforce_bounds(max_bytes=2500) == 1
    assert [entry.path for entry in TrashCan(instance).entries()] == [b"/2", b"/3"]


def test_what_is_too_old_goes_for_good_with_its_content(instance: Instance) -> None:
    session = Session(instance)
    session.write("/d/a", b"unique content")
    session.rm("/d")
    assert TrashCan(instance).enforce_bounds(max_age=-1) == 1
    orphans.collect(instance, grace=-1)
    collect(instance)
    assert check(instance).contents == 0
    with pytest.raises(NotFound):
        session.read("/d/a")


def test_a_deep_directory_is_listed_and_dropped(tmp_path: Path) -> None:
    Instance.init(tmp_path / "i").close()
    usual = sys.getrecursionlimit()
    # Its many changes need not be on the disk one by one.
    with Instance.open(tmp_path / "i", deferred=True) as instance:
        try:
            sys.setrecursionlimit(350)  # so that deeper than that is soon reached
            _make_and_drop_deep_directories(instance, depth=400)
            assert check(instance).problems == []
        finally:
            sys.setrecursionlimit(usual)


def _make_and_drop_deep_directories(instance: Instance, depth: int) -> None:
    session = Session(instance)
    session.mkdir("/" + "/".join(["d"] * depth))
    places = [session.view.root]
    for _ in range(depth):
        places.append(session.view.child(places[-1], b"d")[0])
    for place in places[-2::-1]:
        session.view.remove(place, b"d", directory=True)
    session.mkdir("/" + "/".join(["e"] * depth))
    session.rm("/e")
    can = TrashCan(instance)
    assert [(entry.path, can.size(entry)) for entry in can.entries()] == [(b"/d", 0), (b"/e", 0)]
    assert can.purge_older_than(-1) == 2
    orphans.collect(instance, grace=-1)
    assert check(instance).nodes == 3
