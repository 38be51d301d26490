"""The journal: every committed change, in order.

It serves three: other processes learn from it what to drop from their kernels' caches, the
index finds its work in it, and people read in it who changed what. It is append-only, and
each record carries a hash over itself and the one before, so that none can be altered or
taken out unnoticed (`fusefs.store.journal_chain`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from fusefs.store import keys
from fusefs.store.kv import KV, Reader, Writer

_HEADER = struct.Struct("<qQBBBQQQQHHI")
CHAIN_BYTES = 32
"""Length of the hash that ends each record."""
NO_CHAIN = bytes(CHAIN_BYTES)
"""What the first record is chained to."""
END = keys.JOURNAL + b"\xff" * 9
"""Greater than the key of every record."""

UPKEEP = "(gc)"
"""The actor of what the instance does by itself: no session can be called so."""


class Op(IntEnum):
    """What a record says was done; numbered as on disk."""

    CREATE = 1
    WRITE = 2
    ATTRIBUTES = 3
    XATTR = 4
    REMOVE = 5
    RENAME = 6
    EXCHANGE = 7
    RESTORE = 8
    SESSION = 9
    BIND = 10
    PURGE = 11
    COLLECT = 12
    RIGHT = 14
    COMMIT = 15
    FORGE = 16


class JournalRecord(NamedTuple):
    """One change.

    Attributes:
        seq: position in the journal, from 1.
        time: nanoseconds since the epoch.
        process: random id of the process that wrote it.
        actor: the session's name, ``-`` for the person at the CLI, or `UPKEEP`.
        op: what was done.
        node: id of the node concerned (0: none, as for one in a bound folder).
        parent: id of its directory (before a move), 0 where the entry did not change.
        name: its name there.
        new_parent: the directory after a move, else 0.
        new_name: the name after a move.
        replaced: id of the node that the move replaced or was exchanged with, else 0.
        path: the absolute path, ``/``-separated (a session's or bind's name for those); for
            a move the old and the new one, with a NUL between them.
        before: SHA-256 of what was there before, or b"" where nothing was or it is not known:
            of a file's content, a link's target, an attribute's value, a definition. Of a move
            that of what was replaced.
        after: the same of what is there now.
        detail: what else is to be told, as a JSON object (see `describe`), or b"".
    """

    seq: int
    time: int
    process: int
    actor: str
    op: Op
    node: int
    parent: int
    name: bytes
    new_parent: int
    new_name: bytes
    replaced: int
    path: bytes
    before: bytes
    after: bytes
    detail: bytes = b""


def describe(detail: Mapping[str, object]) -> bytes:
    """Return the bytes of a record's detail; equal details have equal bytes."""
    return json.dumps(detail, separators=(",", ":"), sort_keys=True).encode()


def _pack(record: JournalRecord) -> bytes:
    actor = record.actor.encode()
    return b"".join(
        (
            _HEADER.pack(
                record.time,
                record.process,
                record.op,
                len(actor),
                (1 if record.before else 0) | (2 if record.after else 0),
                record.node,
                record.parent,
                record.new_parent,
                record.replaced,
                len(record.name),
                len(record.new_name),
                len(record.path),
            ),
            actor,
            record.name,
            record.new_name,
            record.path,
            record.before,
            record.after,
            record.detail,
        )
    )


def _unpack(seq: int, raw: bytes) -> JournalRecord:
    try:
        return _unpack_whole(seq, raw)
    except (struct.error, ValueError):
        raise OSError(
            errno.EIO, f"journal record {seq} is damaged: `fusefs log verify` says more"
        ) from None


def _unpack_whole(seq: int, raw: bytes) -> JournalRecord:
    (time, process, op, actor_size, hashes, node, parent, new_parent, replaced, *sizes) = (
        _HEADER.unpack_from(raw)
    )
    at = _HEADER.size
    parts = []
    both = (32 if hashes & 1 else 0, 32 if hashes & 2 else 0)
    for size in (actor_size, *sizes, *both):
        parts.append(raw[at : at + size])
        at += size
    actor, name, new_name, path, before, after = parts
    return JournalRecord(
        seq, time, process, actor.decode(), Op(op), node, parent, name, new_parent, new_name,
        replaced, path, before, after, raw[at:],
    )  # fmt: skip


def append(
    txn: Writer,
    *,
    time: int,
    process: int,
    actor: str,
    op: Op,
    node: int = 0,
    parent: int = 0,
    name: bytes = b"",
    new_parent: int = 0,
    new_name: bytes = b"",
    replaced: int = 0,
    path: bytes = b"",
    before: bytes = b"",
    after: bytes = b"",
    detail: bytes = b"",
) -> int:
    """Add a record in `txn` and return its sequence number."""
    head = txn.get(keys.META_JOURNAL) or keys.number(0) + NO_CHAIN
    seq = keys.to_number(head) + 1
    record = JournalRecord(
        seq, time, process, actor, op, node, parent, name, new_parent, new_name, replaced, path,
        before, after, detail,
    )  # fmt: skip
    raw = _pack(record)
    chain = link(head[8:], seq, raw)
    txn.put(keys.JOURNAL + keys.number(seq), raw + chain)
    txn.put(keys.META_JOURNAL, keys.number(seq) + chain)
    return seq


def link(chain: bytes, seq: int, raw: bytes) -> bytes:
    """Return the hash that ends the record `raw`, chained to the one before it."""
    return hashlib.sha256(chain + keys.number(seq) + raw).digest()


def last(txn: Reader) -> int:
    """Return the sequence number of the newest record in `txn`, 0 where there is none."""
    return keys.to_number(txn.get(keys.META_JOURNAL) or bytes(8))


def head(txn: Reader) -> tuple[int, bytes]:
    """Return number and hash of the newest record; the hash stands for all records up to it."""
    raw = txn.get(keys.META_JOURNAL) or keys.number(0) + NO_CHAIN
    return keys.to_number(raw), raw[8:]


def hash_at(txn: Reader, seq: int) -> bytes | None:
    """Return the hash of the record `seq`, None where there is no such record."""
    raw = txn.get(keys.JOURNAL + keys.number(seq)) if seq else NO_CHAIN
    return None if raw is None else raw[-CHAIN_BYTES:]


def records_after(txn: Reader, seq: int) -> Iterator[JournalRecord]:
    """Yield the records after `seq`, oldest first."""
    start = keys.JOURNAL + keys.number(seq + 1)
    for key, value in txn.range(start, END):
        yield _unpack(keys.to_number(key[1:]), value[:-CHAIN_BYTES])


class Journal:
    """Reading side of the journal."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv

    def last(self) -> int:
        """Return the sequence number of the newest record, 0 where there is none."""
        with self._kv.read() as txn:
            return last(txn)

    def since(self, seq: int, limit: int = 10_000) -> list[JournalRecord]:
        """Return at most `limit` records after `seq`, oldest first."""
        with self._kv.read() as txn:
            return list(islice(records_after(txn, seq), limit))
