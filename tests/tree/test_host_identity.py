"""What a node of a bound folder is known by."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.tree import host_calls
from fusefs.tree.host_mounts import Mount, parse_mounts
from fusefs.tree.host_trash import move_entry
from fusefs.tree.host_tree import HostTree
from tests.tree.host_folder import ME, Bound, open_file, raises


@pytest.fixture(params=["handles", "inode numbers"])
def bound(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
          ) -> Iterator[Bound]:  # fmt: skip
    if request.param == "inode numbers":
        monkeypatch.setattr(host_calls, "file_handle", lambda fd: None)
    made = Bound(tmp_path)
    yield made
    made.tree.close()


def test_stays_through_renames_by_us_and_by_others(bound: Bound) -> None:
    (bound.folder / "a" / "b").mkdir(parents=True)
    (bound.folder / "a" / "b" / "f").write_bytes(b"x")
    (bound.folder / "z").mkdir()
    file = bound.at("a/b/f").key
    identity = bound.tree.identity(file)
    bound.tree.rename(bound.root.key, b"a", bound.at("z").key, b"c", ME, replace=True)
    assert bound.tree.stat(file).key is file
    (bound.folder / "z" / "c").rename(bound.folder / "d")
    with raises(errno.ENOENT):
        bound.tree.stat(file)
    bound.at("d")
    assert bound.tree.stat(file).key is file
    assert bound.at("d/b/f").key is file
    (bound.folder / "d" / "b" / "f").rename(bound.folder / "g")
    assert bound.at("g").key is file
    assert bound.tree.identity(file) == identity


def test_is_the_same_in_another_process_and_after_a_rest(bound: Bound) -> None:
    (bound.folder / "f").touch()
    (bound.folder / "g").touch()
    os.link(bound.folder / "g", bound.folder / "h")
    names = ("f", "g", "h")
    identities = [bound.tree.identity(bound.at(name).key) for name in names]
    assert len({*identities, bound.tree.identity(bound.root.key)}) == 4
    gc.collect()
    assert [bound.tree.identity(bound.at(name).key) for name in names] == identities
    other = HostTree(str(bound.folder), bound.trash)
    top = other.root().key
    assert [other.identity(other.lookup(top, os.fsencode(name)).key) for name in names] == (
        identities
    )
    other.close()


def test_a_new_file_at_an_old_place_is_another(bound: Bound) -> None:
    (bound.folder / "f").touch()
    node = bound.at("f")
    keep = os.open(bound.folder / "f", os.O_PATH)  # else its inode number may come again
    (bound.folder / "f").unlink()
    (bound.folder / "f").touch()
    assert bound.at("f").key is not node.key
    os.close(keep)
    with raises(errno.ENOENT):
        bound.tree.stat(node.key)


def test_an_inode_number_that_comes_again_is_another_node(bound: Bound, tmp_path: Path) -> None:
    bound.trash.folder = Path("/dev/shm") if os.path.isdir("/dev/shm") else bound.trash.folder
    bound.trash.folder = bound.trash.folder / f"host-identity-{os.getpid()}"
    bound.trash.folder.mkdir()
    try:
        for _ in range(5):
            (bound.folder / "f").touch()
            node = bound.at("f")
            bound.tree.remove(bound.root.key, b"f", ME, directory=False)
            (bound.folder / "f").touch()
            assert bound.at("f").key is not node.key
            (bound.folder / "f").unlink()
    finally:
        place = os.open(bound.trash.folder.parent, os.O_PATH)
        os.mkdir(tmp_path / "bin")
        target = os.open(tmp_path / "bin", os.O_PATH)
        move_entry(place, os.fsencode(bound.trash.folder.name), target, b"x")
        os.close(place)
        os.close(target)


def test_names_of_one_inode_are_two_nodes(bound: Bound) -> None:
    (bound.folder / "d").mkdir()
    (bound.folder / "a").write_bytes(b"shared")
    os.link(bound.folder / "a", bound.folder / "d" / "b")
    a, b = bound.at("a"), bound.at("d/b")
    assert a.key is not b.key
    assert bound.tree.identity(a.key) != bound.tree.identity(b.key)
    with open_file(bound, a, write=True) as writer, open_file(bound, b) as reader:
        writer.write(0, b"S")
        assert reader.read(0, 10) == b"Shared"
    bound.tree.rename(bound.root.key, b"a", bound.root.key, b"c", ME, replace=True)
    assert bound.at("c").key is a.key
    assert bound.tree.stat(b.key) == bound.at("d/b")
    os.link(bound.folder / "c", bound.folder / "a")
    third = bound.at("a")
    assert third.key not in (a.key, b.key)
    assert len({bound.tree.identity(node.key) for node in (a, b, third)}) == 3


def test_a_node_outlives_a_change_of_its_link_count(bound: Bound) -> None:
    (bound.folder / "a").write_bytes(b"x")
    a = bound.at("a")
    os.link(bound.folder / "a", bound.folder / "b")
    assert bound.at("a").key is a.key
    b = bound.at("b")
    assert b.key is not a.key
    (bound.folder / "a").unlink()
    assert bound.at("b").key is b.key
    with raises(errno.ENOENT):
        bound.tree.stat(a.key)


def test_renaming_one_link_to_another_leaves_one(bound: Bound) -> None:
    (bound.folder / "a").write_bytes(b"x")
    os.link(bound.folder / "a", bound.folder / "b")
    a, b = bound.at("a"), bound.at("b")
    top = bound.root.key
    with raises(errno.EEXIST):
        bound.tree.rename(top, b"a", top, b"b", ME, replace=False)
    bound.tree.rename(top, b"a", top, b"b", ME, replace=True)
    assert os.listdir(bound.folder) == ["b"]
    assert bound.at("b").key is a.key is not b.key
    bound.tree.rename(top, b"b", top, b"b", ME, replace=True)
    assert os.listdir(bound.folder) == ["b"]


def test_links_nobody_looked_up_are_renamed_too(bound: Bound) -> None:
    (bound.folder / "a").write_bytes(b"x")
    os.link(bound.folder / "a", bound.folder / "b")
    bound.tree.rename(bound.root.key, b"a", bound.root.key, b"b", ME, replace=True)
    assert os.listdir(bound.folder) == ["b"]


def test_an_exchange_of_two_links(bound: Bound) -> None:
    (bound.folder / "a").write_bytes(b"x")
    os.link(bound.folder / "a", bound.folder / "b")
    a, b = bound.at("a"), bound.at("b")
    top = bound.root.key
    bound.tree.rename(top, b"a", top, b"b", ME, replace=True, exchange=True)
    assert (bound.at("a").key, bound.at("b").key) == (b.key, a.key)


def test_no_node_becomes_its_own_ancestor(bound: Bound) -> None:
    (bound.folder / "a" / "b").mkdir(parents=True)
    a, b = bound.at("a"), bound.at("a/b")
    (bound.folder / "a" / "b").rename(bound.folder / "b")
    (bound.folder / "a").rename(bound.folder / "b" / "a")
    with raises(errno.ENOENT):
        bound.tree.lookup(b.key, b"a")
    assert bound.at("b").key is b.key
    assert bound.at("b/a").key is a.key


def test_the_mount_table_is_read() -> None:
    text = (
        rb"22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda rw" + b"\n"
        rb"40 22 0:35 / /a\040b rw - fuse.fusefs session rw" + b"\n"
    )
    assert parse_mounts(text) == [Mount(22, b"/", b"ext4"), Mount(40, b"/a b", b"fuse.fusefs")]


def mount(source: bytes, target: Path, kind: bytes, flags: int, options: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), options):
        pytest.skip(f"mounting is not possible here: {os.strerror(ctypes.get_errno())}")


@pytest.fixture
def mount_point(bound: Bound) -> Iterator[Path]:
    point = bound.folder / "m"
    point.mkdir()
    yield point
    ctypes.CDLL(None).umount2(os.fsencode(point), 2)  # MNT_DETACH


def test_a_view_mounted_below_is_not_there(bound: Bound, mount_point: Path) -> None:
    """Nobody serves it: to ask it anything would be to wait."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("no FUSE here")
    before = bound.at("m")
    timer = threading.Timer(10, os.close, (device,))  # what waits then fails
    timer.start()
    try:
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
        mount(b"session", mount_point, b"fuse.fusefs", 0, options)
        with raises(errno.ENOENT):
            bound.at("m")
        with raises(errno.ENOENT):
            bound.tree.stat(before.key)
        assert bound.names(bound.root) == []
        with raises(errno.ENOENT):
            bound.tree.remove(bound.root.key, b"m", ME, directory=None)
        assert timer.is_alive()
    finally:
        timer.cancel()
        os.close(device)


def test_a_directory_bound_at_two_places_is_two_nodes(bound: Bound, mount_point: Path) -> None:
    (bound.folder / "d" / "e").mkdir(parents=True)
    (bound.folder / "d" / "f").write_bytes(b"x")
    mount(os.fsencode(bound.folder / "d"), mount_point, b"", 4096, b"")  # MS_BIND
    for name in ("", "/e", "/f"):
        one, other = bound.at("d" + name), bound.at("m" + name)
        assert one.key is not other.key
        assert bound.tree.identity(one.key) != bound.tree.identity(other.key)
        assert bound.tree.stat(one.key).key is one.key
    with raises(errno.EXDEV):
        bound.tree.rename(bound.at("m").key, b"f", bound.root.key, b"f", ME, replace=True)
    with raises(errno.EBUSY):
        bound.tree.remove(bound.root.key, b"m", ME, directory=None)
    bound.tree.remove(bound.at("m").key, b"f", ME, directory=False)
    assert bound.trash.entry().read_bytes() == b"x"
