"""Cases about pieces in conformance vectors; ``conformance/README.md`` says what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fusefs.contract.chunks import (
    LEAST,
    MOST,
    OVERLAP,
    Piece,
    Tokenizer,
    cut,
    cut_by_bytes,
    halve,
    line_range,
)

_TOKENIZERS: Mapping[str, Tokenizer] = {
    "characters": lambda text: [(at, at + 1) for at in range(len(text))],
    "words": lambda text: [word.span() for word in re.finditer(r"\S+", text)],
}


def cut_text(fields: Mapping[str, object]) -> list[list[int]]:
    """Cut the text of a ``cut`` case.

    Raises:
        TypeError: a field is not what it must be.
        KeyError: there is no such tokenizer.
    """
    text = write_out(fields["text"])
    defaults = {"size": MOST, "overlap": OVERLAP, "least": LEAST}
    most, overlap, least = _numbers([fields.get(key, usual) for key, usual in defaults.items()])
    tokens = str(fields.get("tokens", "bytes"))
    if tokens == "bytes":
        pieces = cut_by_bytes(text, most=most, overlap=overlap, least=least)
    else:
        found = _TOKENIZERS[tokens](text)
        pieces = cut(text, found, most=most, overlap=overlap, least=least)
    return _located(text, pieces)


def halve_piece(fields: Mapping[str, object]) -> list[list[int]]:
    """Split the piece of a ``halve`` case.

    Raises:
        TypeError: a field is not what it must be.
        ValueError: the piece cannot be split.
    """
    text = write_out(fields["text"])
    start, end = _numbers(fields["piece"])
    return _located(text, halve(text, Piece(start, end)))


def write_out(text: object) -> str:
    """Return the text that a case describes.

    Raises:
        TypeError: it describes none.
    """
    match text:
        case str():
            return text
        case list():
            return "".join(map(write_out, text))
        case {"repeat": [part, int() as times], **others} if not others:
            return write_out(part) * times
        case _:
            raise TypeError(f"not a text: {text!r}")


def _numbers(values: object) -> list[int]:
    if not (isinstance(values, list) and all(isinstance(value, int) for value in values)):
        raise TypeError(f"not numbers: {values!r}")
    return values


def _located(text: str, pieces: Iterable[Piece]) -> list[list[int]]:
    return [[*piece, *line_range(text, piece)] for piece in pieces]
