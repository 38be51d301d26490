"""A full disk: what was acknowledged is kept, reading goes on, and removing makes room."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fusefs.session.session import Session
from fusefs.store import orphans
from fusefs.store.check import check
from fusefs.store.instance import Instance
from fusefs.store.maintenance import collect
from fusefs.store.trash_can import TrashCan

_MOST = 24 << 20
"""Bytes of one file that takes most of the room, and the disk once."""


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("size", [60_000, 500_000])
def test_removing_makes_room(small_disk: Path, deferred: bool, size: int) -> None:
    folder = small_disk / "instance"
    Instance.init(folder).close()
    written: dict[str, bytes] = {}
    with Instance.open(folder, deferred=deferred) as instance:
        session = Session(instance)
        session.write("/most", os.urandom(_MOST))
        with pytest.raises(OSError, match="No space") as caught:
            for number in range(10_000):
                data = os.urandom(size)
                session.write(f"/f{number}", data)
                written[f"/f{number}"] = data
        assert caught.value.errno == errno.ENOSPC
        assert _MOST + len(written) * size > 30 << 20
    with Instance.open(folder, deferred=deferred) as instance:
        session = Session(instance)
        assert all(session.read(path) == data for path, data in written.items())
        assert check(instance).problems == []
        for path in list(written)[::2]:
            session.rm(path)
            del written[path]
        TrashCan(instance).purge_older_than(-1)
        orphans.collect(instance, grace=-1)
        collect(instance)
    with Instance.open(folder, deferred=deferred) as instance:
        session = Session(instance)
        session.write("/again", os.urandom(size))
        assert all(session.read(path) == data for path, data in written.items())
        assert check(instance).problems == []
