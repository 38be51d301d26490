"""A full disk: a working copy that cannot begin is in nobody's way, and begins once it can."""

from __future__ import annotations

import errno
import gc
import os
import time
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.store.instance import Instance
from fusefs.tree.instance_care import check
from tests.daemon.conftest import Mounted, until
from tests.repositories.place import add_mount, add_session, make_source


def fill(file: Path) -> None:
    """Take all the room there is."""
    with file.open("wb", buffering=0) as writer:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    writer.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def never(seconds: float) -> None:
    raise AssertionError("nobody is answered meanwhile")


def refused(session: Session) -> tuple[int | None, str]:
    with pytest.raises(OSError) as caught:
        session.listing("/proj")
    return caught.value.errno, str(caught.value)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_working_copy_that_cannot_begin_is_in_nobodys_way(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    source = make_source(tmp_path / "source", lambda top: (top / "f").write_bytes(b"theirs"))
    folder = small_disk / "instance"
    Instance.init(folder).close()
    with Instance.open(folder, deferred=deferred) as instance:
        Session(instance).mkdir("/proj")
        add_mount(instance, source)
        session = add_session(instance)
        session.write("/mine", b"mine")
        instance.commit()
        filler = small_disk / "filler"
        fill(filler)
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", never)
            for _ in range(2):
                listing = session.listing("/")
                assert "mine" in listing and "proj" in listing
                assert session.read("/mine") == b"mine"
                number, text = refused(session)
                assert number == errno.ENODEV
                assert os.fspath(small_disk) not in text
        filler.unlink()
        assert session.read("/proj/f") == b"theirs"
        instance.commit()
        assert check(instance).problems == []
    del session, instance
    gc.collect()  # libgit2 maps packs until nobody has the clone open: the disk is to go


def test_in_a_mount_it_is_there_once_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", lambda top: (top / "f").write_bytes(b"theirs"))
    folder, point = small_disk / "instance", tmp_path / "view"
    Instance.init(folder).close()
    with Instance.open(folder) as instance:
        Session(instance).mkdir("/proj")
        add_mount(instance, source)
        add_session(instance)
    point.mkdir()
    mounted = Mounted(folder, "s", point)
    try:
        fill(small_disk / "filler")
        assert os.listdir(point) == ["proj"]
        with pytest.raises(OSError) as caught:
            os.listdir(point / "proj")
        assert caught.value.errno == errno.ENODEV
        (small_disk / "filler").unlink()
        until(lambda: os.path.exists(point / "proj/f"))
    finally:
        mounted.clear()
    del instance
    gc.collect()
