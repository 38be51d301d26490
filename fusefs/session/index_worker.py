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
from fusefs.store.derived_kv import DerivedDamaged
from fusefs.store.instance import Instance

_LOOK_SECONDS = 5.0
"""Folders of the host tell nobody of changes: they are looked at so often."""
_LINGER_SECONDS = 30.0
"""How long the model is kept loaded for the next change, while others use the instance."""
_ALONE_SECONDS = 2.0
"""The same while nobody does."""


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
    until_complete: bool = False,
    even_if_paused: bool = False,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Make the index complete, and keep it so until nothing has changed for a while.

    Ends early where the index is paused, or another process is at it.

    Args:
        instance: whose index it is.
        library: its indexes.
        indexer: does it.
        until_complete: end once the index is complete.
        even_if_paused: a person wants it now.
        tell: called after each step; may raise, which ends it with nothing lost.
    """
    if not indexer.take():
        return
    worker = _Worker(instance, library, indexer, tell, even_if_paused)
    try:
        worker.run(until_complete)
    except LeaseLost:
        return  # whoever has it does what there is to do
    finally:
        indexer.give_back()


class _Worker:
    def __init__(
        self,
        instance: Instance,
        library: Library,
        indexer: Indexer,
        tell: Callable[[], None],
        even_if_paused: bool,
    ) -> None:
        self._instance = instance
        self._library = library
        self._indexer = indexer
        self._tell = tell
        self._even_if_paused = even_if_paused

    def run(self, until_complete: bool) -> None:
        instance, library = self._instance, self._library
        idle_since = time.monotonic()
        while self._may_go_on():
            seen = instance.journal.last()
            if self._step():
                idle_since = time.monotonic()
                continue
            if self._may_go_on():
                self._indexer.finish()
                library.complete_at = seen
            linger = _ALONE_SECONDS if instance.bell.is_alone() else _LINGER_SECONDS
            left = idle_since + linger - time.monotonic()
            if until_complete or left <= 0:
                return
            _await_change(instance, min(left, _LOOK_SECONDS))
            library.lease.beat(instance.process)

    def _may_go_on(self) -> bool:
        self._tell()
        return self._even_if_paused or not self._library.is_paused

    def _step(self) -> bool:
        """Do what there is to do next; tell whether there was anything."""
        try:
            return self._add()
        except DerivedDamaged as error:
            self._indexer.replace(error)
            return True

    def _add(self) -> bool:
        indexer, library = self._indexer, self._library
        before = indexer.added
        if not indexer.add_words(self._may_go_on):
            return False
        began = time.monotonic()
        pieces = indexer.add_vectors()
        if pieces:
            now = pieces / (time.monotonic() - began)
            library.rate = 0.9 * (library.rate or now) + 0.1 * now
        return bool(pieces) or indexer.added != before


def _await_change(instance: Instance, seconds: float) -> None:
    """Wait until another process has changed something."""
    select.select([instance.bell], [], [], seconds)
    instance.bell.drain()
