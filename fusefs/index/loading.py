"""Which model makes an instance's indexes, and getting it ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece, cut_by_bytes
from fusefs.index.library import Library
from fusefs.index.model import Model, Windows


class WordsAlone:
    """No model: texts are cut by their bytes, and nothing is embedded."""

    identity = "words alone"
    dimensions = 0

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the pieces of a text, with two bytes a token."""
        return cut_by_bytes(text)

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Fail: there is nothing to embed with."""
        raise NotImplementedError

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Fail, as `embed`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, or what is used in its place.

    Attributes:
        model: cuts, and embeds if it can.
        name: what it is called.
        unavailable: why nothing can be found by meaning, None where it can.
    """

    model: Model
    name: str
    unavailable: str | None


def load(library: Library) -> Loaded:
    """Return the model that the settings ask for, or what stands in for it."""
    del library
    return Loaded(WordsAlone(), "none", "no model is built in yet.")
