"""Moving entries to a trash on the same and on another file system."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.tree import host_calls, host_copy, host_trash
from fusefs.tree.host_trash import rename_new
from tests.tree.host_folder import ME, Bound, open_file, raises

OTHER = Path("/dev/shm")


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bound]:
    if not OTHER.is_dir() or OTHER.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    other = Path(tempfile.mkdtemp(dir=OTHER))
    made = Bound(tmp_path, other / "trash")
    yield made
    made.tree.close()
    shutil.rmtree(other)


def described(path: Path) -> dict[str, object]:
    """Everything that a copy keeps, by relative path; hard links by the first of their names."""
    found: dict[str, object] = {}
    firsts: dict[tuple[int, int], str] = {}
    for folder, directories, files in sorted(os.walk(path)):
        for name in [".", *sorted(directories), *sorted(files)]:
            full = Path(folder) / name
            info = full.lstat()
            relative = os.path.relpath(full, path)
            kind = stat.S_IFMT(info.st_mode)
            content: object = None
            if kind == stat.S_IFREG:
                content = full.read_bytes()
            elif kind == stat.S_IFLNK:
                content = os.readlink(full)
            first = firsts.setdefault((info.st_dev, info.st_ino), relative)
            xattrs = {n: os.getxattr(full, n, follow_symlinks=False)
                      for n in os.listxattr(full, follow_symlinks=False)}  # fmt: skip
            found[relative] = (
                info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content,
                first if kind != stat.S_IFDIR else None, xattrs,
            )  # fmt: skip
    return found


def fill(folder: Path) -> None:
    (folder / "a" / "empty").mkdir(parents=True)
    (folder / "a" / "f").write_bytes(os.urandom(100_000))
    os.link(folder / "a" / "f", folder / "a" / "g")
    (folder / "a" / "f").chmod(0o4751)
    with (folder / "a" / "sparse").open("wb") as file:
        file.seek(50_000_000)
        file.write(b"end")
        file.truncate(90_000_000)
    (folder / "a" / "l").symlink_to("/nowhere")
    os.mkfifo(folder / "a" / "p", 0o640)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder / "a")
        listener.bind("s")
        os.chdir(here)
    os.setxattr(folder / "a" / "f", b"user.x", b"\0y")
    if os.geteuid() == 0:
        os.chown(folder / "a" / "f", 11, 12)
        os.chown(folder / "a" / "l", 13, 14, follow_symlinks=False)
    for path in (folder / "a" / "f", folder / "a" / "l", folder / "a" / "empty", folder / "a"):
        os.utime(path, ns=(1_111, 2_222_222_222_222_222_222 // 2), follow_symlinks=False)
    (folder / "a").chmod(0o750)


def without_user_xattrs(found: dict[str, object]) -> dict[str, object]:
    return {path: value[:-1] for path, value in found.items() if isinstance(value, tuple)}


def keeps_xattrs(folder: Path) -> bool:
    try:
        os.setxattr(folder, b"user.probe", b"1")
        os.removexattr(folder, b"user.probe")
    except OSError:
        return False
    return True


def test_a_tree_is_copied_with_all_that_belongs_to_it(bound: Bound) -> None:
    fill(bound.folder)
    before = described(bound.folder / "a")
    bound.tree.remove(bound.root.key, b"a", ME, directory=None)
    assert os.listdir(bound.folder) == []
    after = described(bound.trash.entry())
    if keeps_xattrs(bound.trash.folder):
        assert after == before
    assert without_user_xattrs(after) == without_user_xattrs(before)
    sparse = (bound.trash.entry() / "sparse").stat()
    assert sparse.st_blocks * 512 < 1_000_000 < sparse.st_size
    bound.put_back("a")
    assert without_user_xattrs(described(bound.folder / "a")) == without_user_xattrs(before)
    assert not bound.trash.entry().exists()


def test_single_entries_are_copied(bound: Bound) -> None:
    fill(bound.folder)
    a = bound.at("a").key
    for name in sorted(os.listdir(bound.folder / "a")):
        info = (bound.folder / "a" / name).lstat()
        bound.tree.remove(a, os.fsencode(name), ME, directory=name == "empty")
        moved = bound.trash.entry().lstat()
        assert (moved.st_mode, moved.st_uid, moved.st_size, moved.st_mtime_ns) == (
            info.st_mode, info.st_uid, info.st_size if name != "empty" else moved.st_size,
            info.st_mtime_ns,
        )  # fmt: skip
        bound.put_back(f"a/{name}")
        assert (bound.folder / "a" / name).lstat().st_mode == info.st_mode
        with raises(errno.EEXIST):
            bound.trash.entry().touch()
            bound.put_back(f"a/{name}")


def test_an_open_file_outlives_its_copy(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"abc")
    with open_file(bound, bound.at("f"), write=True) as file:
        bound.tree.remove(bound.root.key, b"f", ME, directory=False)
        file.write(3, b"d")
        assert file.read(0, 10) == b"abcd"
    assert bound.trash.entry().read_bytes() == b"abc"


def test_a_copy_that_fails_leaves_all_as_it_was(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bound.folder)
    before = described(bound.folder / "a")
    calls = 0

    def fail(source: int, target: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(host_copy, "_copy_data", fail)
    with raises(errno.ENOSPC):
        bound.tree.remove(bound.root.key, b"a", ME, directory=None)
    assert described(bound.folder / "a") == before
    assert os.listdir(bound.trash.folder) == []


def test_a_removal_that_fails_half_way_keeps_the_whole_copy(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bound.folder)
    before = sorted(described(bound.folder / "a"))

    def fail(dir_fd: int, name: bytes) -> None:
        (bound.folder / "a" / "f").unlink()
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(host_trash, "remove_entry", fail)
    with raises(errno.EACCES):
        bound.tree.remove(bound.root.key, b"a", ME, directory=None)
    assert sorted(described(bound.trash.entry())) == before


def test_depth_is_no_limit(bound: Bound) -> None:
    depth = 1500
    fd = os.open(bound.folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("dddddd", dir_fd=fd)
        inner = os.open("dddddd", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    bound.tree.remove(bound.root.key, b"dddddd", ME, directory=None)
    assert os.listdir(bound.folder) == []
    place = os.open(bound.trash.entry().parent, os.O_PATH)
    host_copy.remove_entry(place, b"entry")
    os.close(place)
    assert not bound.trash.entry().exists()


def test_rmdir_sees_what_came_in_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound(tmp_path)
    (bound.folder / "d").mkdir()
    add = bound.trash.add

    def late(origin: host_trash.TrashOrigin, move: host_trash.MoveEntry) -> None:
        (bound.folder / "d" / "late").touch()
        add(origin, move)

    monkeypatch.setattr(bound.trash, "add", late)
    with raises(errno.ENOTEMPTY):
        bound.tree.remove(bound.root.key, b"d", ME, directory=True)
    assert (bound.folder / "d" / "late").exists()
    assert bound.trash.origins == []
    bound.tree.close()


def test_a_directory_with_a_mount_below_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound(tmp_path)
    (bound.folder / "d" / "m").mkdir(parents=True)
    table = bound.tree.mounts
    point = os.fsencode((bound.folder / "d" / "m").resolve())
    mounts = {**table._mounts, 1 << 40: host_mount(point)}
    monkeypatch.setattr(table, "_mounts", mounts)
    monkeypatch.setattr(table, "_refresh", lambda: None)
    with raises(errno.EBUSY):
        bound.tree.remove(bound.root.key, b"d", ME, directory=None)
    with raises(errno.EBUSY):
        bound.tree.remove(bound.at("d").key, b"m", ME, directory=True)
    assert bound.trash.origins == []
    bound.tree.close()


def host_mount(point: bytes):
    from fusefs.tree.host_mounts import Mount

    return Mount(1 << 40, point, b"tmpfs")


def test_renaming_to_a_free_name_without_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(host_calls, "renameat2", refuse)
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    fd = os.open(tmp_path, os.O_PATH)
    with raises(errno.EEXIST):
        rename_new(fd, b"a", fd, b"b")
    rename_new(fd, b"a", fd, b"c")
    os.close(fd)
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]
