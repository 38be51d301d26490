"""Vectors of pieces: rows of int8 in memory-mapped segment files, scanned whole.

A row is the vector of one window of a piece, scaled so that its largest component is 127; the
question is scaled alike. Products of such rows are whole numbers, so a score depends on nothing
but the two, wherever the row stands. Rows are only ever added; those of documents that are gone
are blanked, and take their place until the index is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numkong
import numpy as np
from numpy.typing import NDArray

from fusefs.index.snapshot import Mask, Snapshot

SEGMENT_ROWS = 1 << 16
"""Rows of a file."""

Rows = NDArray[np.int8]
Scores = NDArray[np.float64]

_HEAD = np.dtype([("scale", np.float32), ("document", np.uint32), ("ordinal", np.uint32)])
_NOBODY = 0xFFFFFFFF
"""The document of a blanked row."""


class Owned(NamedTuple):
    """The vectors of some pieces of a document.

    Attributes:
        document: its number.
        begin, until: the pieces: the first, and the one behind the last.
        ordinals: for each vector which piece it is of, ascending.
        vectors: normalised, one row each.
    """

    document: int
    begin: int
    until: int
    ordinals: Sequence[int]
    vectors: NDArray[np.float32]


def quantize(vectors: NDArray[np.float32]) -> tuple[Rows, NDArray[np.float32]]:
    """Return rows of int8, and for each the factor that makes it the vector again."""
    largest = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny)
    scales = (largest / 127).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


class VectorFiles:
    """The rows of one index. How many of them count is for the caller to know."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        """Keep rows of so many components in `folder`."""
        self._folder = folder
        self._dimensions = dimensions
        self._written: set[Path] = set()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, first: int, owned: Owned) -> int:
        """Write the rows of a document from the row `first` on, to be synced; return how many."""
        if not len(owned.vectors):
            return 0
        rows, scales = quantize(owned.vectors)
        heads = np.empty(len(rows), _HEAD)
        heads["scale"] = scales
        heads["document"] = owned.document
        heads["ordinal"] = owned.ordinals
        self._write(first, rows, heads)
        return len(rows)

    def sync(self) -> None:
        """Make durable what was written."""
        for path in self._written:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        self._written.clear()

    def blank(self, first: int, count: int) -> None:
        """Overwrite rows with nothing."""
        heads = np.zeros(count, _HEAD)
        heads["document"] = _NOBODY
        self._write(first, np.zeros((count, self._dimensions), np.int8), heads)

    def _write(self, first: int, rows: Rows, heads: NDArray[np.void]) -> None:
        done = 0
        while done < len(rows):
            segment, at = divmod(first + done, SEGMENT_ROWS)
            until = min(len(rows), done + SEGMENT_ROWS - at)
            self._write_at(segment, "rows", at * self._dimensions, rows[done:until])
            self._write_at(segment, "heads", at * _HEAD.itemsize, heads[done:until])
            done = until

    def _write_at(self, segment: int, kind: str, at: int, data: NDArray[Any]) -> None:
        path = self._path(segment, kind)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(np.ascontiguousarray(data).tobytes())
            while left:
                written = os.pwrite(fd, left, at)
                left, at = left[written:], at + written
        finally:
            os.close(fd)
        self._written.add(path)

    def _path(self, segment: int, kind: str) -> Path:
        return self._folder / f"{segment:06d}.{kind}"

    def mapped(self, segment: int, count: int) -> Mapped:
        """Return the first `count` rows of a file, mapped.

        Raises:
            OSError: it is missing.
            ValueError: it is shorter than that.
        """
        path, heads = self._path(segment, "rows"), self._path(segment, "heads")
        return Mapped(
            np.asarray(np.memmap(path, np.int8, "r", shape=(count, self._dimensions))),
            np.asarray(np.memmap(heads, _HEAD, "r", shape=(count,))),
        )


class Mapped(NamedTuple):
    """The rows of one file, and whose they are."""

    rows: Rows
    heads: NDArray[np.void]


class Runs(NamedTuple):
    """What a file's rows mean in a snapshot.

    Attributes:
        rows: the file's rows.
        scales: their factors.
        begins: the first row of each run of rows that are of one piece.
        pieces: the piece of each run, all different but for -1 for what is in no piece.
    """

    rows: Rows
    scales: NDArray[np.float32]
    begins: NDArray[np.int64]
    pieces: NDArray[np.int64]


class Meanings:
    """The vectors of the pieces of a snapshot."""

    def __init__(self, pieces: int, files: Sequence[Runs]) -> None:
        """Take what `runs` found in each file, of so many pieces in all."""
        self._count = pieces
        self._files = files
        self.known: Mask = np.zeros(pieces, np.bool_)
        """The pieces that have vectors."""
        for file in files:
            self.known[file.pieces[file.pieces >= 0]] = True

    def scores(self, question: NDArray[np.float32]) -> Scores:
        """Return how near each piece is to a question, -inf for those that have no vector.

        Args:
            question: its vector, normalised.

        Returns:
            The cosine of the nearest window of each piece.
        """
        row, scale = quantize(question[None, :])
        # The last place takes what is in no piece.
        found = np.full(self._count + 1, -np.inf)
        for file in self._files:
            products = np.asarray(numkong.cdist(file.rows, row, metric="dot")).ravel()
            near = products * file.scales * float(scale[0])
            if len(file.begins) < len(near):
                near = np.maximum.reduceat(near, file.begins)
            found[file.pieces] = np.maximum(found[file.pieces], near)
        return found[:-1]


def runs(snapshot: Snapshot, file: Mapped) -> Runs:
    """Find out whose each row is.

    Snapshots agree on it as long as no document is dropped: new ones come behind the others.
    """
    first = snapshot.first_pieces(file.heads["document"])
    pieces = np.where(first >= 0, first + file.heads["ordinal"], -1)
    begins = np.flatnonzero(np.diff(pieces, prepend=-2))
    return Runs(file.rows, np.array(file.heads["scale"]), begins, pieces[begins])
