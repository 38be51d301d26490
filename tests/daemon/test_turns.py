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
def test_a_turn_that_comes_late_is_not_taken_for_the_lock(tmp_path: Path, number: int) -> None:
    """The lock is freed, taken, and given back, all before the waiting task begins."""
    Instance.init(tmp_path / "instance").close()
    other = os.open(tmp_path / "instance" / "writer.lock", os.O_RDWR)

    async def main() -> None:
        with Instance.open(tmp_path / "instance", deferred=True) as instance:
            background = Background(Session(instance).view, 5.0)
            lock = instance.writer_lock
            fcntl.flock(other, fcntl.LOCK_EX)
            async with trio.open_nursery() as nursery:
                background.start(nursery)
                await trio.testing.wait_all_tasks_blocked()

                async def waiter() -> None:
                    await background.lock_writer()
                    assert lock.held
                    with pytest.raises(BlockingIOError):
                        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(waiter)
                nursery.start_soon(meddle, background, instance)

    async def meddle(background: Background, instance: Instance) -> None:
        fcntl.flock(other, fcntl.LOCK_UN)
        if background.try_lock_writer():
            instance.commit()

    trio.run(main)
    os.close(other)
