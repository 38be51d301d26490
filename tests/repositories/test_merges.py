"""What a sync and a commit do where both sides changed something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import Blocked, InvalidArgument
from fusefs.contract.levels import Level
from fusefs.session.committing import commit
from fusefs.session.session import Session
from fusefs.session.syncing import sync
from fusefs.store.instance import Instance
from fusefs.store.journal import Op
from tests.repositories.place import add_mount, add_session, commit_to, make_source, repository

LINES = b"".join(b"%d\n" % number for number in range(40))


def fill(top: Path) -> None:
    for name in ("src/moved", "src/lib/a", "src/lib/b", "src/lib/c", "secret/x"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(name.encode() + b"\n" + LINES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", fill)


@pytest.fixture
def instance(tmp_path: Path, source: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "instance") as opened:
        add_mount(opened, source)
        yield opened


def limited(instance: Instance) -> Session:
    return add_session(instance, "p", {(b"proj", b"src"): Level.COMMIT})


def test_what_is_staged_follows_no_rename_into_what_is_hidden(
    instance: Instance, source: Path
) -> None:
    session = limited(instance)
    session.write("/proj/src/moved", b"mine\n" + LINES)
    session.write("/proj/src/lib/new", b"new\n")

    def move(top: Path) -> None:
        (top / "src/moved").rename(top / "secret/moved")
        (top / "src/lib").rename(top / "secret/lib")

    commit_to(source, move)
    done = sync(repository(session, "/proj/src"))
    assert done.conflicts == ((b"src", b"moved"),)
    assert session.read("/proj/src/moved") == b"mine\n" + LINES
    assert session.read("/proj/src/lib/new") == b"new\n"
    paths = {changed.path for changed in repository(Session(instance)).changes()}
    assert not any(path[0] == b"secret" for path in paths)


def test_both_sides_of_a_conflict_are_not_committed(
    instance: Instance, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is left there by a merge that is killed.
    monkeypatch.setattr("tempfile.tempdir", "/none")
    session = add_session(instance)
    session.write("/proj/src/moved", b"mine\n")
    commit_to(source, lambda top: (top / "src/moved").write_bytes(b"theirs\n"))
    work = repository(session)
    assert sync(work).conflicts == ((b"src", b"moved"),)
    with pytest.raises(Blocked, match="/proj/src/moved shows both sides"):
        commit(work, "too early")
    session.write("/proj/src/moved", b"ours\n")
    done = commit(work, "settled")
    record = instance.journal.since(0)[-1]
    assert (record.op, record.path) == (Op.COMMIT, b"/proj")
    assert done.commit.encode() in record.detail


def test_a_file_in_the_way_of_a_directory_gets_a_name_for_people(
    instance: Instance, source: Path
) -> None:
    session = add_session(instance)
    session.write("/proj/both", b"a file\n")

    def make(top: Path) -> None:
        (top / "both").mkdir()
        (top / "both/inner").write_bytes(b"theirs\n")

    commit_to(source, make)
    sync(repository(session))
    names = {entry.name for entry in session.list("/proj")}
    assert session.read("/proj/both~staged") == b"a file\n"
    assert not any(len(name) > 40 for name in names)


def test_a_message_that_is_no_text_is_refused(instance: Instance) -> None:
    session = add_session(instance)
    session.write("/proj/new", b"")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        commit(repository(session), "bad \udcff message")
