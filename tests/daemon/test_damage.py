"""What the disk has changed: that file is an error, and nothing else is touched by it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from tests.daemon.conftest import World

LARGE = b"".join(b"%07d\n" % number for number in range(40_000))
SMALL = b"one of a kind, and small"


def _turn_a_bit(file: Path, at: int) -> None:
    mode = file.stat().st_mode
    file.chmod(0o600)
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 4]))
    file.chmod(mode & 0o777)


def _refused(path: Path, mode: str = "rb") -> None:
    with pytest.raises(OSError) as caught, path.open(mode) as file:
        if mode == "rb":
            file.read()
        else:
            file.write(b"?")
    assert caught.value.errno == errno.EIO


def test_damaged_content_is_eio_and_writing_it_again_mends_it(world: World) -> None:
    with world.opened() as session:
        session.write("/large", LARGE)
        session.write("/other", LARGE[1:])
        session.write("/small", SMALL)
        session.write("/sound", b"sound")
    data = world.folder / "data.mdb"
    for found in re.finditer(SMALL, data.read_bytes()):  # older pages hold it as well
        _turn_a_bit(data, found.start())
    files = sorted((world.folder / "objects").glob("*/*"))
    large = next(file for file in files if file.read_bytes() == LARGE)
    _turn_a_bit(large, 150_000)

    mounted = world.mount()
    view = mounted.point
    for name in ("large", "small"):
        _refused(view / name)
        assert (view / name).stat().st_size == len(LARGE if name == "large" else SMALL)
    _refused(view / "large", "r+b")  # what is damaged is not copied into what is new
    assert (view / "sound").read_bytes() == b"sound"
    assert (view / "other").read_bytes() == LARGE[1:]
    with (view / "large").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 100, 0) == LARGE[:100]
    assert "is damaged (`fusefs check` says what else is)" in mounted.words
    (view / "large").write_bytes(LARGE)
    (view / "small").write_bytes(SMALL)
    assert mounted.stop() == 0

    mounted.start()
    assert (view / "large").read_bytes() == LARGE
    assert (view / "small").read_bytes() == SMALL


def test_a_cut_and_a_missing_object_are_eio(world: World) -> None:
    with world.opened() as session:
        session.write("/cut", LARGE)
        session.write("/gone", LARGE[1:])
    for file in (world.folder / "objects").glob("*/*"):
        if file.read_bytes() == LARGE:
            file.chmod(0o600)
            os.truncate(file, 70_000)
        else:
            file.unlink()
    view = world.mount().point
    _refused(view / "cut")
    _refused(view / "gone")
    with (view / "cut").open("rb", buffering=0) as opened:
        assert os.pread(opened.fileno(), 10, 0) == LARGE[:10]
    assert sorted(os.listdir(view)) == ["cut", "gone"]
