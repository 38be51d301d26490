"""A model whose texts are cut by the tokens of another one, which a server counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece, cut, cut_by_bytes
from fusefs.index.embedder.llama import LlamaTokenizer, TokenizerUnavailable
from fusefs.index.model import Model, Windows

_PAUSE = 60.0
"""Seconds for which a server that failed is not asked again: each time may take its timeout."""

_log = logging.getLogger(__name__)


class CutByServer:
    """Cuts by the tokens of a server of llama.cpp, by bytes while it does not answer."""

    def __init__(self, model: Model, address: str) -> None:
        """Embed by `model`, and cut by the tokens of the server at `address`.

        Raises:
            TokenizerUnavailable: that can be no such address.
        """
        self._model = model
        self._tokenizer = LlamaTokenizer(address)
        # Not what the server says of itself: while it is down this is the same model.
        self.identity = f"{model.identity} cut by {address}"
        self.dimensions = model.dimensions
        self._not_before = 0.0

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the pieces of a text."""
        if time.monotonic() < self._not_before:
            return cut_by_bytes(text)
        try:
            spans = self._tokenizer.spans(text)
        except TokenizerUnavailable as error:
            _log.warning("%s Texts are cut by their bytes for now.", error)
            self._not_before = time.monotonic() + _PAUSE
            return cut_by_bytes(text)
        return cut(text, list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)))

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Return the vectors of texts."""
        return self._model.embed(texts)

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Return the vector of a question."""
        return self._model.embed_question(question)
