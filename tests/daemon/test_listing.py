"""Listings: every name once, whatever else changes; positions that stay good."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.daemon.calls import DirectoryStream, getdents
from tests.daemon.conftest import Mounted, until


def fill(view: Path, count: int) -> list[bytes]:
    names = [f"{number:05d}-{'n' * (number % 50)}" for number in range(count)]
    for name in names:
        (view / name).write_bytes(b"")
    return [name.encode() for name in names]


def real(names: list[bytes]) -> list[bytes]:
    return [name for name in names if name not in (b".", b"..")]


def test_dot_and_dot_dot_come_first(view: Path) -> None:
    (view / "sub").mkdir()
    (view / "file").write_bytes(b"")
    entries = getdents(view / "sub")
    assert entries == [
        ((view / "sub").stat().st_ino, b".", 4),
        (view.stat().st_ino, b"..", 4),
    ]
    kinds = {name: kind for _, name, kind in getdents(view)}
    assert kinds == {b".": 4, b"..": 4, b"sub": 4, b"file": 8}
    top = {name: number for number, name, _ in getdents(view.parent)}
    assert top[b"."] == top[b".."] == view.parent.stat().st_ino == 1


def test_numbers_of_a_listing_are_those_of_stat(view: Path) -> None:
    fill(view, 20)
    for number, name, _ in getdents(view):
        assert number == os.lstat(view / os.fsdecode(name)).st_ino


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1500])
def test_every_name_comes_once(view: Path, count: int) -> None:
    names = fill(view, count)
    assert [entry.name.encode() for entry in os.scandir(view)] == names


def test_positions_stay_good(view: Path) -> None:
    names = fill(view, 700)
    stream = DirectoryStream(view)
    positions: list[tuple[int, bytes | None]] = []
    while True:
        position = stream.tell()
        name = stream.read()
        positions.append((position, name))
        if name is None:
            break
    for position, name in reversed(positions[::37]):
        stream.seek(position)
        assert stream.read() == name
    stream.seek(positions[10][0])
    assert stream.names() == names[8:]
    stream.rewind()
    assert real(stream.names()) == names
    stream.close()


def test_names_that_stay_are_listed_once_while_others_come_and_go(view: Path) -> None:
    names = fill(view, 900)
    kept = set(names[::3])
    stream = DirectoryStream(view)
    seen = []
    gone = iter([name for name in names if name not in kept])
    for step in range(2000):
        name = stream.read()
        if name is None:
            break
        seen.append(name)
        victim = next(gone, None)
        if victim is not None:
            os.unlink(os.fsencode(view) + b"/" + victim)
        (view / f"new-{step:05d}").write_bytes(b"")
    stream.close()
    assert len(seen) == len(set(seen))
    assert kept <= set(seen)


def test_seeking_back_after_changes(view: Path) -> None:
    names = fill(view, 500)
    stream = DirectoryStream(view)
    for _ in range(102):
        stream.read()
    position = stream.tell()
    while stream.read() is not None:
        pass
    os.unlink(os.fsencode(view) + b"/" + names[100])
    (view / "00100-between").write_bytes(b"")
    stream.seek(position)
    assert stream.names() == [b"00100-between", *names[101:]]
    stream.close()


def test_rewinding_shows_what_is_there_then(view: Path) -> None:
    (view / "a").write_bytes(b"")
    stream = DirectoryStream(view)
    assert real(stream.names()) == [b"a"]
    (view / "b").write_bytes(b"")
    stream.rewind()
    assert real(stream.names()) == [b"a", b"b"]
    stream.close()


def test_a_listing_carries_attributes_that_hold(view: Path) -> None:
    fill(view, 300)
    listed = {entry.name: entry.stat() for entry in os.scandir(view)}
    target = view / next(iter(listed))
    target.write_bytes(b"more")
    assert target.stat().st_size == 4
    for name, status in listed.items():
        assert os.lstat(view / name).st_ino == status.st_ino


def test_removing_while_listing(view: Path) -> None:
    for directory in range(5):
        (view / "top" / f"d{directory}").mkdir(parents=True)
        fill(view / "top" / f"d{directory}", 200)
    subprocess.run(["rm", "-r", view / "top"], check=True)
    assert os.listdir(view) == []


def test_a_removed_directory_lists_nothing(view: Path) -> None:
    (view / "d").mkdir()
    fd = os.open(view / "d", os.O_RDONLY)
    os.rmdir(view / "d")
    with contextlib.suppress(FileNotFoundError):
        assert os.listdir(fd) == []
    os.close(fd)


def test_types_without_stat(view: Path) -> None:
    os.mkfifo(view / "p")
    os.symlink("nowhere", view / "l")
    os.mknod(view / "s", stat.S_IFSOCK | 0o600)
    kinds = {name: kind for _, name, kind in getdents(view)}
    assert (kinds[b"p"], kinds[b"l"], kinds[b"s"]) == (1, 10, 12)


def test_a_position_nobody_gave_out_is_refused(view: Path) -> None:
    fill(view, 5)
    fd = os.open(view, os.O_RDONLY)
    os.lseek(fd, 4711, os.SEEK_SET)
    with pytest.raises(OSError) as caught:
        os.listdir(fd)
    assert caught.value.errno == errno.EINVAL
    os.close(fd)


def test_closing_gives_handles_back(shared: Mounted, view: Path) -> None:
    streams = [DirectoryStream(view) for _ in range(10)]
    for stream in streams:
        stream.names()
    assert shared.ask("directories") >= 10
    for stream in streams:
        stream.close()
    until(lambda: shared.ask("directories") == 0)


def test_a_listing_given_out_again_is_the_same_until_something_changes(view: Path) -> None:
    for name in ("a", "c", "d"):
        (view / name).write_bytes(b"1")

    def listed() -> list[tuple[str, int]]:
        with os.scandir(view) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False).st_size) for entry in entries]

    first = listed()
    assert listed() == listed() == first
    (view / "a").write_bytes(b"22")
    (view / "b").mkdir()
    assert dict(listed())["a"] == 2
    assert "b" in dict(listed())
    (view / "c").unlink()
    assert "c" not in dict(listed())
    Path("/proc/sys/vm/drop_caches").write_text("2")
    assert dict(listed())["a"] == 2
    assert {name: (view / name).lstat().st_ino for name, _ in listed()} == {
        entry.name: entry.inode() for entry in os.scandir(view)
    }


def test_a_listing_goes_on_beside_one_that_is_given_out_again(view: Path) -> None:
    for number in range(300):
        (view / f"{number:03}").touch()
    slow = os.scandir(view)
    names = [next(slow).name]
    (view / "000a").touch()
    assert len(list(view.iterdir())) == len(list(view.iterdir())) == 301
    names += [entry.name for entry in slow]
    assert len(names) == len(set(names))
    assert set(names) >= {f"{number:03}" for number in range(300)}
