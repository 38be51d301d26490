"""Holding the journal against its own hashes.

Each record ends with a hash over itself and the hash of the record before. So whoever alters,
removes or inserts a record must write all later hashes anew; and whoever has noted the *head*
(the newest record's number and hash) somewhere else can tell even that, and a tail that was
cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fusefs.store import keys
from fusefs.store.journal import CHAIN_BYTES, END, NO_CHAIN, link
from fusefs.store.kv import Reader

_REPORT_EVERY = 5000
_KEY_BYTES = 9


class Head(NamedTuple):
    """A record that vouches for itself and all before it.

    Attributes:
        seq: its number; 0 for the beginning of a journal.
        chain: the hash that ends it.
    """

    seq: int
    chain: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that is written ``SEQ:HASH``.

        Raises:
            ValueError: `text` is none.
        """
        match = re.fullmatch(r"(\d{1,19}):([0-9a-fA-F]{64})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no head: write SEQ:HASH as `fusefs log verify` does")
        return cls(int(match[1]), bytes.fromhex(match[2]))


class Verdict:
    """What a walk over the journal has come to so far.

    Attributes:
        records: how many there are.
        head: the newest one.
    """

    def __init__(self) -> None:
        self.records = 0
        self.head = Head(0, NO_CHAIN)


def verify(
    txn: Reader,
    verdict: Verdict,
    *,
    expect: Head | None = None,
    progress: Callable[[int], None] = lambda records: None,
) -> Iterator[str]:
    """Walk the journal in `txn` and yield what is wrong with it, in little memory.

    Args:
        txn: a snapshot.
        verdict: kept up to date on the way.
        expect: a head that was noted earlier and must still be there.
        progress: told now and then how many records were looked at.
    """
    # What the next record may be chained to: the hash that the last one ends with and, if that
    # one was altered, the hash that it ought to end with. None: the one before is missing.
    chained_to: tuple[bytes, ...] | None = (NO_CHAIN,)
    if expect is not None and expect.seq == 0:
        yield from _held_against(expect, NO_CHAIN)
    for key, value in txn.range(keys.JOURNAL, END):
        seq, raw, chain = keys.to_number(key[1:]), value[:-CHAIN_BYTES], value[-CHAIN_BYTES:]
        last = verdict.head.seq
        if seq <= last or len(key) != _KEY_BYTES:
            yield f"journal: there is a record after {last} that has no place there"
            continue
        if seq != last + 1:
            yield _missing(last + 1, seq - 1) + f", so record {seq} cannot be told from another"
            chained_to = None
        right = [chain] if chained_to is None else [link(c, seq, raw) for c in chained_to]
        if chain in right:
            chained_to = (chain,)
        else:
            # The one before was altered with its hash, too: which of the two, nobody can tell.
            unsure = ", or does not follow the one before" if len(right) > 1 else ""
            yield f"journal: record {seq} was altered{unsure}"
            chained_to = (chain, *right[:1])
        if expect is not None and seq == expect.seq:
            yield from _held_against(expect, chain)
        verdict.head = Head(seq, chain)
        verdict.records += 1
        if verdict.records % _REPORT_EVERY == 0:
            progress(verdict.records)
    yield from _check_end(txn, verdict.head, expect)


def _held_against(expect: Head, chain: bytes) -> Iterator[str]:
    if chain != expect.chain:
        yield (
            f"journal: record {expect.seq} is not the one that was noted: it, or what came "
            "before it, was rewritten"
        )


def _check_end(txn: Reader, last: Head, expect: Head | None) -> Iterator[str]:
    """Hold the last record against what the journal says of its end, and against `expect`."""
    noted = txn.get(keys.META_JOURNAL) or keys.number(0) + NO_CHAIN
    end = Head(keys.to_number(noted), noted[8:])
    if end.seq > last.seq:
        yield _missing(last.seq + 1, end.seq) + " at the end"
    elif end.seq < last.seq:
        yield f"journal: it should end at record {end.seq}, but goes on to {last.seq}"
    elif end.chain != last.chain:
        yield f"journal: its end is not record {last.seq}, but another one of that number"
    if expect is not None and expect.seq > max(last.seq, end.seq):
        yield f"{_missing(last.seq + 1, expect.seq)} at the end: they were cut off"


def _missing(first: int, last: int) -> str:
    if first >= last:
        return f"journal: record {first} is missing"
    return f"journal: records {first} to {last} are missing"
