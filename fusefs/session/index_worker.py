"""Keeping an instance's index complete, in a process that has nothing else to do."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

from fusefs.index.lease import LeaseLost
from fusefs.index.library import Library
from fusefs.session.indexing import Indexer
from fusefs.store.instance import Instance

_LOOK_SECONDS = 5.0
"""Folders of the host tell nobody of changes: they are looked at so often."""


def be_modest() -> None:
    """Have this process run where no other wants to."""
    os.nice(19)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def work(
    instance: Instance,
    library: Library,
    indexer: Indexer,
    *,
    linger: float,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Make the index complete, and keep it so until nothing has changed for a while.

    Ends early where the index is paused, or another process makes the vectors.

    Args:
        instance: whose index it is.
        library: its indexes.
        indexer: does it.
        linger: seconds without a change after which this ends.
        tell: called after each step; may raise, which ends it with nothing lost.
    """
    try:
        idle_since = time.monotonic()
        while not library.is_paused and time.monotonic() - idle_since <= linger:
            if _step(library, indexer, tell):
                idle_since = time.monotonic()
            else:
                left = idle_since + linger - time.monotonic()
                _await_change(instance, min(max(left, 0.0), _LOOK_SECONDS))
    except LeaseLost:
        return  # whoever has it does what there is to do
    finally:
        indexer.give_back()


def _step(library: Library, indexer: Indexer, tell: Callable[[], None]) -> bool:
    """Do what there is to do next; tell whether there was anything."""

    def may_go_on() -> bool:
        tell()
        return not library.is_paused

    before = indexer.added
    if not indexer.add_words(may_go_on):
        return False
    worked = bool(indexer.add_vectors()) or indexer.added != before
    if not worked:
        indexer.finish()
    tell()
    return worked


def _await_change(instance: Instance, seconds: float) -> None:
    """Wait until another process has changed something."""
    select.select([instance.bell], [], [], seconds)
    instance.bell.drain()
