"""Pieces: where a text is cut to be searched (contract section 9).

A text is a string without surrogates. Positions in it count characters (code points) from 0, and
a stretch is half open. Only a line feed breaks a line, so that lines are those of ``grep -n`` and
``wc -l``; a carriage return before it belongs to the line's end, and anywhere else to its text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

MOST = 480
"""The most tokens of a piece."""
OVERLAP = 64
"""The tokens that a piece repeats of the one before it."""
LEAST = 40
"""The fewest characters of a piece that cutting makes."""

Tokens = Sequence[tuple[int, int]]
"""A text's tokens in order, each the stretch of the text that it stands for.

Starts never decrease. White space between tokens belongs to none of them. Several tokens may share
a character that they are parts of (Hangul taken apart, bytes of an emoji). Marks that a model wants
around a text are not among them.
"""
Tokenizer = Callable[[str], Tokens]
"""Finds the tokens of a text."""

_START = itemgetter(0)

_LAST_BLANK_LINE = re.compile(r".*\n[ \t\r]*\n", re.DOTALL)
"""Up to the end of the last blank line: `.*` takes all there is, and gives back what it must."""


class Piece(NamedTuple):
    """A stretch of a text, half open, in characters."""

    start: int
    end: int


def cut(
    text: str, tokens: Tokens, *, most: int = MOST, overlap: int = OVERLAP, least: int = LEAST
) -> list[Piece]:
    """Cut `text` into pieces of at most `most` tokens, in time proportional to its length.

    A piece begins at the start of the text or of a token, and a token belongs to where it starts.
    The *window* of a piece is the longest stretch from its start with at most `most` tokens: over
    the white space after them, to the start of the next one. A window that reaches the end of the
    text is the last piece. Any other is cut at the first of these that there is:

    1. just after its last paragraph break: a line feed, perhaps spaces, tabs and carriage returns,
       and another line feed;
    2. just after its last line break, a line feed;
    3. just after its last ``". "``;
    4. at its end.

    A break must lie in the last third of the window's characters (rounded down) with all it has.
    The next piece begins at the start of the token `overlap` before the cut, that is of the
    `overlap`-th last one that starts before it. A break after which the next piece would not begin
    later than this one's first token is passed over: so every piece begins later than the one
    before it, and no cut moves backwards.

    Where tokens share a character all of it is repeated, and the overlap may have a few more
    tokens. Only a character that alone has more than `most` is a piece with too many.

    All of the text is in the pieces, white space too, but for what is only in pieces shorter than
    `least` characters: those are dropped, unless the whole text is one piece.

    Args:
        tokens: those of `text`.
        most: more than `overlap`.
        overlap: tokens, at least 1.
        least: characters.

    Returns:
        The pieces in order; none for an empty text.
    """
    return _pieces(text, _ByTokens(len(text), tokens, most, overlap), least)


def cut_by_bytes(
    text: str, *, most: int = MOST, overlap: int = OVERLAP, least: int = LEAST
) -> list[Piece]:
    """Cut `text` as `cut` does, with an estimate where there is no tokenizer: two bytes a token.

    A stretch counts as ``ceil(bytes / 2)`` tokens, in UTF-8. So a window is the longest stretch of
    whole characters of at most ``2 * most`` bytes. For the overlap, the tokens of the text are its
    bytes 0 and 1, 2 and 3, and so on; one that begins inside a character begins a piece with that
    character. In ASCII exactly `overlap` tokens are repeated, else up to two more.
    """
    return _pieces(text, _ByBytes(text, most, overlap), least)


def halve(text: str, piece: Piece) -> tuple[Piece, Piece]:
    """Split a piece that an embedder refuses for its length; the halves share nothing.

    It is cut just after its last paragraph break, else its last line break, else its last
    ``". "``, if that lies in the middle third of its characters with all it has, else in the
    middle. So neither half is longer than two thirds, and halving again and again soon ends.

    Raises:
        ValueError: the piece is one character.
    """
    start, end = piece
    size = end - start
    if size < 2:
        raise ValueError(f"one character cannot be split: {piece}")
    third = -(-size // 3)
    middle = next(_cuts(text, start + third, end - third), start + size // 2)
    return Piece(start, middle), Piece(middle, end)


def windows(count: int, *, most: int = 256, overlap: int = 32) -> list[range]:
    """Return the stretches of a piece of `count` tokens that are embedded on their own.

    They are as few as can be with at most `most` tokens each, cover all tokens, and each repeats
    the last `overlap` of the one before it. Their lengths differ by at most one token: two of 256
    for 480, two of 166 for 300.

    Args:
        count: tokens of the piece; none give no windows.
        most: more than `overlap`.

    Returns:
        Indices of tokens in the piece, in order.
    """
    if count <= most:
        return [range(count)] if count else []
    fresh = count - overlap
    parts = -(-fresh // (most - overlap))
    edges = [fresh * part // parts for part in range(parts + 1)]
    return [range(edges[n], edges[n + 1] + overlap) for n in range(parts)]


def line_range(text: str, piece: Piece) -> tuple[int, int]:
    """Return the first and the last line with characters of `piece`, counted from 1.

    A line feed belongs to the line that it ends.

    Args:
        text: the text.
        piece: not empty.
    """
    first = text.count("\n", 0, piece.start) + 1
    return first, first + text.count("\n", piece.start, piece.end - 1)


class _Measure(Protocol):
    """Finds places in a text by counting its tokens."""

    first: int
    """The start of the text's first token."""

    def reach(self, start: int) -> int:
        """Return the end of the window at `start`; where not even one character fits, `start`."""
        ...

    def back(self, cut: int) -> int:
        """Return the start of the token that the overlap before `cut` begins with.

        Where fewer tokens are before it, it is at most `first`.
        """
        ...


class _ByTokens:
    def __init__(self, length: int, tokens: Tokens, most: int, overlap: int) -> None:
        self.first = tokens[0][0] if tokens else 0
        self._length = length
        self._tokens = tokens
        self._most = most
        self._overlap = overlap

    def reach(self, start: int) -> int:
        beyond = bisect_left(self._tokens, start, key=_START) + self._most
        return self._tokens[beyond][0] if beyond < len(self._tokens) else self._length

    def back(self, cut: int) -> int:
        index = bisect_left(self._tokens, cut, key=_START) - self._overlap
        return self._tokens[max(index, 0)][0]


class _ByBytes:
    first = 0

    def __init__(self, text: str, most: int, overlap: int) -> None:
        self._text = text
        self._most = 2 * most
        self._overlap = 2 * overlap
        # The window's start, and the bytes before it.
        self._start = 0
        self._bytes = 0

    def reach(self, start: int) -> int:
        self._bytes += len(self._text[self._start : start].encode())
        self._start = start
        # No more characters than bytes; the last one may be cut through.
        window = self._text[start : start + self._most].encode()[: self._most]
        return start + len(window.decode(errors="ignore"))

    def back(self, cut: int) -> int:
        piece = self._text[self._start : cut].encode()
        odd = (self._bytes + len(piece)) % 2
        before = piece[: max(len(piece) + odd - self._overlap, 0)]
        return self._start + len(before.decode(errors="ignore"))


def _pieces(text: str, measure: _Measure, least: int) -> list[Piece]:
    if not text:
        return []
    pieces = []
    start, first = 0, measure.first
    # A character is a window even where it has too many tokens.
    while (end := max(measure.reach(start), start + 1)) < len(text):
        at, following = _cut_window(text, Piece(start, end), first, measure)
        pieces.append(Piece(start, at))
        start = first = following
    if not pieces:
        return [Piece(0, len(text))]
    pieces.append(Piece(start, len(text)))
    return [piece for piece in pieces if piece.end - piece.start >= least]


def _cut_window(text: str, window: Piece, first: int, measure: _Measure) -> tuple[int, int]:
    """Return where to cut `window`, whose first token starts at `first`, and where to go on."""
    start, end = window
    for at in _cuts(text, end - (end - start) // 3, end):
        following = measure.back(at)
        if following > first:
            return at, following
    return end, max(measure.back(end), start + 1)


def _cuts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the places just after the last break of each kind in a stretch, the best kind first."""
    if found := _LAST_BLANK_LINE.match(text, start, end):
        yield found.end()
    for mark in ("\n", ". "):
        at = text.rfind(mark, start, end)
        if at >= 0:
            yield at + len(mark)
