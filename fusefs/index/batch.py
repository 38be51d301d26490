"""Contents on their way into a segment: cut into pieces, and their terms counted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fusefs.contract.chunks import Piece
from fusefs.contract.texts import is_text
from fusefs.index import layout
from fusefs.index.postings import TermCounter
from fusefs.index.segments import Table
from fusefs.store.derived_kv import DerivedReader, DerivedWriter

LARGEST_TEXT = 4 << 20
"""Bytes of a text that is indexed; a larger one is left out."""

Cutter = Callable[[str], Sequence[Piece]]
"""Returns the pieces of a text."""


class Why(IntEnum):
    """Why a content is left out of the index."""

    NOTHING = 0
    """It is not."""
    NOT_TEXT = 1
    TOO_LARGE = 2


class Content(NamedTuple):
    """What is to be indexed.

    Attributes:
        key: what it is known by.
        data: its bytes, None for one that is too large to be read.
    """

    key: bytes
    data: bytes | None


class _Cut(NamedTuple):
    sha256: bytes
    pieces: Sequence[Piece]


class Batch:
    """Contents that are added together."""

    def __init__(self, txn: DerivedReader, contents: Iterable[Content], cut: Cutter) -> None:
        """Cut the contents that `txn` does not have, and count their terms."""
        self._txn = txn
        self._cut = cut
        self._keys: dict[bytes, bytes] = {}
        self._why: dict[bytes, Why] = {}
        self._texts: list[_Cut] = []
        self._terms = TermCounter()
        for content in contents:
            self._add(content)
        self._counted = self._terms.finish()

    def _add(self, content: Content) -> None:
        data = content.data
        # What is not read at all is told apart by its key.
        sha256 = hashlib.sha256(content.key if data is None else data).digest()
        self._keys[content.key] = sha256
        if sha256 in self._why or self._txn.get(layout.KEYS + sha256) is not None:
            return
        text = None
        if data is None or len(data) > LARGEST_TEXT:
            why = Why.TOO_LARGE
        else:
            text = data.decode() if is_text(data) else None
            why = Why.NOT_TEXT if text is None else Why.NOTHING
        self._why[sha256] = why
        if text is not None and not text.isspace():
            self._cut_up(sha256, text)

    def _cut_up(self, sha256: bytes, text: str) -> None:
        pieces = self._cut(text)
        if not pieces:
            return
        self._texts.append(_Cut(sha256, pieces))
        for start, end in pieces:
            self._terms.add(text[start:end])

    def write(self, txn: DerivedWriter) -> bool:
        """Write all of it; nothing, and return False, where another one has added some since."""
        if any(txn.get(layout.KEYS + sha256) is not None for sha256 in self._why):
            return False
        at = layout.counters(txn)
        cut = [one.sha256 for one in self._texts]
        # Those with pieces first: their numbers are those of the segment.
        for sha256 in dict.fromkeys((*cut, *self._why)):
            number = layout.number(at.documents)
            txn.put(layout.KEYS + sha256, number + bytes([self._why[sha256]]))
            txn.put(layout.DOCUMENTS + number, sha256)
            at = at._replace(documents=at.documents + 1)
        for key, sha256 in self._keys.items():
            found = txn.get(layout.KEYS + sha256)
            if found is not None:  # else it was dropped meanwhile
                txn.put(layout.KEYS + key, found)
        first = at.documents - len(self._why)
        layout.put_counters(txn, at._replace(generation=at.generation + 1))
        if cut:
            layout.add_segment(txn, self._table(first), self._counted.postings)
        return True

    def _table(self, first_document: int) -> Table:
        spans = np.array([piece for one in self._texts for piece in one.pieces], np.uint32)
        return Table(
            np.arange(first_document, first_document + len(self._texts), dtype=np.uint32),
            np.cumsum([0, *(len(one.pieces) for one in self._texts)]).astype(np.uint32),
            spans[:, 0],
            spans[:, 1],
            self._counted.lengths,
        )
