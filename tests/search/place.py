"""An instance with an index, and a model that can be understood."""

from __future__ import annotations

from pathlib import Path

from fusefs.contract.sessions import SessionSpec, parse_rule
from fusefs.index.library import Library
from fusefs.session import index_worker
from fusefs.session.answers import Found
from fusefs.session.indexing import Indexer
from fusefs.session.searching import Searcher
from fusefs.session.session import Session
from fusefs.store.instance import Instance
from tests.search.made_up import MadeUp


class Place:
    """An instance with an index."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance.init(folder)
        self.library = Library(folder)
        self.model = MadeUp()
        self.owner = Session(self.instance)

    def close(self) -> None:
        self.library.close()
        self.instance.close()

    def session(self, name: str, *rules: str, user: str = "") -> Session:
        """A session with grants like ``/a=ro``."""
        spec = SessionSpec(name, grants=dict(map(parse_rule, rules)), user=user)
        self.instance.sessions.put(spec, "-")
        return Session(self.instance, self.instance.sessions.get(name))

    def searcher(self, session: Session | None = None) -> Searcher:
        return Searcher(session or self.owner, self.library, self.model)

    def indexer(self) -> Indexer:
        return Indexer(self.instance, self.library, self.model)

    def complete(self) -> None:
        """Index everything, as the process in the background does."""
        indexer = self.indexer()
        index_worker.work(self.instance, self.library, indexer, until_complete=True)
        assert indexer.pending().is_complete


def paths(found: Found) -> list[str]:
    return [hit.path for hit in found.hits]
