"""Changes by other programs are told."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.tree import host_calls
from fusefs.tree.backend import Node
from fusefs.tree.host_nodes import HostNode
from fusefs.tree.host_watch import HostEvent, HostWatch
from tests.tree.host_folder import Bound


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bound]:
    made = Bound(tmp_path)
    yield made
    made.tree.close()


def key(node: Node) -> HostNode:
    assert isinstance(node.key, HostNode)
    return node.key


@pytest.fixture
def watch(bound: Bound) -> Iterator[HostWatch]:
    made = HostWatch(bound.tree)
    yield made
    made.close()


def test_each_change_is_told(bound: Bound, watch: HostWatch) -> None:
    top = key(bound.root)
    assert watch.watch(top)
    assert watch.watch(top)
    assert watch.read_events() == []
    path = bound.folder / "f\udcff"
    path.touch()
    assert HostEvent(top, b"f\xff", "entry") in watch.read_events()
    path.write_bytes(b"x")
    path.write_bytes(b"y")
    assert watch.read_events() == [HostEvent(top, b"f\xff", "content")]
    path.chmod(0o600)
    assert watch.read_events() == [HostEvent(top, b"f\xff", "attributes")]
    path.rename(bound.folder / "g")
    assert watch.read_events() == [
        HostEvent(top, b"f\xff", "entry"), HostEvent(top, b"g", "entry")
    ]  # fmt: skip
    (bound.folder / "g").unlink()
    assert watch.read_events()[-1] == HostEvent(top, b"g", "entry")
    bound.folder.chmod(0o700)
    assert HostEvent(top, None, "attributes") in watch.read_events()
    assert select.select([watch], [], [], 0)[0] == []
    (bound.folder / "h").touch()
    assert select.select([watch], [], [], 0)[0] == [watch]


def test_a_directory_that_moves_stays_watched(bound: Bound, watch: HostWatch) -> None:
    (bound.folder / "d").mkdir()
    directory = key(bound.at("d"))
    assert watch.watch(directory)
    (bound.folder / "d").rename(bound.folder / "e")
    (bound.folder / "d").mkdir()
    (bound.folder / "d" / "not this").touch()
    (bound.folder / "e" / "this").mkdir()
    assert [e for e in watch.read_events() if e.name] == [HostEvent(directory, b"this", "entry")]
    watch.unwatch(bound.at("e").key)
    (bound.folder / "e" / "more").touch()
    assert watch.read_events() == []
    assert watch.watch(directory)


def test_a_directory_that_goes(bound: Bound, watch: HostWatch) -> None:
    (bound.folder / "d").mkdir()
    directory = key(bound.at("d"))
    assert watch.watch(directory)
    (bound.folder / "d").rmdir()
    assert watch.read_events()[-1] == HostEvent(directory, None, "entry")
    assert not watch.watch(directory)
    watch.unwatch(directory)
    (bound.folder / "f").touch()
    assert not watch.watch(bound.at("f").key)


def test_no_watch_left(bound: Bound, watch: HostWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(inotify: int, path: bytes, mask: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(host_calls, "inotify_add_watch", refuse)
    assert not watch.watch(bound.root.key)


def test_network_file_systems_cannot_be_watched(
    bound: Bound, watch: HostWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound.tree.mounts, "_type", lambda mount: b"nfs4")
    assert not watch.watch(bound.root.key)


def test_lost_events_are_told(bound: Bound, watch: HostWatch) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip("the queue is too long to fill here")
    assert watch.watch(bound.root.key)
    names = [bound.folder / "a", bound.folder / "b"]
    names[0].touch()
    for number in range(limit // 2 + 10):
        names[number % 2].rename(names[1 - number % 2])
    assert HostEvent(key(bound.root), None, "overflow") in watch.read_events()
