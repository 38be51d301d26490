"""Waiting for the writer lock: what a process believes to have, it has."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from fusefs.daemon.background import Background
from fusefs.session.session import Session
from fusefs.store.instance import Instance


@pytest.mark.parametrize("number", range(12))  # trio runs what is ready in any order
def test_who_waits_leaves_the_lock_to_the_wait(tmp_path: Path, number: int) -> None:
    """Else it could be given back just before the wait for it is told to be over."""
    Instance.init(tmp_path / "instance").close()
    other = os.open(tmp_path / "instance" / "writer.lock", os.O_RDWR)

    async def main() -> None:
        with Instance.open(tmp_path / "instance", deferred=True) as instance:
            background = Background(Session(instance).view, 5.0)
            fcntl.flock(other, fcntl.LOCK_EX)
            waits = False

            async def waiter() -> None:
                nonlocal waits
                waits = True
                await background.lock_writer()
                with pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                nursery.cancel_scope.cancel()

            async def meddle() -> None:
                fcntl.flock(other, fcntl.LOCK_UN)
                assert background.try_lock_writer() != waits

            async with trio.open_nursery() as nursery:
                background.start(nursery)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(waiter)
                nursery.start_soon(meddle)

    trio.run(main)
    os.close(other)
