"""What an index asks of a model: where texts are cut, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece


class Windows(NamedTuple):
    """The vectors of a text's pieces.

    Attributes:
        ordinals: for each vector which piece it is of, ascending.
        vectors: normalised, one row each.
    """

    ordinals: Sequence[int]
    vectors: NDArray[np.float32]


class Model(Protocol):
    """Cuts and embeds. A vector depends on its own text alone."""

    identity: str
    """Tells this model from all that give other pieces or vectors."""
    dimensions: int
    """Components of a vector; 0 for one that only cuts."""

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the pieces of a text."""
        ...

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Return the vectors of texts, each of which is given as its pieces."""
        ...

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Return the vector of a question, normalised."""
        ...
