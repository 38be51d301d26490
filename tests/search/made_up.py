"""A model that is quick and can be understood: words with the same first letter mean the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece
from fusefs.index.model import Windows

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class MadeUp:
    """Cuts after each blank line; a vector counts the first letters of words."""

    def __init__(self, identity: str = "made-up", dimensions: int = len(LETTERS) + 1) -> None:
        self.identity = identity
        self.dimensions = dimensions
        self.embedded: list[str] = []

    def cut(self, text: str) -> Sequence[Piece]:
        pieces, at = [], 0
        for part in text.split("\n\n"):
            end = min(len(text), at + len(part) + 2)
            pieces.append(Piece(at, end))
            at = end
        return [piece for piece in pieces if piece.start < piece.end]

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        self.embedded += [piece for pieces in texts for piece in pieces]
        return [
            Windows(list(range(len(pieces))), np.stack([self.embed_question(p) for p in pieces]))
            for pieces in texts
        ]

    def embed_question(self, question: str) -> NDArray[np.float32]:
        counts = np.ones(self.dimensions, np.float32) * 0.01
        for word in question.lower().split():
            if word[0] in LETTERS:
                counts[LETTERS.index(word[0])] += 1
        return counts / np.linalg.norm(counts)
