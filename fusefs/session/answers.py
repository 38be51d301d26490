"""What a search answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Mode(StrEnum):
    """By what is searched."""

    HYBRID = "hybrid"
    MEANING = "meaning"
    WORDS = "words"


class Hit(NamedTuple):
    """A passage that was found.

    Attributes:
        path: the first path, in path order, at which it stands.
        paths: all of them, in path order.
        first_line, last_line: where in the file, from 1.
        text: the passage, without blank lines at its ends.
        score: by which it was ranked.
        words, meaning: its BM25 score and its cosine, None where it is in no such list.
    """

    path: str
    paths: tuple[str, ...]
    first_line: int
    last_line: int
    text: str
    score: float
    words: float | None
    meaning: float | None


@dataclass(slots=True)
class Completeness:
    """How much of what the session sees can be found.

    Attributes:
        files: visible files.
        words_pending: contents whose words are not indexed yet.
        vectors_pending: contents that cannot be found by meaning yet.
        not_text, too_large: contents that never can.
    """

    files: int = 0
    words_pending: int = 0
    vectors_pending: int = 0
    not_text: int = 0
    too_large: int = 0


@dataclass(slots=True)
class Found:
    """The answer to a question.

    Attributes:
        hits: best first.
        completeness: of the index, for this session.
        notes: what a person should know about the answer.
    """

    hits: list[Hit]
    completeness: Completeness
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the hits as the contract has them."""
        return "\n\n".join(
            f"{hit.path}:{hit.first_line}-{hit.last_line}\n{hit.text}" for hit in self.hits
        )
