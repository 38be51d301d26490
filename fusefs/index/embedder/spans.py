"""The tokens of a text, and where they stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
"""Tokens by their numbers in a vocabulary."""


class TokenSpans(NamedTuple):
    """The tokens of a text in order.

    Starts never decrease. Several tokens may share a character that they are parts of.

    Attributes:
        ids: their numbers in the vocabulary.
        starts: where each begins, in characters from the start of the text.
        ends: where each ends.
    """

    ids: Ids
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def at(self, offset: int) -> TokenSpans:
        """Return these, of a text that begins at `offset` of a longer one."""
        return TokenSpans(self.ids, self.starts + np.int32(offset), self.ends + np.int32(offset))

    def between(self, first: int, last: int) -> TokenSpans:
        """Return those from `first` to before `last`."""
        return TokenSpans(*(column[first:last] for column in self))


def joined(parts: Sequence[TokenSpans]) -> TokenSpans:
    """Return the tokens of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.empty(0, np.int32)
        return TokenSpans(none, none, none)
    ids, starts, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TokenSpans(ids, starts, ends)
