"""The operations of a bound host folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.contract.kinds import Kind
from fusefs.tree.backend import Backend, Change, Owner
from fusefs.tree.host_trash import TrashOrigin
from tests.tree.host_folder import ME, US, Bound, open_file, raises

is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root gives files away")


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bound]:
    made = Bound(tmp_path)
    yield made
    made.tree.close()


def test_is_a_backend_with_a_folder_at_its_top(bound: Bound) -> None:
    backend: Backend = bound.tree
    assert backend.volatile
    assert bound.root.kind == Kind.DIR
    assert bound.root.mode == stat.S_IMODE(bound.folder.stat().st_mode)
    assert bound.root.size == 0


def test_lookup_says_what_the_host_says(bound: Bound) -> None:
    path = bound.folder / "f"
    path.write_bytes(b"hello")
    path.chmod(0o4640)
    os.utime(path, ns=(1_000_000_001, 2_000_000_002))
    node = bound.at("f")
    info = path.stat()
    assert node[1:9] == (
        Kind.FILE, 0o4640, info.st_uid, info.st_gid, 5, 1_000_000_001, 2_000_000_002,
        info.st_ctime_ns,
    )  # fmt: skip
    assert bound.tree.stat(node.key) == node


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/etc", b"a\0b"])
def test_names_that_are_none(bound: Bound, name: bytes) -> None:
    with raises(errno.EINVAL):
        bound.tree.lookup(bound.root.key, name)
    with raises(errno.EINVAL):
        bound.tree.create(bound.root.key, name, Kind.FILE, 0o644, US, ME)
    with raises(errno.EINVAL):
        bound.tree.remove(bound.root.key, name, ME, directory=None)


def test_lookup_of_what_is_not_there(bound: Bound) -> None:
    (bound.folder / "f").touch()
    with raises(errno.ENOENT):
        bound.at("g")
    with raises(errno.ENOTDIR):
        bound.at("f/g")
    with raises(errno.ENAMETOOLONG):
        bound.at("x" * 256)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [(Kind.FILE, 0o7777), (Kind.DIR, 0o7777), (Kind.FIFO, 0o666), (Kind.SOCKET, 0o755)],
)
def test_create_makes_the_mode_exact(bound: Bound, kind: Kind, kept: int) -> None:
    umask = os.umask(0o077)
    try:
        node = bound.tree.create(bound.root.key, b"n", kind, kept, US, ME)
    finally:
        os.umask(umask)
    assert (node.kind, node.mode) == (kind, kept)
    assert bound.at("n").key is node.key
    with raises(errno.EEXIST):
        bound.tree.create(bound.root.key, b"n", kind, 0o600, US, ME)


def test_create_links(bound: Bound) -> None:
    target = b"../\xff anywhere"
    node = bound.tree.create(bound.root.key, b"l", Kind.SYMLINK, 0o777, US, ME, target=target)
    assert (node.kind, node.size) == (Kind.SYMLINK, len(target))
    assert bound.tree.read_link(node.key) == target
    assert os.readlink(os.fsencode(bound.folder / "l")) == target
    with raises(errno.EINVAL):
        bound.tree.read_link(bound.root.key)
    with raises(errno.EPERM):
        bound.tree.create(bound.root.key, b"m", Kind.MOUNT, 0o755, US, ME)


@needs_root
@pytest.mark.parametrize("kind", [Kind.FILE, Kind.DIR, Kind.SYMLINK, Kind.FIFO])
def test_create_gives_to_the_owner(bound: Bound, kind: Kind) -> None:
    owner = Owner(1234, 5678)
    node = bound.tree.create(bound.root.key, b"n", kind, 0o6755, owner, ME, target=b"x")
    assert (node.uid, node.gid) == owner
    if kind != Kind.SYMLINK:
        assert node.mode == 0o6755


@needs_root
def test_set_group_id_directories_are_inherited(bound: Bound) -> None:
    os.chown(bound.folder, -1, 4321)
    bound.folder.chmod(0o2775)
    directory = bound.tree.create(bound.root.key, b"d", Kind.DIR, 0o755, Owner(7, 8), ME)
    assert (directory.uid, directory.gid, directory.mode) == (7, 4321, 0o2755)
    file = bound.tree.create(directory.key, b"f", Kind.FILE, 0o644, Owner(7, 8), ME)
    assert (file.uid, file.gid, file.mode) == (7, 4321, 0o644)


def test_a_file_created_without_rights_is_written(bound: Bound) -> None:
    node = bound.tree.create(bound.root.key, b"f", Kind.FILE, 0, US, ME)
    with open_file(bound, node, write=True) as file:
        assert file.write(0, b"abc") == 3
        assert file.read(0, 10) == b"abc"
    assert bound.at("f").mode == 0


def test_listing_is_sorted_whole_and_in_pieces(bound: Bound) -> None:
    wanted = sorted([b"%d" % number for number in range(20)] + [b"\xff\xfe", b"a b", b"\n"])
    for name in wanted:
        (bound.folder / os.fsdecode(name)).touch()
    assert bound.names(bound.root) == wanted
    directory = bound.tree.open_directory(bound.root.key)
    first = directory.entries(b"", 5)
    os.unlink(os.path.join(os.fsencode(bound.folder), wanted[5]))
    (bound.folder / "zz").touch()
    rest = directory.entries(first[-1].name, 100)
    found = [entry.name for entry in [*first, *rest]]
    assert [name for name in found if name != b"zz"] == wanted[:5] + wanted[6:]
    for entry in first:
        assert bound.tree.lookup(bound.root.key, entry.name) == entry.node


def test_listing_what_is_no_directory_or_gone(bound: Bound) -> None:
    (bound.folder / "f").touch()
    (bound.folder / "d").mkdir()
    with raises(errno.ENOTDIR):
        bound.tree.open_directory(bound.at("f").key)
    node = bound.at("d")
    (bound.folder / "d").rmdir()
    with raises(errno.ENOENT):
        bound.tree.open_directory(node.key)


@needs_root
def test_devices_are_not_shown(bound: Bound) -> None:
    try:
        os.mknod(bound.folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices here")
    assert bound.names(bound.root) == []
    with raises(errno.ENOENT):
        bound.at("null")


def test_reading_and_writing(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"0123456789")
    node = bound.at("f")
    with open_file(bound, node) as reader, open_file(bound, node, write=True) as writer:
        assert reader.read(3, 4) == b"3456"
        assert reader.read_nowait(3, 4) in (b"3456", None)
        assert reader.read_nowait(8, 40) in (b"89", None)
        assert reader.read(10, 5) == b""
        assert writer.write(20, b"x") == 1
        assert reader.read(8, 100) == b"89" + bytes(10) + b"x"
        assert writer.write(0, b"end", append=True) == 3
        assert (bound.folder / "f").read_bytes().endswith(b"xend")
        with (bound.folder / "f").open("ab") as other:
            other.write(b"other")
        writer.write(0, b"!", append=True)
        assert (bound.folder / "f").read_bytes().endswith(b"xendother!")
        writer.truncate(2)
        assert reader.node().size == writer.node().size == 2
        assert reader.pending_copy() is None
        writer.replace(b"all new")
        assert reader.read(0, 100) == b"all new"
        writer.replace(b"")
        assert reader.read(0, 100) == b""
        writer.flush()
        writer.sync_data()
        with raises(errno.EBADF):
            reader.write(0, b"x")
        with raises(errno.EBADF):
            reader.truncate(0)


def test_handles_of_a_node_share_descriptors(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"x")
    node = bound.at("f")
    before = len(os.listdir("/proc/self/fd"))
    files = [bound.tree.open_file(node.key, write=bool(n % 2)) for n in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 2
    for file in files:
        file.close()
        file.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_program_runs_once_its_writers_are_gone(bound: Bound) -> None:
    node = bound.tree.create(bound.root.key, b"run", Kind.FILE, 0o755, US, ME)
    with open_file(bound, node) as reader:
        with open_file(bound, node, write=True) as writer:
            writer.write(0, b"#!/bin/sh\nexit 7\n")
        assert os.waitstatus_to_exitcode(os.system(str(bound.folder / "run"))) == 7
        assert reader.read(0, 2) == b"#!"


def test_only_regular_files_open(bound: Bound) -> None:
    (bound.folder / "l").symlink_to("x")
    os.mkfifo(bound.folder / "p")
    with raises(errno.EISDIR):
        bound.tree.open_file(bound.root.key, write=False)
    with raises(errno.ELOOP):
        bound.tree.open_file(bound.at("l").key, write=True)
    with raises(errno.ENXIO):
        bound.tree.open_file(bound.at("p").key, write=False)


def test_an_unlinked_open_file_still_answers(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"abc")
    node = bound.at("f")
    with open_file(bound, node, write=True) as file:
        (bound.folder / "f").unlink()
        (bound.folder / "f").write_bytes(b"another")
        assert file.write(3, b"def") == 3
        assert file.read(0, 10) == b"abcdef"
        assert file.node().size == bound.tree.stat(node.key).size == 6
        with open_file(bound, node) as again:
            assert again.read(0, 10) == b"abcdef"
        bound.tree.set_attributes(node.key, Change(mode=0o600, size=1), ME)
        assert (file.node().mode, file.node().size) == (0o600, 1)
        bound.tree.set_xattr(node.key, b"user.a", b"1", ME)
        assert bound.tree.get_xattr(node.key, b"user.a") == b"1"
        assert bound.at("f").key is not node.key
    with raises(errno.ENOENT):
        bound.tree.stat(node.key)
    with raises(errno.ENOENT):
        bound.tree.open_file(node.key, write=False)


def test_set_attributes(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"12345")
    node = bound.at("f")
    before = node.atime
    after = bound.tree.set_attributes(node.key, Change(mode=0o4711, mtime=-5), ME)
    assert (after.mode, after.atime, after.mtime) == (0o4711, before, -5)
    after = bound.tree.set_attributes(node.key, Change(atime=10**18 + 1), ME)
    assert (after.atime, after.mtime) == (10**18 + 1, -5)
    after = bound.tree.set_attributes(node.key, Change(size=9, mtime=3, ctime=1), ME)
    assert (after.size, after.mtime) == (9, 3)
    assert (bound.folder / "f").read_bytes() == b"12345" + bytes(4)
    with raises(errno.EISDIR):
        bound.tree.set_attributes(bound.root.key, Change(size=0), ME)
    if is_root:
        after = bound.tree.set_attributes(node.key, Change(uid=12, mode=0o4755), ME)
        assert (after.uid, after.gid, after.mode) == (12, node.gid, 0o4755)


def test_attributes_of_a_link_are_its_own(bound: Bound) -> None:
    (bound.folder / "f").touch()
    (bound.folder / "l").symlink_to("f")
    link, file = bound.at("l"), bound.at("f")
    change = Change(mtime=42, uid=99 if is_root else None)
    after = bound.tree.set_attributes(link.key, change, ME)
    assert after.mtime == 42
    assert bound.at("f") == file
    with raises(errno.EOPNOTSUPP):
        bound.tree.set_attributes(link.key, Change(mode=0o600), ME)
    assert bound.at("f") == file


def test_unlink_and_rmdir_and_their_errors(bound: Bound) -> None:
    (bound.folder / "d" / "e").mkdir(parents=True)
    (bound.folder / "f").write_bytes(b"content")
    top = bound.root.key
    with raises(errno.ENOTEMPTY):
        bound.tree.remove(top, b"d", ME, directory=True)
    with raises(errno.EISDIR):
        bound.tree.remove(top, b"d", ME, directory=False)
    with raises(errno.ENOTDIR):
        bound.tree.remove(top, b"f", ME, directory=True)
    with raises(errno.ENOENT):
        bound.tree.remove(top, b"g", ME, directory=None)
    assert bound.trash.origins == []
    bound.tree.remove(top, b"f", ME, directory=False)
    bound.tree.remove(bound.at("d").key, b"e", ME, directory=True)
    device = bound.folder.stat().st_dev
    assert bound.trash.origins == [
        TrashOrigin((b"f",), Kind.FILE, 7, device, ME),
        TrashOrigin((b"d", b"e"), Kind.DIR, 0, device, ME),
    ]
    assert bound.trash.entry(0).read_bytes() == b"content"
    assert bound.trash.entry(1).is_dir()
    assert os.listdir(bound.folder) == ["d"]


def test_a_whole_tree_is_removed_and_put_back(bound: Bound) -> None:
    (bound.folder / "a" / "d" / "e").mkdir(parents=True)
    (bound.folder / "a" / "d" / "e" / "f").write_bytes(b"deep")
    node = bound.at("a/d/e/f")
    bound.tree.remove(bound.at("a").key, b"d", ME, directory=None)
    with raises(errno.ENOENT):
        bound.tree.stat(node.key)
    (bound.folder / "a" / "d").mkdir()
    with raises(errno.EEXIST):
        bound.put_back("a/d")
    (bound.folder / "a" / "d").rmdir()
    bound.put_back("a/d")
    assert bound.at("a/d/e/f") == node
    bound.tree.remove(bound.at("a").key, b"d", ME, directory=None)
    (bound.folder / "a").rmdir()
    with raises(errno.ENOENT):
        bound.put_back("a/d")
    (bound.folder / "a").symlink_to("/tmp")
    with raises(errno.ENOENT):
        bound.put_back("a/d")
    (bound.folder / "a").unlink()
    (bound.folder / "a").touch()
    with raises(errno.ENOENT):
        bound.put_back("a/d")


def test_a_removed_open_file_lives_on_in_its_handles(bound: Bound) -> None:
    node = bound.tree.create(bound.root.key, b"f", Kind.FILE, 0o600, US, ME)
    with open_file(bound, node, write=True) as file:
        bound.tree.remove(bound.root.key, b"f", ME, directory=False)
        file.write(0, b"late")
        assert file.read(0, 10) == b"late"
        assert bound.tree.stat(node.key).size == 4
    with raises(errno.ENOENT):
        bound.tree.stat(node.key)


def test_rename(bound: Bound) -> None:
    (bound.folder / "d").mkdir()
    (bound.folder / "e" / "full").mkdir(parents=True)
    (bound.folder / "a").write_bytes(b"a")
    (bound.folder / "b").write_bytes(b"b")
    top, d, a = bound.root.key, bound.at("d"), bound.at("a")
    rename = bound.tree.rename
    with raises(errno.EEXIST):
        rename(top, b"a", top, b"b", ME, replace=False)
    with raises(errno.ENOENT):
        rename(top, b"x", top, b"y", ME, replace=True)
    with raises(errno.EISDIR):
        rename(top, b"a", top, b"d", ME, replace=True)
    with raises(errno.ENOTDIR):
        rename(top, b"d", top, b"a", ME, replace=True)
    with raises(errno.ENOTEMPTY):
        rename(top, b"d", top, b"e", ME, replace=True)
    with raises(errno.EINVAL):
        rename(top, b"d", d.key, b"inside", ME, replace=True)
    rename(top, b"a", d.key, b"b", ME, replace=False)
    assert bound.at("d/b").key is a.key
    assert bound.tree.stat(a.key).size == 1
    rename(top, b"b", d.key, b"b", ME, replace=True)
    assert (bound.folder / "d" / "b").read_bytes() == b"b"
    with raises(errno.ENOENT):
        bound.tree.stat(a.key)
    inner = bound.at("d/b")
    rename(top, b"d", bound.at("e").key, b"d2", ME, replace=True)
    assert bound.tree.stat(inner.key).key is bound.at("e/d2/b").key is inner.key
    e, inside = bound.at("e"), bound.at("e/full")
    rename(top, b"e", top, b"e", ME, replace=True)
    assert bound.tree.stat(e.key).key is e.key
    rename(e.key, b"full", d.key, b"b", ME, replace=False, exchange=True)
    assert bound.at("e/full").key is inner.key
    assert bound.at("e/d2/b").key is inside.key
    with raises(errno.ENOENT):
        rename(e.key, b"full", d.key, b"zz", ME, replace=False, exchange=True)


def test_extended_attributes(bound: Bound) -> None:
    (bound.folder / "f").touch()
    node = bound.at("f")
    tree = bound.tree
    assert not node.xattrs
    tree.set_xattr(node.key, b"user.one", b"\0\xff", ME)
    tree.set_xattr(node.key, b"user.two", b"", ME)
    assert sorted(tree.list_xattrs(node.key)) == [b"user.one", b"user.two"]
    assert tree.get_xattr(node.key, b"user.one") == b"\0\xff"
    assert bound.at("f").xattrs and tree.stat(node.key).xattrs
    tree.remove_xattr(node.key, b"user.two", ME)
    for name in (b"user.two", b"security.selinux", b"trusted.x"):
        with raises(errno.ENODATA):
            tree.get_xattr(node.key, name)
    with raises(errno.ENODATA):
        tree.remove_xattr(node.key, b"user.two", ME)
    with raises(errno.EOPNOTSUPP):
        tree.set_xattr(node.key, b"trusted.x", b"", ME)
    (bound.folder / "l").symlink_to("f")
    link = bound.at("l")
    assert tree.list_xattrs(link.key) == []
    with raises(errno.ENODATA):
        tree.get_xattr(link.key, b"user.one")


def test_sync(bound: Bound) -> None:
    for number in range(3):
        bound.tree.create(bound.root.key, b"%d" % number, Kind(number + 1), 0o700, US, ME,
                          target=b"x")  # fmt: skip
    bound.tree.remove(bound.root.key, b"0", ME, directory=None)
    bound.tree.sync()
    for number in range(100):
        bound.tree.create(bound.root.key, b"f%d" % number, Kind.FILE, 0o600, US, ME)
    bound.tree.sync()
    bound.tree.sync()


def test_no_descriptor_is_left_open(bound: Bound) -> None:
    before = len(os.listdir("/proc/self/fd"))
    tree, top = bound.tree, bound.root.key
    directory = tree.create(top, b"d", Kind.DIR, 0o755, US, ME)
    file = tree.create(directory.key, b"f", Kind.FILE, 0o644, US, ME)
    tree.set_attributes(file.key, Change(mode=0o600, size=3, atime=1), ME)
    bound.names(directory)
    for action in (
        lambda: tree.lookup(top, b"x"),
        lambda: tree.create(top, b"d", Kind.DIR, 0o755, US, ME),
        lambda: tree.remove(top, b"d", ME, directory=True),
        lambda: tree.rename(top, b"d", directory.key, b"x", ME, replace=True),
        lambda: tree.open_file(top, write=True),
        lambda: tree.read_link(top),
    ):
        with pytest.raises(OSError):
            action()
    tree.rename(directory.key, b"f", top, b"f", ME, replace=True)
    tree.remove(top, b"f", ME, directory=None)
    tree.sync()
    assert len(os.listdir("/proc/self/fd")) == before
