"""Nothing leads out of a bound folder, whatever the host's programs do meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusefs.contract.kinds import Kind
from fusefs.tree import host_paths
from fusefs.tree.backend import Change
from tests.tree.host_folder import ME, US, Bound, open_file, raises


@pytest.fixture(params=["openat2", "by steps"])
def bound(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
          ) -> Iterator[Bound]:  # fmt: skip
    if request.param == "by steps":
        monkeypatch.setattr(host_paths._walk, "_openat2", False)
    made = Bound(tmp_path)
    outside = tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    (outside / "secret").write_bytes(b"secret")
    (outside / "d" / "secret").write_bytes(b"secret")
    yield made
    made.tree.close()


def attempts(bound: Bound, directory: object, file: object) -> list[Callable[[], object]]:
    """Everything that can be asked of a directory and of a file in it, by their keys."""
    tree, top = bound.tree, bound.root.key
    return [
        lambda: tree.stat(directory),
        lambda: tree.lookup(directory, b"secret"),
        lambda: tree.open_directory(directory),
        lambda: tree.create(directory, b"new", Kind.FILE, 0o644, US, ME),
        lambda: tree.create(directory, b"new", Kind.DIR, 0o755, US, ME),
        lambda: tree.remove(directory, b"secret", ME, directory=None),
        lambda: tree.rename(directory, b"secret", top, b"loot", ME, replace=True),
        lambda: tree.rename(top, b"bait", directory, b"secret", ME, replace=True),
        lambda: tree.set_attributes(directory, Change(mode=0o777), ME),
        lambda: tree.stat(file),
        lambda: tree.open_file(file, write=False),
        lambda: tree.open_file(file, write=True),
        lambda: tree.set_attributes(file, Change(size=0), ME),
        lambda: tree.set_attributes(file, Change(mode=0o777, atime=1), ME),
        lambda: tree.set_xattr(file, b"user.x", b"", ME),
        lambda: tree.list_xattrs(file),
        lambda: tree.read_link(file),
    ]


@pytest.mark.parametrize("target", ["../outside/d", "absolute", "."])
def test_a_directory_swapped_for_a_link(bound: Bound, target: str) -> None:
    outside = bound.folder.parent / "outside"
    inside = bound.folder / "d"
    inside.mkdir()
    (inside / "secret").write_bytes(b"mine")
    (bound.folder / "bait").touch()
    directory, file = bound.at("d").key, bound.at("d/secret").key
    inside.rename(bound.folder / "was")
    inside.symlink_to(outside / "d" if target == "absolute" else target)
    for attempt in attempts(bound, directory, file):
        with raises(errno.ENOENT):
            attempt()
    link = bound.at("d")
    assert link.kind == Kind.SYMLINK
    for action in (
        lambda: bound.tree.lookup(link.key, b"secret"),
        lambda: bound.tree.open_directory(link.key),
        lambda: bound.tree.create(link.key, b"new", Kind.FILE, 0o644, US, ME),
    ):
        with raises(errno.ENOTDIR):
            action()
    assert (outside / "d" / "secret").read_bytes() == b"secret"
    assert os.listdir(outside / "d") == ["secret"]


def test_a_directory_moved_out_is_gone(bound: Bound) -> None:
    outside = bound.folder.parent / "outside"
    (bound.folder / "d").mkdir()
    (bound.folder / "d" / "secret").write_bytes(b"mine")
    (bound.folder / "bait").touch()
    directory, file = bound.at("d").key, bound.at("d/secret").key
    listing = bound.tree.open_directory(directory)
    (bound.folder / "d").rename(outside / "taken")
    (bound.folder / "d").symlink_to(outside / "taken")
    for attempt in [*attempts(bound, directory, file), lambda: listing.entries(b"", 10)]:
        with raises(errno.ENOENT):
            attempt()
    (bound.folder / "d").unlink()
    (bound.folder / "d").mkdir()
    (bound.folder / "d" / "secret").write_bytes(b"new")
    for attempt in attempts(bound, directory, file):
        with raises(errno.ENOENT):
            attempt()


def test_put_back_follows_no_link(bound: Bound) -> None:
    (bound.folder / "f").write_bytes(b"x")
    bound.tree.remove(bound.root.key, b"f", ME, directory=None)
    (bound.folder / "d").symlink_to("../outside")
    with raises(errno.ENOENT):
        bound.put_back("d/f")
    with raises(errno.ENOENT):
        bound.put_back("d/d/f")
    for path in ("../f", "a/../f", "./f"):
        with raises(errno.EINVAL):
            bound.put_back(path)


def test_a_racing_swap_never_leads_out(bound: Bound) -> None:
    """One thread swaps a directory and a link to its like outside as fast as it can."""
    outside = bound.folder.parent / "outside"
    inside = bound.folder / "p" / "d"
    inside.mkdir(parents=True)
    (inside / "secret").write_bytes(b"mine")
    (outside / "d" / "secret").chmod(0o600)
    hidden, link = bound.folder / "p" / "hidden", bound.folder / "p" / "link"
    link.symlink_to("../../outside/d")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            inside.rename(hidden)
            link.rename(inside)
            inside.rename(link)
            hidden.rename(inside)

    directory, file = bound.at("p/d").key, bound.at("p/d/secret").key
    thread = threading.Thread(target=swap)
    thread.start()
    done = 0
    try:
        for number in range(1_000_000):
            if done == 20:
                break
            try:
                assert bound.tree.stat(file).size == 4
                handle = bound.tree.open_file(file, write=True)
                assert handle.read(0, 10) == b"mine"
                handle.close()
                bound.tree.create(directory, b"n%d" % number, Kind.FILE, 0o644, US, ME)
                bound.tree.set_attributes(file, Change(mode=0o640), ME)
                bound.tree.rename(directory, b"n%d" % number, directory, b"n", ME, replace=True)
                assert [e.name for e in bound.tree.open_directory(directory).entries(b"", 2)]
                done += 1
            except FileNotFoundError:
                pass
    finally:
        stop.set()
        thread.join()
    assert done == 20
    assert os.listdir(outside / "d") == ["secret"]
    assert (outside / "d" / "secret").read_bytes() == b"secret"
    assert (outside / "d" / "secret").stat().st_mode & 0o777 == 0o600


def test_paths_longer_than_path_max(bound: Bound) -> None:
    name = b"n" * 200
    node, depth = bound.root, 30
    for _ in range(depth):
        node = bound.tree.create(node.key, name, Kind.DIR, 0o755, US, ME)
    file = bound.tree.create(node.key, b"f", Kind.FILE, 0o644, US, ME)
    with open_file(bound, file, write=True) as handle:
        handle.write(0, b"deep")
    assert bound.tree.stat(file.key).size == 4
    with open_file(bound, file) as handle:
        assert handle.read(0, 9) == b"deep"
    assert bound.names(node) == [b"f"]
    bound.tree.rename(node.key, b"f", bound.root.key, b"up", ME, replace=False)
    assert (bound.folder / "up").read_bytes() == b"deep"
    bound.tree.create(node.key, b"l", Kind.SYMLINK, 0o777, US, ME, target=b"x" * 4000)
    assert len(bound.tree.read_link(bound.tree.lookup(node.key, b"l").key)) == 4000
    inner = bound.tree.create(node.key, b"d", Kind.DIR, 0o755, US, ME)
    bound.tree.remove(node.key, b"d", ME, directory=True)
    with raises(errno.ENOENT):
        bound.tree.stat(inner.key)
    bound.tree.remove(bound.root.key, name, ME, directory=None)
    with raises(errno.ENOENT):
        bound.tree.stat(node.key)
    assert len(bound.trash.origins) == 2


def test_names_that_are_no_text(bound: Bound) -> None:
    name = bytes(set(range(1, 256)) - {0x2F})
    file = bound.tree.create(bound.root.key, name, Kind.FILE, 0o644, US, ME)
    other = bytes(reversed(name))
    bound.tree.rename(bound.root.key, name, bound.root.key, other, ME, replace=False)
    assert bound.names(bound.root) == [other]
    assert bound.tree.lookup(bound.root.key, other).key is file.key
    bound.tree.remove(bound.root.key, other, ME, directory=False)
    assert bound.trash.origins[0].path == (other,)
    assert os.listdir(bound.folder) == []
