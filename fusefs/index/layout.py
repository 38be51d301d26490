"""Where things stand in an index, and how its segments are written.

========= ============================ ====================================================
prefix    rest of the key              value
========= ============================ ====================================================
``m``     name                         counters, and what made the index
``k``     a content's key              the number of its document (4 bytes), why it is left out
``d``     document                     its SHA-256
``s``     segment                      its table (`fusefs.index.segments`)
``t``     segment, term                postings (`fusefs.index.postings`)
``v``     document                     how many pieces have vectors, and in which rows
========= ============================ ====================================================

A content's key is its SHA-256, or whatever else tells it without reading it: the id of a blob in
git, or where a file of the host stands and when it changed. Several keys lead to one document.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusefs.index.postings import unite
from fusefs.index.segments import Table, join
from fusefs.store.derived_kv import DerivedReader, DerivedWriter
from fusefs.store.kv import after_prefix

COUNTERS = b"mcounters"
MADE_BY = b"mmade-by"
KEYS = b"k"
DOCUMENTS = b"d"
SEGMENTS = b"s"
POSTINGS = b"t"
VECTORS = b"v"

_COUNTERS = struct.Struct("<QIIQQ")
_NUMBER = struct.Struct(">I")


class Counters(NamedTuple):
    """How far an index has come.

    Attributes:
        generation: grows with every change but for new vectors.
        documents, segments: the next number of each.
        rows: how many vectors there are, blanked ones counted.
        dropped: grows when documents are dropped.
    """

    generation: int = 0
    documents: int = 0
    segments: int = 0
    rows: int = 0
    dropped: int = 0


def number(value: int) -> bytes:
    """Return the number of a document or segment as 4 bytes, big endian."""
    return _NUMBER.pack(value)


def to_number(raw: bytes) -> int:
    """Return the number in the first 4 bytes of `raw`."""
    return int.from_bytes(raw[:4], "big")


def posting(segment: int, term: bytes) -> bytes:
    """Return the key of a term's postings in a segment."""
    return POSTINGS + number(segment) + term


def counters(txn: DerivedReader) -> Counters:
    """Return the counters; those of a new index are 0."""
    raw = txn.get(COUNTERS)
    return Counters(*_COUNTERS.unpack(raw)) if raw else Counters()


def put_counters(txn: DerivedWriter, value: Counters) -> None:
    """Set the counters."""
    txn.put(COUNTERS, _COUNTERS.pack(*value))


def tables(txn: DerivedReader, known: Mapping[int, Table]) -> Iterator[tuple[int, Table]]:
    """Yield the segments' numbers and tables, those that are `known` without reading them.

    Raises:
        ValueError: one is damaged.
    """
    for key, raw in txn.range(SEGMENTS, after_prefix(SEGMENTS)):
        segment = to_number(key[1:])
        yield segment, known.get(segment) or Table.unpack(raw)


def add_segment(
    txn: DerivedWriter, table: Table, postings: Sequence[tuple[bytes, bytes]]
) -> None:
    """Add a segment; `postings` are in the order of the terms' bytes."""
    at = counters(txn)
    txn.put(SEGMENTS + number(at.segments), table.pack())
    prefix = POSTINGS + number(at.segments)
    txn.put_many((prefix + term, packed) for term, packed in postings)
    put_counters(txn, at._replace(segments=at.segments + 1, generation=at.generation + 1))


def replace_segments(
    txn: DerivedWriter,
    segments: Sequence[tuple[int, Table, NDArray[np.bool_]]],
) -> None:
    """Put one segment in the place of several consecutive ones.

    Args:
        txn: the transaction.
        segments: number, table, and which documents are left out of it.
    """
    kept: list[Table] = []
    renumbered: dict[int, NDArray[np.int64]] = {}
    base = 0
    for segment, table, dropped in segments:
        rest, numbers = table.without(dropped)
        renumbered[segment] = np.where(numbers >= 0, numbers + base, -1)
        base += rest.pieces
        kept.append(rest)
    parts: dict[bytes, list[tuple[bytes, NDArray[np.int64]]]] = {}
    for segment, numbers in renumbered.items():
        prefix = POSTINGS + number(segment)
        for key, raw in txn.range(prefix, after_prefix(prefix)):
            parts.setdefault(key[len(prefix) :], []).append((raw, numbers))
    for segment in renumbered:
        prefix = POSTINGS + number(segment)
        txn.delete_range(prefix, after_prefix(prefix))
        txn.delete(SEGMENTS + number(segment))
    united = ((term, unite(parts[term])) for term in sorted(parts))
    if base:
        add_segment(txn, join(kept), [(term, raw) for term, raw in united if raw is not None])
    else:
        at = counters(txn)
        put_counters(txn, at._replace(generation=at.generation + 1))
