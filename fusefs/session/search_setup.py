"""Getting search ready: the instance's indexes, the model, and who keeps them complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusefs.index import loading
from fusefs.index.index import Index
from fusefs.index.library import Library
from fusefs.index.loading import Loaded
from fusefs.index.model import Model
from fusefs.session.index_starter import IndexStarter
from fusefs.session.indexing import Indexer
from fusefs.session.searching import Searcher
from fusefs.session.session import Session
from fusefs.store.instance import Instance


class Setup:
    """What searches in one instance need.

    Attributes:
        library: the instance's indexes.
        loaded: the model that makes them.
    """

    def __init__(self, instance: Instance) -> None:
        """Get ready; the model itself is loaded when it is first needed."""
        self._instance = instance
        self._starter = IndexStarter(instance)
        self.library = Library(instance.folder)
        self.loaded: Loaded = loading.load(self.library)
        self._makers: dict[Index, Model | None] = {}

    def searcher(self, session: Session) -> Searcher:
        """Return who answers the questions of a session."""
        return Searcher(
            session, self.library, self.loaded.model, self.loaded.unavailable,
            model_of=self._maker,
        )  # fmt: skip

    def _maker(self, index: Index) -> Model | None:
        """Return the model of an index that another one made; looked for once."""
        if index not in self._makers:
            self._makers[index] = loading.load_maker(self.library, index)
        return self._makers[index]

    def indexer(self) -> Indexer:
        """Return who makes the index complete."""
        return Indexer(self._instance, self.library, self.loaded.model)

    def start_worker(self) -> None:
        """Have the index made complete in the background."""
        self._starter.start()

    def is_worked_at(self) -> bool:
        """Tell whether a process makes the index complete."""
        return self.library.lease.holder(self._instance.live_processes()) is not None

    def close(self) -> None:
        """Close the indexes."""
        self.library.close()


@contextmanager
def setup(instance: Instance) -> Iterator[Setup]:
    """Get search ready for a block."""
    made = Setup(instance)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def searching(session: Session) -> Iterator[Searcher]:
    """Answer questions of a session in a block, and have what is not indexed yet made."""
    with setup(session.view.instance) as made:
        yield made.searcher(session)
        made.start_worker()
