"""What an index should answer, worked out from the texts each time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fusefs.contract.chunks import Piece
from fusefs.index.terms import WORDS, terms_of


def cut_by_lines(text: str) -> list[Piece]:
    """Pieces of three lines: no cutter of the product, so that many fit into a small text."""
    pieces, at = [], 0
    lines = text.splitlines(keepends=True)
    for first in range(0, len(lines), 3):
        end = at + sum(map(len, lines[first : first + 3]))
        pieces.append(Piece(at, end))
        at = end
    return pieces


def term_list(text: str) -> list[str]:
    return [term for word in WORDS.findall(text) for term in terms_of(word)]


def word_scores(
    texts: Mapping[bytes, str],
    terms: Sequence[str],
    cut: Callable[[str], Sequence[Piece]] = cut_by_lines,
) -> dict[tuple[bytes, int], float]:
    """The BM25 score of each piece (text's key, ordinal) that has one of the terms."""
    pieces = {
        (key, at): Counter(term_list(text[piece.start : piece.end]))
        for key, text in texts.items()
        for at, piece in enumerate(cut(text))
    }
    lengths = {piece: sum(found.values()) for piece, found in pieces.items()}
    average = sum(lengths.values()) / len(pieces) if pieces else 1
    scores: dict[tuple[bytes, int], float] = {}
    for term, times in Counter(terms).items():
        having = [piece for piece, found in pieces.items() if found[term]]
        rarity = math.log1p((len(pieces) - len(having) + 0.5) / (len(having) + 0.5))
        for piece in having:
            count = pieces[piece][term]
            norm = 1.2 * (1 - 0.9 + 0.9 * (lengths[piece] / average))
            scores[piece] = scores.get(piece, 0.0) + times * rarity * (count * 2.2) / (count + norm)
    return scores
