"""What a forge keeps in the instance: the seam, and how values are packed.

The caller hands in its store of ordered keys: `fusefs.store.kv.KV` has the transactions,
`fusefs.store.instance.Instance` the commit. Keys all begin with ``F``:

========================================= ============================================
key                                       value
========================================= ============================================
``Fk``, SHA-256 of an effect key          what was done under an idempotency key
``Fn``, repository                        local forge: the number given last
``Fp``, repository, number (8 bytes)      local forge: a pull request
``Fr``, repository, tag                   local forge: a release
========================================= ============================================

A repository is the first 16 bytes of the SHA-256 of its name. Values are JSON. None holds a token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

KEYS = b"Fk"
NUMBERS = b"Fn"
REQUESTS = b"Fp"
RELEASES = b"Fr"


class Reader(Protocol):
    """A snapshot."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        ...

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with ``start <= key < end`` in byte order."""
        ...


class Writer(Reader, Protocol):
    """A transaction that sees its own writes; leaving it by an exception undoes them all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` (at most 511 bytes) to `value`."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove `key` if it is there."""
        ...


class Records(Protocol):
    """An ordered store of keys, shared by the processes of an instance.

    It is called in whatever thread a forge is called in. A store that belongs to one thread must
    be handed in behind something that does the transactions there.
    """

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot; keep it short."""
        ...

    def write(self) -> AbstractContextManager[Writer]:
        """Open the one write transaction; keep it short."""
        ...

    def commit(self) -> None:
        """Make durable what was written: no loss of power takes it back."""
        ...


def repository_key(name: str) -> bytes:
    """Return the 16 bytes that stand for a repository in keys."""
    return hashlib.sha256(name.encode()).digest()[:16]


def pack(value: Any) -> bytes:
    """Return a JSON value as bytes, the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def unpack(raw: bytes) -> Any:
    """Return the JSON value of `pack`."""
    return json.loads(raw)
