"""Who makes the vectors of an index: one process at a time."""

from __future__ import annotations

import struct
import time

from fusefs.store.derived_kv import DerivedReader, DerivedWriter

HEARTBEAT = 10.0
"""Seconds after which the holder says that it lives, at the latest."""
EXPIRES = 60.0
"""Seconds without a word after which another one may take over."""

_LEASE = b"mlease"
_HELD = struct.Struct("<Qd")


class LeaseLost(Exception):
    """Another process makes the vectors now."""


def holder(txn: DerivedReader) -> tuple[int, float] | None:
    """Return the process that holds the lease, and when it last said so; None if it is free."""
    raw = txn.get(_LEASE)
    if raw is None:
        return None
    process, when = _HELD.unpack(raw)
    return process, when


def take(txn: DerivedWriter, process: int, alive: set[int]) -> bool:
    """Take the lease if it is free, or its holder is dead or silent; tell whether it was had.

    Args:
        txn: the transaction.
        process: who takes it.
        alive: the processes of the instance that live.
    """
    held = holder(txn)
    if held is not None and held[0] != process:
        is_fresh = 0 <= time.time() - held[1] < EXPIRES
        if held[0] in alive and is_fresh:
            return False
    txn.put(_LEASE, _HELD.pack(process, time.time()))
    return True


def keep(txn: DerivedWriter, process: int) -> None:
    """Say that the holder lives.

    Raises:
        LeaseLost: it is the holder no more.
    """
    held = holder(txn)
    if held is None or held[0] != process:
        raise LeaseLost
    txn.put(_LEASE, _HELD.pack(process, time.time()))


def give_back(txn: DerivedWriter, process: int) -> None:
    """Let others have it."""
    held = holder(txn)
    if held is not None and held[0] == process:
        txn.delete(_LEASE)
