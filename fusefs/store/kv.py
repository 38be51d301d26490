"""The seam below the store: ordered keys in transactions.

This is all that the rest of the store asks of an engine: get, put, delete and range over
byte strings in byte order, reads from one snapshot, writes that happen together or not at
all. LMDB serves it (`fusefs.store.lmdb_kv`); a distributed engine can, because nothing more
than this is used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class Reader(Protocol):
    """A snapshot."""

    @property
    def stamp(self) -> Hashable:
        """Whatever two snapshots hold is the same if their stamps are equal; None equals none,
        since what it stands for may change."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        ...

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with ``start <= key < end`` in byte order.

        The transaction must stay open, and nothing may be written in it, while the iterator
        is in use.
        """
        ...

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the pair with the greatest key in ``start <= key < end``, or None."""
        ...


class Writer(Reader, Protocol):
    """A transaction that sees its own writes; leaving it by an exception undoes them all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` (at most 511 bytes) to `value`."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove `key` if it is there."""
        ...


class KV(Protocol):
    """An ordered store of keys."""

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot; keep it short."""
        ...

    def write(
        self, *, freeing: bool = False, lazy: bool = False
    ) -> AbstractContextManager[Writer]:
        """Open the one write transaction; waits for other writers.

        Args:
            freeing: what is written frees space in the end: allowed on a full disk.
            lazy: it survives the death of the process like everything, but nobody needs it
                durable, or to see it, before a second has passed.

        Raises:
            TimeoutError: another process kept the writer lock past the deadline.
            OSError: ENOSPC and the like; nothing was written.
        """
        ...


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key that is greater than every key beginning with `prefix`."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1])
