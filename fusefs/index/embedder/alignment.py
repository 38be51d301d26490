"""Where the tokens of a text are, from what they spell."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

_UNKNOWN = b"[UNK]"

Bounds = list[tuple[int, int]]
"""Where each token starts and ends in a text, in characters."""


class NotAligned(Exception):
    """Tokens do not spell the text."""


def align(text: str, pieces: Sequence[bytes]) -> Bounds:
    """Return where the tokens of `text` are, each of which spells a piece.

    A vocabulary of bytes spells the text as it is, perhaps after a space. One of words (WordPiece)
    spells it without white space, case and accents, and may leave out an unknown word.

    Raises:
        NotAligned: they do not spell the text in either way.
    """
    data = text.encode()
    spelled = b"".join(pieces)
    if spelled == data:
        return _by_bytes(data, pieces, 0)
    if spelled == b" " + data:
        return _by_bytes(data, pieces, 1)
    return _by_letters(text, pieces)


def _by_bytes(data: bytes, pieces: Sequence[bytes], before: int) -> Bounds:
    """Align pieces that spell `before` bytes and then `data`."""
    begins = np.frombuffer(data, np.uint8) & 0xC0 != 0x80
    # The character that each byte is of, and the end of the text.
    characters = np.append(np.cumsum(begins) - 1, np.count_nonzero(begins))
    edges = np.fromiter(accumulate(map(len, pieces), initial=0), np.int64, len(pieces) + 1)
    edges = np.maximum(edges - before, 0)
    starts = characters[edges[:-1]]
    # A character of which only some bytes are in a token is in it too.
    ends = np.where(edges[1:] > edges[:-1], characters[edges[1:] - 1] + 1, starts)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _by_letters(text: str, pieces: Sequence[bytes]) -> Bounds:
    letters, places, heads = _letters_of_text(text)
    bounds = []
    at = 0
    for piece in pieces:
        if piece.strip() == _UNKNOWN:
            end = next((n for n in range(at + 1, len(heads)) if heads[n]), len(letters))
        else:
            spelled = "".join(map(_letters, piece.decode(errors="replace")))
            if not letters.startswith(spelled, at):
                raise NotAligned
            end = at + len(spelled)
        start = places[at]
        bounds.append((start, places[end - 1] + 1 if end > at else start))
        at = end
    if at < len(letters):
        raise NotAligned
    return bounds


def _letters_of_text(text: str) -> tuple[str, list[int], list[bool]]:
    """Return what tokens spell, the character that each letter is of, and which begin a word."""
    letters: list[str] = []
    places: list[int] = []
    heads: list[bool] = []
    head = True
    for place, character in enumerate(text):
        alone = _is_word(character)
        head = head or alone or character.isspace()
        for letter in _letters(character):
            letters.append(letter)
            places.append(place)
            heads.append(head)
            head = alone
    return "".join(letters), [*places, len(text)], heads


def _letters(character: str) -> str:
    """Return the letters that a character is spelled with: none for white space and marks."""
    return "".join(
        letter
        for letter in unicodedata.normalize("NFD", character.lower())
        if unicodedata.category(letter)[0] not in "CZ" and unicodedata.category(letter) != "Mn"
    )


def _is_word(character: str) -> bool:
    """Say whether a character is a word by itself, as marks and ideographs are."""
    kind = unicodedata.category(character)[0]
    return (
        kind == "P"
        or (kind == "S" and character.isascii())
        or unicodedata.name(character, "").startswith("CJK ")
    )
