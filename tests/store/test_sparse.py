"""Huge files of holes: none is read, and hashing them ends when it should, with nothing lost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.store import blocks
from fusefs.store.check import check
from fusefs.store.content import INLINE_MAX, LARGEST
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect
from fusefs.store.publish import ScratchPublication
from fusefs.store.scratch import ScratchFiles
from fusefs.tree.backend import File, publish
from fusefs.tree.store_tree import StoreTree
from tests.store.test_files import ACTOR, make

MIB = 1 << 20


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.init(tmp_path / "i") as opened:
        yield opened


@pytest.fixture
def holed(tmp_path: Path) -> Path:
    """A file with data at its begin, across two MiB, and before its odd end, and holes between."""
    file = tmp_path / "holed"
    with file.open("wb", buffering=0) as writer:
        for at in (0, 9 * MIB - 5000, 40 * MIB - 10):
            writer.seek(at)
            writer.write(os.urandom(10_000))
        writer.truncate(50 * MIB + 12_345)
        os.fsync(writer.fileno())
    return file


def test_holes_are_hashed_and_not_read(holed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = holed.read_bytes()
    read, pread = [], blocks._pread

    def noted(fd: int, size: int, offset: int) -> bytes:
        read.append(offset)
        return pread(fd, size, offset)

    monkeypatch.setattr(blocks, "_pread", noted)
    with holed.open("rb") as reader:
        found = blocks.digest(reader.fileno())
        blocks.verify(reader.fileno(), found.sums, found.sha256)
    assert found.sha256 == hashlib.sha256(data).digest()
    assert found.sums == b"".join(blocks._sums(data))
    assert len(read) < 20


def test_holes_are_copied_as_holes(holed: Path, tmp_path: Path) -> None:
    copy = ScratchFiles(tmp_path).copy(holed, holed.stat().st_size)
    assert copy.read_bytes() == holed.read_bytes()
    assert copy.stat().st_blocks * 512 < MIB


def test_no_file_is_larger_than_the_largest(instance: Instance) -> None:
    file = StoreTree(instance).open_file(make(StoreTree(instance)), write=True)
    for act in (
        lambda: file.truncate(LARGEST + 1),
        lambda: file.write(LARGEST, b"x"),
    ):
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.EFBIG
    file.truncate(LARGEST)
    with pytest.raises(OSError) as caught:
        file.write(0, b"x", append=True)
    assert caught.value.errno == errno.EFBIG
    file.truncate(0)
    publish(file.close())


def closing(tree: StoreTree, size: int) -> tuple[int, File, ScratchPublication]:
    key = make(tree)
    file = tree.open_file(key, write=True)
    file.truncate(size)
    file.write(0, b"kept")
    publication = file.close()
    assert isinstance(publication, ScratchPublication)
    return key, file, publication


def test_hashing_ends_once_the_file_is_opened_again(instance: Instance) -> None:
    tree = StoreTree(instance)
    key, _, first = closing(tree, LARGEST)
    file = tree.open_file(key, write=True)
    first.prepare()  # else it would take minutes
    assert first.finish()
    file.truncate(INLINE_MAX + 1)
    publish(file.close())
    assert tree.stat(key).sha256 == hashlib.sha256(b"kept".ljust(INLINE_MAX + 1, b"\0")).digest()


def test_what_was_given_up_is_kept_and_published_later(instance: Instance) -> None:
    tree = StoreTree(instance)
    key, _, publication = closing(tree, 40 * MIB)
    assert publication.is_wanted()
    publication.give_up()
    publication.prepare()
    assert publication.finish()
    assert (tree.stat(key).sha256, tree.stat(key).size) == (None, 40 * MIB)
    assert collect(instance).published == 1
    expected = hashlib.sha256(b"kept".ljust(40 * MIB, b"\0")).digest()
    assert tree.stat(key).sha256 == expected
    assert check(instance).problems == []


def test_nobody_wants_what_was_removed(instance: Instance) -> None:
    tree = StoreTree(instance)
    _, _, publication = closing(tree, LARGEST)
    tree.remove(tree.root().key, b"f", ACTOR, directory=False)
    assert not publication.is_wanted()
    publication.give_up()
    publish(publication)
    assert collect(instance).published == 0  # else it would take minutes
    assert check(instance).problems == []


def test_collecting_tells_how_far_it_is_and_can_be_cancelled(instance: Instance) -> None:
    tree = StoreTree(instance)
    key, _, publication = closing(tree, 40 * MIB)
    publication.give_up()
    publish(publication)
    told: list[str] = []

    def progress(step: str) -> None:
        told.append(step)
        if "of 40.0 MiB" in step:
            assert not instance.writer_lock.held, "others cannot write while this one hashes"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(instance, progress=progress)
    assert "file 1 of 1" in told[-1]
    assert tree.stat(key).size == 40 * MIB
    assert collect(instance).published == 1
    assert tree.stat(key).sha256 is not None
    assert check(instance).problems == []


def test_collecting_for_a_mount_ends_with_the_mount(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with Instance.init(folder) as instance:
        _, _, publication = closing(StoreTree(instance), 40 * MIB)
        publication.give_up()
        publish(publication)
    command = [sys.executable, "-m", "fusefs", "--instance", str(folder)]
    command += ["--json", "gc", "--parent"]
    dead, ours = (
        subprocess.run([*command, str(pid)], check=False, capture_output=True, timeout=60)
        for pid in (os.getppid(), os.getpid())
    )
    assert (dead.returncode, ours.returncode) == (130, 0)
    assert json.loads(ours.stdout)["published"] == 1
