"""Huge files of holes in mounts: hashing them stands in nobody's way, and ends when it should."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fusefs.store.content import LARGEST
from tests.daemon.conftest import Mounted, World, until


def hashed(mounted: Mounted) -> set[str]:
    """Return the scratch files that the mount's process has open."""
    folder = Path(f"/proc/{mounted.process.pid}/fd")
    found = set()
    for fd in os.listdir(folder):
        try:
            target = os.readlink(folder / fd)
        except FileNotFoundError:
            continue
        if "/scratch/" in target:
            found.add(target)
    return found


def make(path: Path) -> None:
    path.touch()
    os.truncate(path, LARGEST)


def test_a_huge_file_is_in_nobodys_way(world: World) -> None:
    one, other = world.mount("all"), world.mount("all")
    names = ("a", "b", "c", "d")
    for name in names:
        make(one.point / name)
    (one.point / "small").touch()
    with pytest.raises(OSError) as caught:
        os.truncate(one.point / "small", LARGEST + 1)
    assert caught.value.errno == errno.EFBIG
    theirs = other.point / "d"
    until(lambda: theirs.exists() and theirs.stat().st_size == LARGEST)
    for mounted in (one, other):
        with pytest.raises(OSError) as caught:
            os.getxattr(mounted.point / "d", "user.fusefs.sha256")
        assert caught.value.errno == errno.ENODATA
    assert hashed(one)
    (one.point / "a").unlink()
    (other.point / "b").unlink()
    until(lambda: len(hashed(one)) == 2)
    assert one.stop() == 0
    with world.opened() as session:
        assert session.stat("/c").size == LARGEST
