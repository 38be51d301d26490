"""What an index knows of the contents that a session sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fusefs.index.batch import Why
from fusefs.index.index import Document, Index
from fusefs.session.catalogue import Catalogue


class KnownContents:
    """What an index knows of the contents in a catalogue.

    Attributes:
        keys: by document, the keys of the visible contents that it stands for.
        left_out: how many contents cannot be found, by why.
        pending: how many are not indexed yet.
        changes: grows with every change.
    """

    def __init__(self) -> None:
        self.keys: dict[int, list[bytes]] = {}
        self.documents: dict[bytes, Document] = {}
        self.left_out: Counter[Why] = Counter()
        self.pending = 0
        self.changes = 0
        self._seen = -1

    def follow(self, catalogue: Catalogue, index: Index) -> list[bytes]:
        """Follow the catalogue; return the keys of contents that are not indexed yet."""
        if catalogue.changes == self._seen and not self.pending:
            return []
        for gone in [key for key in self.documents if not catalogue.paths(key)]:
            self._forget(gone)
        self._seen = catalogue.changes
        unknown = [key for key in catalogue.content_keys() if key not in self.documents]
        self.pending = len(unknown)
        self.learn(index, unknown)
        return [key for key in unknown if key not in self.documents]

    def learn(self, index: Index, keys: Iterable[bytes]) -> None:
        """Learn which documents the index has for keys that had none."""
        for key, document in index.documents(keys).items():
            self.documents[key] = document
            self.pending -= 1
            self.left_out[document.why] += 1
            self.keys.setdefault(document.number, []).append(key)
        self.changes += 1

    def _forget(self, key: bytes) -> None:
        document = self.documents.pop(key)
        self.left_out[document.why] -= 1
        self.keys[document.number].remove(key)
        if not self.keys[document.number]:
            del self.keys[document.number]
        self.changes += 1
