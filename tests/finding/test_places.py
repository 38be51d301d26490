"""glob and grep wherever files are: in the instance, in bound folders, in mounted repositories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.contract.errors import NotText
from fusefs.contract.levels import Level
from fusefs.contract.sessions import SessionSpec, World
from fusefs.session.binding import bind
from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.session.visible_files import VisibleFiles
from fusefs.store.instance import Instance
from tests.repositories.place import add_mount, add_session, make_source

BIG = b"".join(b"line %d\n" % number for number in range(250_000)) + b"the word\n"
"""Read in several pieces, wherever it is."""
FILES: dict[bytes, bytes] = {
    b"a.txt": b"one\nthe word\n",
    b"big": BIG,
    b"binary": b"word\0",
    b"deep/er/b.py": b"word = 1\n",
    b"deep/latin": b"w\xf6rd word\n",
    b"empty": b"",
    b"mid": b"x" * 70_000 + b"\nword\n",
    b"odd\xff\nname": b"a word\n",
}
LINES = [
    ("a.txt", 2), ("big", 250_001), ("deep/er/b.py", 1), ("mid", 2), ("odd\udcff\nname", 1)
]  # fmt: skip
UNREAD = ["binary", "deep/latin"]


def fill(folder: Path) -> None:
    for name, data in FILES.items():
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    os.symlink("a.txt", folder / "link")
    os.symlink("deep", folder / "way")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "instance") as made:
        yield made


def in_store(instance: Instance, folder: Path) -> None:
    import_directory(Session(instance), folder, "/top", lambda progress: None)


def in_folder(instance: Instance, folder: Path) -> None:
    bind(instance, folder, (b"top",))


def in_repository(instance: Instance, folder: Path) -> None:
    source = make_source(folder.with_name("source.git"), fill)
    Session(instance).mkdir("/top")
    add_mount(instance, source, (b"top",))


PLACES = [in_store, in_folder, in_repository]
Place = Callable[[Instance, Path], None]


@pytest.fixture(params=PLACES)
def session(request: pytest.FixtureRequest, instance: Instance, tmp_path: Path) -> Session:
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    request.param(instance, folder)
    instance.commit()
    return add_session(instance)


def lines_of(session: Session, pattern: str, path: str = "/top") -> list[tuple[str, int]]:
    return [(line.path.removeprefix("/top/"), line.number) for line in session.grep(pattern, path)]


def test_all_is_found_alike(session: Session) -> None:
    found = session.grep("word", "/top")
    assert [(line.path.removeprefix("/top/"), line.number) for line in found] == LINES
    assert [what.path.removeprefix("/top/") for what in found.unread] == UNREAD
    assert {what.reason for what in found.unread} == {"not text"}
    assert (found.searched, found.matched, found.lines) == (6, 5, 5)
    assert found.truncated
    names = {name.decode("utf-8", "surrogateescape") for name in FILES} | {"link", "way"}
    assert list(session.glob("**", "/top")) == sorted(
        (f"/top/{name}" for name in names), key=lambda path: path.encode("utf-8", "replace")
    )
    assert list(session.glob("**/", "/top")) == ["/top/deep/", "/top/deep/er/"]
    assert list(session.glob("d*/*/?.py", "/top")) == ["/top/deep/er/b.py"]


def test_from_the_root_a_mount_is_a_directory(session: Session) -> None:
    assert lines_of(session, "word", "/") == LINES
    assert [line.path for line in session.grep("word", "/", include="top/deep/**")] == [
        "/top/deep/er/b.py"
    ]
    assert list(session.glob("*/")) == ["/top/"]


def test_what_is_too_large_is_named(session: Session) -> None:
    found = session.grep("word", "/top", max_file_bytes=70_005)
    assert [line.path.removeprefix("/top/") for line in found] == [
        "a.txt", "deep/er/b.py", "odd\udcff\nname"
    ]  # fmt: skip
    reasons = {what.path: what.reason for what in found.unread}
    assert reasons["/top/mid"] == "too large: 70006 bytes; the limit is 70005"
    assert reasons["/top/big"] == f"too large: {len(BIG)} bytes; the limit is 70005"


@pytest.mark.parametrize("path", ["a.txt", "big", "mid", "link", "way/er/b.py"])
def test_a_file_is_searched_itself(session: Session, path: str) -> None:
    real = {"link": "a.txt", "way/er/b.py": "deep/er/b.py"}.get(path, path)
    wanted = [line for line in LINES if line[0] == real]
    assert lines_of(session, "word", f"/top/{path}") == wanted
    found = session.grep("word", f"/top/{path}", max_file_bytes=1, include="*.nothing")
    assert list(found) == []
    assert [what.path for what in found.unread] == [f"/top/{real}"]


def test_changes_are_found_at_once(session: Session) -> None:
    list(session.grep("word", "/top"))
    session.write("/top/a.txt", b"new\n")
    session.write("/top/deep/new", b"the new word\n")
    session.write("/top/mid", b"y" * 70_000 + b"\nnot here\n")
    session.rm("/top/deep/er")
    session.mv("/top/empty", "/top/deep/moved")
    changed = [("big", 250_001), ("deep/new", 1), ("odd\udcff\nname", 1)]
    assert lines_of(session, "word") == changed
    assert list(session.glob("deep/**", "/top")) == [
        "/top/deep/latin", "/top/deep/moved", "/top/deep/new"
    ]  # fmt: skip


def test_what_is_being_written_is_found(session: Session) -> None:
    place = session.place(session.resolve("/top/a.txt"))
    small = session.view.open_file(place, write=True)
    large = session.view.open_file(session.place(session.resolve("/top/big")), write=True)
    small.write(0, b"ONE")
    large.write(0, b"LINE")
    assert lines_of(session, "ONE|LINE") == [("a.txt", 1), ("big", 1)]
    for file in (small, large):
        file.close()


def test_what_names_content_is_told_without_reading(session: Session) -> None:
    files = list(VisibleFiles(session.view, session.place((b"top",))))
    told = [file.entry.content for file in files if file.path != b"/top/link"]
    lengths = {len(content) for content in told if content is not None}
    assert lengths <= {20, 32}


def test_in_a_chat_links_are_files(instance: Instance, tmp_path: Path) -> None:
    for number, place in enumerate(PLACES):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        fill(folder)
        made = Instance.init(tmp_path / f"i{number}")
        with made:
            place(made, folder)
            spec = SessionSpec("chat", World.CHAT, grants={(): Level.RO})
            session = Session(made, made.sessions.put(spec, "-"))
            assert lines_of(session, "^deep$|a.txt") == [("link", 1), ("way", 1)]
            assert lines_of(session, "a.txt", "/top/link") == [("link", 1)]


def test_what_is_no_file_has_no_text(instance: Instance, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    bind(instance, folder, (b"top",))
    session = add_session(instance)
    assert "/top/fifo" in list(session.glob("*", "/top"))
    assert list(session.grep("x", "/top", include="fifo")) == []
    with pytest.raises(NotText, match="Not text: /top/fifo"):
        session.grep("x", "/top/fifo")


def test_a_directory_of_many_is_gone_through_in_order(instance: Instance) -> None:
    session = Session(instance)
    names = sorted(f"f{number}" for number in range(1050))
    for name in names:
        session.write(f"/many/{name}", b"word\n")
    assert [line.path for line in session.grep("word")] == [f"/many/{name}" for name in names]


def test_what_cannot_be_read_is_named(instance: Instance, tmp_path: Path) -> None:
    session = Session(instance)
    session.write("/big", BIG)
    session.write("/small", b"word\n")
    session.mkdir("/folder")
    (tmp_path / "away").mkdir()
    bind(instance, tmp_path / "away", (b"folder", b"away"))
    (tmp_path / "away").rmdir()
    content = session.view.node_of(session.place((b"big",))).sha256
    assert content is not None
    instance.content.path(content).unlink()
    session = Session(instance)
    found = session.grep("word")
    assert [line.path for line in found] == ["/small"]
    assert [what.path for what in found.unread] == ["/big", "/folder/away"]
    globbed = session.glob("**")
    assert list(globbed) == ["/big", "/small"]
    assert [what.path for what in globbed.unread] == ["/folder/away"]
    assert globbed.truncated
