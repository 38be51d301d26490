"""What an index asks of a model, answered by an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import MOST, Piece, Tokens, cut, halve, windows
from fusefs.index.embedder.embedder import Embedder
from fusefs.index.embedder.spans import Ids, TokenSpans
from fusefs.index.model import Windows

_WINDOW = 256
"""Tokens that are embedded together: in a longer stretch one meaning hides another."""


class EmbeddingModel:
    """Cuts texts by the tokens of an embedder, and embeds windows of their pieces."""

    def __init__(self, embedder: Embedder) -> None:
        """Use an embedder.

        Raises:
            EmbedderUnavailable: it is. The other methods may find so too.
        """
        self._embedder = embedder
        self.identity = embedder.identity
        self.dimensions = embedder.dimensions

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the pieces of a text."""
        return cut(text, _Stretches(self._embedder.tokenizer.spans(text)))

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Return the vectors of texts, each of which is given as its pieces."""
        most = min(_WINDOW, self._embedder.max_tokens)
        ids: list[Ids] = []
        owners: list[list[int]] = []
        for pieces in texts:
            found = [self._windows(piece, most) for piece in pieces]
            ids += [window for windows_ in found for window in windows_]
            owners.append([at for at, windows_ in enumerate(found) for _ in windows_])
        vectors = self._embedder.embed(ids)
        edges = np.cumsum([len(ordinals) for ordinals in owners])
        parts = np.split(vectors, edges[:-1]) if owners else []
        return [Windows(*pair) for pair in zip(owners, parts, strict=True)]

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Return the vector of a question, normalised."""
        return self._embedder.embed_query(question)

    def _windows(self, piece: str, most: int) -> list[Ids]:
        """Return the windows of a piece; one of too many tokens, as another way of counting may
        have cut it, is halved until it has not (contract section 9)."""
        ids = self._embedder.tokenizer.spans(piece).ids
        if len(ids) > MOST and len(piece) > 1:
            halves = halve(piece, Piece(0, len(piece)))
            return [
                window
                for half in halves
                for window in self._windows(piece[half.start : half.end], most)
            ]
        stretches = windows(len(ids), most=most, overlap=most // 8)
        return [ids[stretch.start : stretch.stop] for stretch in stretches]


class _Stretches(Sequence[tuple[int, int]]):
    """Tokens as the cutter wants them. It looks at few, so a tuple is made when it does."""

    def __init__(self, spans: TokenSpans) -> None:
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans.ids)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Tokens: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | Tokens:
        if isinstance(index, slice):
            return _Stretches(TokenSpans(*(column[index] for column in self._spans)))
        return int(self._spans.starts[index]), int(self._spans.ends[index])
