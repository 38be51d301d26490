"""One index: contents by number, their words and their vectors, in a folder of its own."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fusefs.index import bm25, layout
from fusefs.index.batch import Batch, Content, Cutter, Why
from fusefs.index.segments import Table, to_unite
from fusefs.index.snapshot import Snapshot, Visible
from fusefs.index.vectors import SEGMENT_ROWS, Meanings, Owned, Runs, VectorFiles, runs
from fusefs.store.derived_kv import DerivedDamaged, DerivedKV, DerivedReader, DerivedWriter
from fusefs.store.flocks import try_lock

_POLL_SECONDS = 0.01
_DONE = struct.Struct("<I")
_RUN = struct.Struct("<QI")
_SHA256_KEY = 1 + 32


class Document(NamedTuple):
    """What is known of a content.

    Attributes:
        number: its document's.
        why: why it is left out, if it is.
    """

    number: int
    why: Why


class Lacking(NamedTuple):
    """A document of whose `pieces` only the first `done` have vectors."""

    document: int
    done: int
    pieces: int


class Index:
    """One index. For one thread, in as many processes as wanted.

    Whatever of it is damaged raises `DerivedDamaged`: it is to be made anew.
    """

    def __init__(self, folder: Path, *, dimensions: int) -> None:
        """Open the index in `folder`, which is made if need be.

        Args:
            folder: where it is.
            dimensions: components of a vector, 0 where there are none.
        """
        self.folder = folder
        self._kv = DerivedKV.open(folder)
        self._vectors = VectorFiles(folder / "vectors", dimensions) if dimensions else None
        self._tables: dict[int, Table] = {}
        self._snapshot: Snapshot | None = None
        self._meanings: tuple[tuple[int, int], Meanings] | None = None
        self._runs: dict[int, tuple[tuple[int, int], Runs]] = {}

    def close(self) -> None:
        """Close it."""
        self._kv.close()

    # What made it.

    @property
    def made_by(self) -> Mapping[str, Any]:
        """What the index was made by: its model and versions; empty for a new one."""
        with self._kv.read() as txn:
            raw = txn.get(layout.MADE_BY)
        found: Mapping[str, Any] = json.loads(raw) if raw else {}
        return found

    @made_by.setter
    def made_by(self, made_by: Mapping[str, Any]) -> None:
        with self._kv.write() as txn:
            txn.put(layout.MADE_BY, json.dumps(made_by).encode())

    # Looking.

    @property
    def counters(self) -> layout.Counters:
        """How far the index has come."""
        with self._kv.read() as txn:
            return layout.counters(txn)

    def documents(self, keys: Iterable[bytes]) -> dict[bytes, Document]:
        """Return the documents of contents, leaving out those that are not indexed."""
        found = {}
        with self._kv.read() as txn:
            for key in keys:
                raw = txn.get(layout.KEYS + key)
                if raw is not None:
                    found[key] = Document(layout.to_number(raw), Why(raw[4]))
        return found

    def sha256(self, document: int) -> bytes | None:
        """Return the hash of a document's content, None where it is gone."""
        with self._kv.read() as txn:
            return txn.get(layout.DOCUMENTS + layout.number(document))

    def without_vectors(self, documents: Iterable[int]) -> list[Lacking]:
        """Return those of the documents that lack vectors of some pieces, by number."""
        snapshot = self.snapshot()
        numbers = np.unique(np.fromiter(documents, np.uint32))
        counts = snapshot.piece_counts(numbers)
        found = []
        with self._kv.read() as txn:
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                if count:
                    done = _done(txn.get(layout.VECTORS + layout.number(number)))
                    if done < count:
                        found.append(Lacking(number, done, count))
        return found

    def snapshot(self) -> Snapshot:
        """Return the index as it is now."""
        with self._kv.read() as txn:
            return self._snapshot_in(txn)

    def _snapshot_in(self, txn: DerivedReader) -> Snapshot:
        generation = layout.counters(txn).generation
        if self._snapshot is None or self._snapshot.generation != generation:
            try:
                tables = dict(layout.tables(txn, self._tables))
            except ValueError as error:
                raise DerivedDamaged(str(error)) from None
            ordered = sorted(tables.items(), key=lambda item: int(item[1].documents[0]))
            self._tables = tables
            self._snapshot = Snapshot(generation, ordered)
        return self._snapshot

    def word_scores(
        self, snapshot: Snapshot, visible: Visible, terms: Iterable[str]
    ) -> bm25.Scores | None:
        """Return the BM25 score of each piece; None where the index has changed since."""
        with self._kv.read() as txn:
            if layout.counters(txn).generation != snapshot.generation:
                return None
            return bm25.scores(
                snapshot, visible, terms,
                lambda segment, term: txn.get(layout.posting(segment, term)),
            )  # fmt: skip

    def meanings(self, snapshot: Snapshot) -> Meanings:
        """Return the vectors of the pieces of a snapshot."""
        with self._kv.read() as txn:
            counters = layout.counters(txn)
        at = (snapshot.generation, counters.rows)
        if self._meanings is None or self._meanings[0] != at:
            files = list(self._vector_runs(snapshot, counters))
            self._meanings = at, Meanings(snapshot.pieces, files)
        return self._meanings[1]

    def _vector_runs(self, snapshot: Snapshot, counters: layout.Counters) -> Iterator[Runs]:
        if self._vectors is None:
            return
        for segment, first in enumerate(range(0, counters.rows, SEGMENT_ROWS)):
            at = (min(SEGMENT_ROWS, counters.rows - first), counters.dropped)
            known = self._runs.get(segment)
            if known is None or known[0] != at:
                try:
                    found = runs(snapshot, self._vectors.mapped(segment, at[0]))
                except (ValueError, FileNotFoundError) as error:
                    raise DerivedDamaged(f"vectors are damaged: {error}") from None
                known = self._runs[segment] = at, found
            yield known[1]

    # Adding.

    @contextmanager
    def adding(self, deadline: float = math.inf) -> Iterator[bool]:
        """Be the one who adds and drops; yields False where another process is at it too long.

        Args:
            deadline: until when to wait, by `time.monotonic`.
        """
        fd = os.open(self.folder / "adding.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not (ours := try_lock(fd)) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            yield ours
        finally:
            os.close(fd)

    def add(
        self, contents: Sequence[Content], cut: Cutter, deadline: float = math.inf
    ) -> bool:
        """Index contents by their words, those that are new: all or none.

        Nobody waits while they are cut, only for their being written.

        Args:
            contents: some megabytes at most.
            cut: makes the pieces.
            deadline: until when to wait for others who add, by `time.monotonic`.

        Returns:
            Whether they are indexed.
        """
        while True:
            with self._kv.read() as txn:
                batch = Batch(txn, contents, cut)
            with self.adding(deadline) as ours:
                if not ours:
                    return False
                with self._kv.write() as txn:
                    if batch.write(txn):
                        return True

    def unite_segments(self) -> bool:
        """Make one segment of several small ones; tell whether there were any (see `adding`)."""
        with self._kv.write() as txn:
            order = [segment for segment, _ in self._snapshot_in(txn).segments]
            tables = [self._tables[segment] for segment in order]
            at = to_unite([table.pieces for table in tables])
            if at is None:
                return False
            layout.replace_segments(
                txn,
                [
                    (segment, table, np.zeros(len(table.documents), np.bool_))
                    for segment, table in zip(order[at:], tables[at:], strict=True)
                ],
            )
        return True

    # Vectors.

    def put_vectors(self, owned: Sequence[Owned]) -> None:
        """Add vectors of documents, durably.

        Only those that continue what a document has; others are left out, and those of documents
        that are gone.
        """
        assert self._vectors is not None
        with self._kv.write() as txn:
            at = layout.counters(txn)
            row = at.rows
            for one in owned:
                key = layout.VECTORS + layout.number(one.document)
                before = txn.get(key)
                exists = txn.get(layout.DOCUMENTS + layout.number(one.document)) is not None
                if exists and _done(before) == one.begin:
                    count = self._vectors.write(row, one)
                    runs = (before or b"")[_DONE.size :] + _RUN.pack(row, count)
                    txn.put(key, _DONE.pack(one.until) + runs)
                    row += count
            self._vectors.sync()
            layout.put_counters(txn, at._replace(rows=row))

    # Dropping.

    def forget(self, live_keys: Iterable[bytes]) -> int:
        """Drop all contents but those of the given keys; return how many (see `adding`)."""
        live = set(live_keys)
        with self._kv.write() as txn:
            known = (txn.get(layout.KEYS + key) for key in live)
            kept = {raw[:4] for raw in known if raw is not None}
            for key, raw in list(txn.range(b"k", b"l")):
                if raw[:4] not in kept or not (len(key) == _SHA256_KEY or key[1:] in live):
                    txn.delete(key)
            gone = [key[1:] for key, _ in txn.range(b"d", b"e") if key[1:] not in kept]
            for document in gone:
                txn.delete(layout.DOCUMENTS + document)
                vectors = txn.get(layout.VECTORS + document)
                if vectors is not None and self._vectors is not None:
                    txn.delete(layout.VECTORS + document)
                    for first, count in _RUN.iter_unpack(vectors[_DONE.size :]):
                        self._vectors.blank(first, count)
            if gone:
                at = layout.counters(txn)
                layout.put_counters(txn, at._replace(dropped=at.dropped + 1))
                self._drop_pieces(txn, [layout.to_number(document) for document in gone])
        return len(gone)

    def _drop_pieces(self, txn: DerivedWriter, gone: Sequence[int]) -> None:
        for segment, _ in self._snapshot_in(txn).segments:
            table = self._tables[segment]
            dropped = np.isin(table.documents, np.array(gone, np.uint32))
            if dropped.any():
                layout.replace_segments(txn, [(segment, table, dropped)])


def _done(raw: bytes | None) -> int:
    """Return how many pieces of a document have vectors."""
    return 0 if raw is None else int(_DONE.unpack_from(raw)[0])
