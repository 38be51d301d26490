"""What a `.gitignore` far below leaves out, and what is said where that cannot be told."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.session.status import status
from fusefs.store.instance import Instance
from tests.repositories.place import add_mount, add_session, make_source, repository

LONG = b"d" * 250


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    source = make_source(tmp_path / "source", lambda top: (top / "a").touch())
    with Instance.init(tmp_path / "instance") as instance:
        add_mount(instance, source)
        yield add_session(instance)


def staged(session: Session) -> set[bytes]:
    return {b"/".join(changed.path) for changed in repository(session).changes()}


@pytest.mark.parametrize("depth", [15, 16, 17, 40])
def test_far_below(session: Session, depth: int) -> None:
    """16 such names are as much as the kernel takes for one path."""
    deep = b"/".join([LONG] * depth)
    for name in (b"x.log", b"x.txt", b".gitignore"):
        session.write(b"/proj/" + deep + b"/" + name, b"*.txt\n")
    session.write("/proj/.gitignore", b"*.log\n")
    found = staged(session)
    assert deep + b"/x.log" not in found
    assert deep + b"/.gitignore" in found
    is_read = depth <= 16
    assert (deep + b"/x.txt" in found) != is_read
    assert len(status(repository(session))) == 2


def test_a_failure_tells_no_path_of_the_host(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.write("/proj/.gitignore", b"*.log\n")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    with pytest.raises(OSError, match="cannot tell what is ignored") as caught:
        staged(session)
    assert caught.value.errno == errno.ENOENT
    assert "proc" not in str(caught.value)
