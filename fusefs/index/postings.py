"""Postings: in which pieces of a segment a term stands, and how often.

A segment has at most 65,536 pieces, so a piece is two bytes, and a count is one, or two where one
is not enough. The arrays are as roaring bitmaps keep a sparse container, ready to be used without
being unpacked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusefs.index.terms import terms_of, words_of

MOST_PIECES = 1 << 16
"""Pieces of a segment at most."""

Pieces = NDArray[np.uint16]
Counts = NDArray[np.unsignedinteger[Any]]


def unpack(raw: bytes) -> tuple[Pieces, Counts]:
    """Return the pieces, ascending, and counts in one term's packed postings."""
    wide = raw[-1] == 2
    number = (len(raw) - 1) // (4 if wide else 3)
    pieces = np.frombuffer(raw, np.uint16, number)
    if wide:
        return pieces, np.frombuffer(raw, np.uint16, number, 2 * number)
    return pieces, np.frombuffer(raw, np.uint8, number, 2 * number)


class Counted(NamedTuple):
    """The terms of the pieces of a segment.

    Attributes:
        lengths: how many terms each piece has, repeated ones counted.
        postings: (term as UTF-8, packed postings), in the order of the terms' bytes.
    """

    lengths: NDArray[np.uint32]
    postings: Sequence[tuple[bytes, bytes]]


class _Numbers(dict[str, int]):
    """Numbers whatever it is asked for, from 0, in the order of the first asking."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class TermCounter:
    """Counts the terms of the pieces of one segment."""

    def __init__(self) -> None:
        """Begin with no piece."""
        self._words = _Numbers()
        self._found: list[NDArray[np.uint32]] = []

    def add(self, text: str) -> None:
        """Count the terms of the next piece."""
        words = words_of(text)
        self._found.append(np.fromiter(map(self._words.__getitem__, words), np.uint32, len(words)))

    def finish(self) -> Counted:
        """Return what was counted."""
        pieces = len(self._found)
        terms, first, listed = self._terms()
        words = np.concatenate(self._found) if self._found else np.empty(0, np.uint32)
        of_piece = np.repeat(
            np.arange(pieces, dtype=np.int32), [len(found) for found in self._found]
        )
        # Each word stands for one or several terms: those from first[word] to first[word + 1].
        each = np.diff(first)[words]
        of_piece = np.repeat(of_piece, each)
        at = np.repeat(first[words] - np.cumsum(each, dtype=np.int32) + each, each)
        at += np.arange(len(of_piece), dtype=np.int32)
        found = listed[at]
        lengths = np.bincount(of_piece, minlength=pieces).astype(np.uint32)
        return Counted(lengths, list(_grouped(terms, found, of_piece)))

    def _terms(self) -> tuple[list[bytes], NDArray[np.int32], NDArray[np.int32]]:
        """Return all terms, in the order of their bytes, and which ones each word has."""
        numbers = _Numbers()
        listed: list[int] = []
        first = [0]
        for word in self._words:
            listed.extend(map(numbers.__getitem__, terms_of(word)))
            first.append(len(listed))
        terms = [term.encode() for term in numbers]
        order = sorted(range(len(terms)), key=terms.__getitem__)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return (
            [terms[at] for at in order],
            np.array(first, np.int32),
            rank[np.array(listed, np.int32)],
        )


def _grouped(
    terms: Sequence[bytes], found: NDArray[np.int32], of_piece: NDArray[np.int32]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield each term with its packed postings, given (term, piece) of every occurrence."""
    occurrences = found.astype(np.int64)
    occurrences <<= 16
    occurrences |= of_piece
    occurrences.sort()
    starts = _starts(occurrences)
    counts = np.diff(starts, append=len(occurrences))
    distinct = occurrences[starts]
    yield from packed(terms, distinct >> 16, distinct & 0xFFFF, counts)


def _starts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where runs of equal values begin."""
    differs = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return np.flatnonzero(differs)


def packed(
    terms: Sequence[bytes],
    of_term: NDArray[np.int64],
    pieces: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> Iterator[tuple[bytes, bytes]]:
    """Yield each term with its packed postings.

    Args:
        terms: all terms.
        of_term: for each posting which term's it is, ascending.
        pieces: for each posting the piece, ascending within a term.
        counts: for each posting how often the term stands there, less than 65,536 times.
    """
    if not len(of_term):
        return
    begins = _starts(of_term)
    wide = np.maximum.reduceat(counts, begins) > 255
    two, narrow, broad = (
        pieces.astype(np.uint16).tobytes(),
        counts.astype(np.uint8).tobytes(),
        counts.astype(np.uint16).tobytes(),
    )
    ends = [*begins[1:].tolist(), len(of_term)]
    numbers = of_term[begins].tolist()
    for begin, end, number, is_wide in zip(
        begins.tolist(), ends, numbers, wide.tolist(), strict=True
    ):
        if is_wide:
            raw = two[2 * begin : 2 * end] + broad[2 * begin : 2 * end] + b"\2"
        else:
            raw = two[2 * begin : 2 * end] + narrow[begin:end] + b"\1"
        yield terms[number], raw


def unite(parts: Iterable[tuple[bytes, NDArray[np.int64]]]) -> bytes | None:
    """Bring one term's postings of several segments together.

    Args:
        parts: packed postings, each with the new number of every piece of its segment, -1 for
            those that are left out; new numbers ascend, from one part to the next as well.

    Returns:
        Packed postings, or None where nothing is left.
    """
    pieces: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    for raw, renumbered in parts:
        old, counted = unpack(raw)
        new = renumbered[old]
        kept = new >= 0
        pieces.append(new[kept])
        counts.append(counted[kept].astype(np.int64))
    of_piece, count = np.concatenate(pieces), np.concatenate(counts)
    for _, raw in packed([b""], np.zeros(len(of_piece), np.int64), of_piece, count):
        return raw
    return None
