"""Instances of any size to be searched, made up from the words of a real text.

Words are drawn as often as they stand in that text; vectors are random. What a search costs depends
on how many pieces there are and how often words stand in them, not on what it all means.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece
from fusefs.index.index import Index, Lacking
from fusefs.index.library import Library
from fusefs.index.model import Windows
from fusefs.index.terms import words_of
from fusefs.index.vectors import Owned
from fusefs.session.indexing import Indexer
from fusefs.session.session import Session
from fusefs.session.transfer import import_directory
from fusefs.store.instance import Instance

DIMENSIONS = 384
PIECES_OF_A_FILE = 10
_WORDS_OF_A_PIECE = 100
_WORDS_OF_A_LINE = 10
_FILES_OF_A_FOLDER = 100
_VECTORS_AT_ONCE = 10_000
_SEED = 20


class RandomModel:
    """Cuts at blank lines; any text has a random vector, and always the same."""

    identity = "random"
    dimensions = DIMENSIONS

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the paragraphs of a text."""
        pieces, at = [], 0
        while at < len(text):
            found = text.find("\n\n", at)
            end = len(text) if found < 0 else found + 2
            pieces.append(Piece(at, end))
            at = end
        return pieces

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Return a vector for each piece."""
        return [
            Windows(range(len(pieces)), np.stack([self.embed_question(one) for one in pieces]))
            for pieces in texts
        ]

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Return a vector."""
        seed = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")
        vector: NDArray[np.float32] = _unit_vectors(np.random.default_rng(seed), 1)[0]
        return vector


class Vocabulary:
    """The words of a text, and how often each stands in it."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in words_of(text))
        self._words = list(counts)
        self._until = np.cumsum(list(counts.values()))
        self._random = np.random.default_rng(_SEED)

    def draw(self, count: int) -> list[str]:
        """Return some words."""
        places = self._random.integers(self._until[-1], size=count)
        return [self._words[at] for at in np.searchsorted(self._until, places, "right").tolist()]


def make_instance(folder: Path, pieces: int, vocabulary: Vocabulary) -> None:
    """Make an instance whose files have so many pieces, all of them indexed."""
    with Instance.init(folder / "instance") as instance:
        host = folder / "host"
        for number in range(pieces // PIECES_OF_A_FILE):
            file = host / str(number // _FILES_OF_A_FOLDER) / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n\n".join(_piece(vocabulary) for _ in range(PIECES_OF_A_FILE)))
        import_directory(Session(instance), host, "/files", lambda progress: None)
        library = Library(instance.folder)
        indexer = Indexer(instance, library, RandomModel())
        assert indexer.take()
        indexer.add_words(lambda: True)
        _add_vectors(library.answering(RandomModel()))
        indexer.give_back()
        library.close()


def _piece(vocabulary: Vocabulary) -> str:
    words = vocabulary.draw(_WORDS_OF_A_PIECE)
    lines = range(0, len(words), _WORDS_OF_A_LINE)
    return "\n".join(" ".join(words[at : at + _WORDS_OF_A_LINE]) for at in lines)


def _add_vectors(index: Index) -> None:
    random = np.random.default_rng(_SEED)
    lacking = index.without_vectors(range(index.counters.documents))
    for group in _groups(lacking, _VECTORS_AT_ONCE // PIECES_OF_A_FILE):
        index.put_vectors(
            [
                Owned(
                    one.document, 0, one.pieces, range(one.pieces),
                    _unit_vectors(random, one.pieces),
                )
                for one in group
            ]
        )  # fmt: skip


def _groups(items: Sequence[Lacking], size: int) -> Iterator[Sequence[Lacking]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


def _unit_vectors(random: np.random.Generator, count: int) -> NDArray[np.float32]:
    vectors = random.standard_normal((count, DIMENSIONS), np.float32)
    normalised: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalised
