"""One namespace composed of backends by longest prefix."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import Blocked, CrossMount, MountBusy
from fusefs.contract.kinds import Kind
from fusefs.session.binding import bind
from fusefs.session.session import Session
from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance, InstanceError


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "instance") as opened:
        yield opened


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    (made / "which").write_text(name)
    return made


def test_the_longest_prefix_answers(instance: Instance, tmp_path: Path) -> None:
    bind(instance, folder(tmp_path, "outer"), (b"a", b"outer"))
    Session(instance).mkdir("/a/outer/inner")
    bind(instance, folder(tmp_path, "inner"), (b"a", b"outer", b"inner"))
    session = Session(instance)
    session.write("/a/which", b"tree")
    assert session.read("/a/which") == b"tree"
    assert session.read("/a/outer/which") == b"outer"
    assert session.read("/a/outer/inner/which") == b"inner"
    assert [walked.path[-1] for walked in session.walk("/")] == [
        b"a", b"outer", b"inner", b"which", b"which", b"which",
    ]  # fmt: skip


def test_nothing_is_moved_from_one_backend_to_another(instance: Instance, tmp_path: Path) -> None:
    bind(instance, folder(tmp_path, "host"), (b"host",))
    session = Session(instance)
    with pytest.raises(CrossMount):
        session.mv("/host/which", "/which")
    assert session.read("/host/which") == b"host"


def test_what_is_bound_is_not_removed_nor_moved_along(instance: Instance, tmp_path: Path) -> None:
    bind(instance, folder(tmp_path, "host"), (b"a", b"b", b"host"))
    session = Session(instance)
    for path in ("/a/b/host", "/a/b", "/a"):
        with pytest.raises(MountBusy, match="/a/b/host"):
            session.rm(path)
        with pytest.raises(MountBusy):
            session.mv(path, "/elsewhere")
    assert session.stat("/a/b/host").kind == Kind.DIR


def test_an_unknown_backend_is_refused_at_start(instance: Instance) -> None:
    instance.binds.put((b"x",), BindSpec("tape", "/dev/st0"), "-")
    with pytest.raises(InstanceError, match=r"Unknown backend 'tape' at /x: this fusefs has host"):
        Session(instance)


def test_a_folder_that_is_gone_takes_nothing_else_along(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path, "host")
    bind(instance, source, (b"host",))
    moved = source.rename(tmp_path / "moved")
    session = Session(instance)
    session.write("/other", b"x")
    assert [listed.name for listed in session.list("/")] == ["host", "other"]
    assert session.view.tree.unavailable() == [(b"host",)]
    for refused in (
        lambda: session.list("/host"),
        lambda: session.read("/host/which"),
        lambda: session.write("/host/new", b"x"),
    ):
        with pytest.raises(OSError, match="cannot be opened") as caught:
            refused()
        assert caught.value.errno == errno.ENODEV
    moved.rename(source)
    monkeypatch.setattr("fusefs.tree.unavailable._RETRY_SECONDS", 0)
    assert session.read("/host/which") == b"host"


def test_a_bind_covers_and_replaces_nothing_unasked(instance: Instance, tmp_path: Path) -> None:
    session = Session(instance)
    session.write("/full/file", b"x")
    with pytest.raises(Blocked, match="is not empty"):
        bind(instance, folder(tmp_path, "one"), (b"full",))
    bind(instance, tmp_path / "one", (b"one",))
    with pytest.raises(Blocked, match="unbind /one"):
        bind(instance, folder(tmp_path, "two"), (b"one",))
    bind(instance, tmp_path / "one", (b"one",))
    assert list(instance.binds.all()) == [(b"one",)]


def test_nothing_is_made_in_a_bound_folder_for_another(instance: Instance, tmp_path: Path) -> None:
    outer = folder(tmp_path, "outer")
    bind(instance, outer, (b"outer",))
    with pytest.raises(Blocked, match=r"mkdir .*/outer/inner"):
        bind(instance, folder(tmp_path, "inner"), (b"outer", b"inner"))
    assert [entry.name for entry in outer.iterdir()] == ["which"]


def test_removed_host_files_come_back(instance: Instance, tmp_path: Path) -> None:
    from fusefs.session.restore import restore
    from fusefs.store.trash_can import TrashCan

    source = folder(tmp_path, "host")
    bind(instance, source, (b"host",))
    session = Session(instance)
    session.rm("/host/which")
    assert not (source / "which").exists()
    (entry,) = TrashCan(instance).entries()
    assert entry.path == b"/host/which"
    restore(session, entry.id)
    assert (source / "which").read_text() == "host"
    assert TrashCan(instance).entries() == []
