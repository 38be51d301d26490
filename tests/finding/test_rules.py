"""Searches that go on while rules change, or end before they are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fusefs.contract.levels import Level
from fusefs.session import texts, visible_files
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.repositories.place import add_session

FILES = [f"/{top}/{name}" for top in "abc" for name in ("x", "y")]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with (
        Instance.init(tmp_path / "instance") as instance,
        mock.patch.multiple(texts, _FIRST_BYTES=1, _MOST_BYTES=1),
        mock.patch.object(visible_files, "_SOON", 0.0),
    ):
        for path in FILES:
            Session(instance).write(path, b"a word\n")
        yield add_session(instance, grants={(): Level.RO})


def revoke(session: Session, path: bytes) -> None:
    spec = replace(session.spec, grants={**session.spec.grants, (path,): Level.NONE})
    session.view.instance.sessions.put(spec, "-")


def test_what_is_hidden_meanwhile_is_not_found(session: Session) -> None:
    for search in (
        session.glob("**"),
        (line.path for line in session.grep("w.rd")),
        session.grep("word").files(),
        (count.path for count in session.grep("word").counts()),
    ):
        revoke(session, b"d")
        assert next(search) == "/a/x"
        revoke(session, b"b")
        assert list(search) == ["/a/y", "/c/x", "/c/y"]
        spec = replace(session.spec, grants={(): Level.RO})
        session.view.instance.sessions.put(spec, "-")
        session.refresh()


def test_all_is_hidden_meanwhile(session: Session) -> None:
    found = iter(session.grep("word"))
    globbed = session.glob("**/")
    assert next(found).path == "/a/x"
    assert next(globbed) == "/a/"
    session.view.instance.sessions.remove(session.spec.name, "-")
    assert list(found) == []
    assert list(globbed) == []


def test_a_search_that_is_left_leaves_nothing(session: Session) -> None:
    before = threading.active_count()
    found = session.grep("w.rd")
    lines = iter(found)
    assert next(lines).path == "/a/x"
    assert next(lines).path == "/a/y"
    del lines, found
    assert threading.active_count() == before


def test_totals_are_those_up_to_where_it_stopped(session: Session) -> None:
    found = session.grep("w.rd", limit=2)
    assert [line.path for line in found] == FILES[:2]
    assert (found.searched, found.matched, found.lines, found.cut) == (3, 2, 2, True)
    found = session.grep("w.rd", limit=6)
    assert len(list(found)) == 6
    assert (found.searched, found.cut, found.truncated) == (6, False, False)
    found = session.grep("word", limit=5)
    assert len(list(found.counts())) == 5
    assert (found.searched, found.matched, found.cut) == (6, 5, True)
    globbed = session.glob("**", limit=6)
    assert len(list(globbed)) == 6
    assert not globbed.truncated
    globbed = session.glob("**", limit=5)
    assert len(list(globbed)) == 5
    assert globbed.truncated
