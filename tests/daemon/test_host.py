"""Host directories change behind our back; a watch tells of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from fusefs.store.definitions import BindSpec
from fusefs.store.instance import Instance
from fusefs.tree.tree import HOST
from tests.daemon.conftest import Mounted, World, until

SOON = 0.8
"""Seconds that a change told by a watch takes at most; without one it is a whole second."""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    made.mkdir()
    return made


@pytest.fixture
def mounted(world: World, host: Path) -> Mounted:
    with Instance.open(world.folder) as instance:
        instance.binds.put((b"h",), BindSpec(HOST, str(host)), "-")
    return world.mount()


def test_others_changes_are_seen_soon(mounted: Mounted, host: Path) -> None:
    view = mounted.point / "h"
    assert os.listdir(view) == []
    assert not (view / "new").exists()
    (host / "new").write_bytes(b"one")
    until((view / "new").exists, SOON)
    assert os.listdir(view) == ["new"]
    assert (view / "new").read_bytes() == b"one"
    (host / "new").write_bytes(b"two")
    until(lambda: (view / "new").read_bytes() == b"two", SOON)
    (host / "new").chmod(0o600)
    until(lambda: (view / "new").stat().st_mode & 0o777 == 0o600, SOON)
    times = view.stat().st_mtime_ns
    (host / "new").rename(host / "moved")
    until(lambda: not (view / "new").exists(), SOON)
    assert view.stat().st_mtime_ns > times
    (host / "moved").unlink()
    until(lambda: not (view / "moved").exists(), SOON)


def test_a_name_that_stands_for_another_file(mounted: Mounted, host: Path) -> None:
    view = mounted.point / "h"
    (host / "f").write_bytes(b"one")
    assert (view / "f").read_bytes() == b"one"
    (host / "g").write_bytes(b"two")
    os.utime(host / "g", ns=(1, 1))
    os.rename(host / "g", host / "f")
    until(lambda: (view / "f").read_bytes() == b"two", SOON)


def test_what_the_mount_does_disturbs_nobody_who_works_there(mounted: Mounted, host: Path) -> None:
    script = """
        set -e
        cd "$1/h"; mkdir build; cd build
        for turn in 1 2 3 4 5 6 7 8 9 10; do
            mkdir "d$turn"; cd "d$turn"; echo x > file; mv file moved; cat moved > copy; rm moved
            sleep 0.01; /bin/pwd > /dev/null; cd ..; rmdir "d$turn" 2> /dev/null || true
        done
        sleep 0.1; /bin/pwd
    """
    done = subprocess.run(
        ["sh", "-c", script, "sh", mounted.point], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{mounted.point}/h/build\n", done.stderr
    assert len(list(host.rglob("copy"))) == 10


def test_writing_and_reading_back(mounted: Mounted, host: Path) -> None:
    view = mounted.point / "h"
    data = os.urandom(3_000_000)
    (view / "f").write_bytes(data)
    assert (view / "f").read_bytes() == (host / "f").read_bytes() == data
    with (view / "f").open("r+b") as file:
        file.seek(1000)
        file.write(b"here")
    assert (host / "f").read_bytes()[1000:1004] == b"here"


def test_a_change_without_an_event_is_seen_in_time(mounted: Mounted, host: Path) -> None:
    view = mounted.point / "h"
    (host / "f").write_bytes(b"one")
    os.link(host / "f", host.parent / "elsewhere")
    assert (view / "f").read_bytes() == b"one"
    time.sleep(0.02)  # the file's time must differ
    (host.parent / "elsewhere").write_bytes(b"two")
    until(lambda: (view / "f").read_bytes() == b"two", 5)


@pytest.fixture
def disk(host: Path) -> Iterator[Path]:
    """A file system of its own at `host`, which the test may unmount."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a tmpfs")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "disk", host], check=True)
    yield host
    if host.is_mount():
        subprocess.run(["umount", host], check=True)


def test_an_unbound_folder_is_let_go(disk: Path, mounted: Mounted, world: World) -> None:
    (disk / "d").mkdir()
    view = mounted.point / "h"

    def can_be_unmounted() -> bool:
        return subprocess.run(["umount", disk], capture_output=True, check=False).returncode == 0

    def write(path: Path) -> TextIO:
        file = path.open("w")
        file.write("before ")
        file.flush()
        return file

    # Bound again it is another backend, which is watched and let go as well.
    for number in range(2):
        assert os.listdir(view) == ["d", "f"][: number + 1]
        assert os.listdir(view / "d") == []
        with write(view / "f") as file:
            with Instance.open(world.folder) as instance:
                instance.binds.remove((b"h",), "-")
            until(lambda: not (view / "d").exists())
            assert not can_be_unmounted()  # a file is open
            file.write("and after")
            file.flush()
            os.fsync(file.fileno())
            assert os.fstat(file.fileno()).st_size == len("before and after")
        assert (disk / "f").read_text() == "before and after"
        if number == 0:
            with Instance.open(world.folder) as instance:
                instance.binds.put((b"h",), BindSpec(HOST, str(disk)), "-")
            until((view / "d").exists)
            (disk / "d" / "new").touch()
            until((view / "d" / "new").exists)
            (disk / "d" / "new").unlink()
    until(can_be_unmounted)
    assert "Traceback" not in mounted.log.read_text()


def test_unlinked_on_the_host_while_open(mounted: Mounted, host: Path) -> None:
    (host / "f").write_bytes(b"kept")
    with (mounted.point / "h" / "f").open("rb", buffering=0) as file:
        (host / "f").unlink()
        until(lambda: not (mounted.point / "h" / "f").exists(), SOON)
        assert file.read() == b"kept"
        assert os.fstat(file.fileno()).st_size == 4
