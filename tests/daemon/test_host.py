"""Host directories change behind our back; a watch tells of it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

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


def test_unlinked_on_the_host_while_open(mounted: Mounted, host: Path) -> None:
    (host / "f").write_bytes(b"kept")
    with (mounted.point / "h" / "f").open("rb", buffering=0) as file:
        (host / "f").unlink()
        until(lambda: not (mounted.point / "h" / "f").exists(), SOON)
        assert file.read() == b"kept"
        assert os.fstat(file.fileno()).st_size == 4
