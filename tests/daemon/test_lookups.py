"""What the kernel was told of is known for as long as it knows it, and no longer."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from fusefs.daemon.guard import UnknownHandle, UnknownInode
from fusefs.daemon.handles import HandleTable
from fusefs.daemon.inodes import InodeTable
from fusefs.daemon.listings import Listings
from tests.daemon.conftest import World, until


class _Place:
    face: object = None


def drop_caches() -> None:
    Path("/proc/sys/vm/drop_caches").write_text("2")


def test_an_inode_lives_as_long_as_it_is_counted() -> None:
    table = InodeTable(_Place())  # type: ignore[arg-type]
    spot: Any = _Place()
    inode = table.know(spot, 77)
    inode.lookups += 1
    assert table.know(spot, 77) is inode
    inode.lookups += 1
    table.forget([(77, 1)])
    assert table.by_number[77] is inode
    table.forget([(77, 1), (4711, 3)])
    with pytest.raises(UnknownInode):
        table.by_number[77]
    assert table.at(spot) is None


def test_an_open_file_keeps_its_inode() -> None:
    table = InodeTable(_Place())  # type: ignore[arg-type]
    inode = table.know(_Place(), 77)  # type: ignore[arg-type]
    handle: Any = object()
    inode.lookups += 1
    inode.opened(handle)
    table.forget([(77, 1)])
    assert table.by_number[77] is inode
    inode.closed(handle)
    table.drop_unused(inode)
    assert 77 not in table.by_number


def test_a_listing_is_kept_as_long_as_its_directory_is_known() -> None:
    table, listings = InodeTable(_Place()), Listings()  # type: ignore[arg-type]
    table.on_drop.append(listings.drop)
    directories = [table.know(_Place(), wanted) for wanted in (77, 78)]  # type: ignore[arg-type]
    shown: Any = object()
    for directory in directories:
        directory.lookups += 1
        listings.keep(directory, 1, [shown, shown])
    table.forget([(77, 1)])
    assert listings.get(directories[0], 1) is None
    assert listings.get(directories[1], 1) == [shown, shown]


def test_two_places_never_share_a_number() -> None:
    table = InodeTable(_Place())  # type: ignore[arg-type]
    inodes = [table.know(_Place(), wanted) for wanted in (77, 77, 77, 1, 0)]  # type: ignore[arg-type]
    assert len({inode.number for inode in inodes}) == 5
    assert all(1 < inode.number < 1 << 64 for inode in inodes)


def test_the_root_is_never_forgotten() -> None:
    table = InodeTable(_Place())  # type: ignore[arg-type]
    table.forget([(1, 1000)])
    assert table.by_number[1] is table.root


def test_handles_are_small_numbers() -> None:
    table: HandleTable[str] = HandleTable()
    assert [table.add(c) for c in "abc"] == [1, 2, 3]
    assert table.remove(2) == "b"
    assert table.add("d") == 2
    assert table.add("e") == 4
    with pytest.raises(UnknownHandle):
        table.by_number[9]
    assert table.remove_all() == ["a", "c", "d", "e"]
    assert table.add("f") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_kernels_counts_and_ours_agree(world: World) -> None:
    mounted = world.mount()
    view = mounted.point

    def work(number: int) -> None:
        top = view / f"w{number}"
        for turn in range(5):
            top.mkdir()
            for name in range(20):
                (top / f"f{name}").write_bytes(b"x")
                os.symlink("x", top / f"l{name}")
                os.mkfifo(top / f"p{name}")
            list(os.scandir(top))
            for name in range(20):
                os.rename(top / f"f{name}", top / f"g{name}")
                assert not (top / f"f{name}").exists()
            list(os.scandir(top))
            if turn < 4:
                subprocess.run(["rm", "-r", top], check=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mounted.ask("inodes") > 4 * 60

    def only_the_root() -> bool:
        drop_caches()
        return mounted.ask("inodes") == 1

    until(only_the_root)
    assert mounted.ask("files") == 0
    for number in range(4):
        assert len(os.listdir(view / f"w{number}")) == 60
        assert (view / f"w{number}" / "g3").read_bytes() == b"x"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_open_unlinked_file_outlives_dropped_caches(world: World) -> None:
    view = world.mount().point
    file = view / "f"
    file.write_bytes(b"still here")
    fd = os.open(file, os.O_RDWR)
    cwd = os.open(view, os.O_RDONLY)
    os.unlink(file)
    for _ in range(3):
        drop_caches()
    assert os.pread(fd, 100, 0) == b"still here"
    assert os.fstat(fd).st_size == 10
    os.close(fd)
    os.close(cwd)
