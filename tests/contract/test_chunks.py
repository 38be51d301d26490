"""Where texts are cut (contract section 9), beside the rule read word by word."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusefs.contract.chunks import (
    LEAST,
    MOST,
    OVERLAP,
    Piece,
    Tokenizer,
    Tokens,
    cut,
    cut_by_bytes,
    halve,
    line_range,
    windows,
)
from tests.contract import naive_chunks as naive


def spans(pattern: str) -> Tokenizer:
    compiled = re.compile(pattern, re.DOTALL)
    return lambda text: [found.span() for found in compiled.finditer(text)]


def parted(text: str) -> Tokens:
    """Several tokens a character, as of Hangul taken apart."""
    return [(at, at + 1) for at, c in enumerate(text) for _ in range(1 + ord(c) % 3)]


words = spans(r"\S+")
characters = spans(r".")
subwords = spans(r"\s?\w{1,3}|\s+(?!\w)|.")
"""Tokens that hold the white space before them, or are nothing else."""
TOKENIZERS = {"words": words, "characters": characters, "subwords": subwords, "parted": parted}
tokenizers = st.sampled_from(sorted(TOKENIZERS)).map(TOKENIZERS.__getitem__)

fragments = st.sampled_from(
    ["a", "Bee", "c" * 9, " ", "  ", ". ", ".", "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \t\n", "\r",
     "\u00e9", "e\u0301", "\u4e2d\u6587", "\ud55c", "\U0001f980", "\u3000", "\u2028", "\v", "\0"]
)  # fmt: skip
letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def of_parts(parts: list[str], count: int, seed: int) -> str:
    return "".join(Random(seed).choices(parts, k=count))


alphabets = st.lists(fragments, min_size=1, max_size=6)
texts = st.lists(fragments | letters, max_size=40).map("".join) | st.builds(
    of_parts, alphabets, st.integers(0, 99), st.integers(0, 999)
)
"""Of everything, and of little at a time, so that it meets in all ways."""
long_texts = st.builds(of_parts, alphabets.map(lambda parts: [*parts, "word "]), st.just(800),
                       st.integers(0, 999))  # fmt: skip
sizes = st.integers(2, 24).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most - 1)))
leasts = st.integers(0, 9)


@settings(max_examples=500, deadline=None)
@given(texts, tokenizers, sizes, leasts)
def test_cut_is_the_rule(text, tokenizer, sizes, least) -> None:
    tokens, (most, overlap) = tokenizer(text), sizes
    measured = naive.Starts(text, [start for start, _ in tokens])
    found = cut(text, tokens, most=most, overlap=overlap, least=least)
    assert found == naive.pieces(measured, most, overlap, least)


@settings(deadline=None)
@given(texts, sizes, leasts)
def test_cut_by_bytes_is_the_rule(text, sizes, least) -> None:
    most, overlap = sizes
    found = cut_by_bytes(text, most=most, overlap=overlap, least=least)
    assert found == naive.pieces(naive.Bytes(text), most, overlap, least)


@settings(deadline=None)
@given(long_texts, st.sampled_from(["words", "characters", "subwords"]))
def test_pieces_of_tokens(text, tokenizer) -> None:
    tokens = TOKENIZERS[tokenizer](text)
    found = cut(text, tokens, least=0)

    def count(start: int, end: int) -> int:
        return sum(start <= at < end for at, _ in tokens)

    check_progress_and_cover(text, found)
    assert all(count(*piece) <= MOST for piece in found)
    for before, piece in pairwise(found):
        assert count(piece.start, before.end) == OVERLAP
        assert any(piece.start == at for at, _ in tokens)
    assert cut(text, tokens) == kept(found)


@settings(deadline=None)
@given(long_texts)
def test_pieces_of_bytes(text) -> None:
    found = cut_by_bytes(text, least=0)

    def count(start: int, end: int) -> int:
        return -(-len(text[start:end].encode()) // 2)

    check_progress_and_cover(text, found)
    assert all(count(*piece) <= MOST for piece in found)
    for before, piece in pairwise(found):
        overlap = count(piece.start, before.end)
        assert overlap == OVERLAP if text.isascii() else OVERLAP <= overlap <= OVERLAP + 2
    assert cut_by_bytes(text) == kept(found)


def check_progress_and_cover(text: str, found: list[Piece]) -> None:
    check_cover(text, found)
    for before, piece in pairwise(found):
        assert before.start < piece.start < before.end < piece.end


def check_cover(text: str, found: list[Piece]) -> None:
    """All of the text is in pieces, when none is dropped."""
    assert all(piece.start < piece.end for piece in found)
    assert all(piece.start <= before.end for before, piece in pairwise(found))
    assert [piece.start for piece in found[:1]] == [0][: len(text)]
    assert [piece.end for piece in found[-1:]] == [len(text)][: len(text)]


def kept(found: list[Piece]) -> list[Piece]:
    return found if len(found) == 1 else [p for p in found if p.end - p.start >= LEAST]


@settings(deadline=None)
@given(texts, sizes, st.lists(st.integers(0, 99)))
def test_any_tokens_at_all_come_to_an_end(text, sizes, places) -> None:
    tokens = [(at, at) for at in sorted(at for at in places if at < len(text))]
    found = cut(text, tokens, most=sizes[0], overlap=sizes[1], least=0)
    check_cover(text, found)
    for before, piece in pairwise(found):
        assert before.start < piece.start <= before.end <= piece.end


@pytest.mark.parametrize("line", ["x", "word ", "\u4e2d", "a\u0301\U0001f980 "])
def test_one_line_of_ten_megabytes(line) -> None:
    text = line * (10_000_000 // len(line.encode()))
    tokens = words(text)
    for found in (cut(text, tokens), cut_by_bytes(text)):
        check_progress_and_cover(text, found)
    assert line_range(text, Piece(0, len(text))) == (1, 1)


def test_places_that_lie_far_apart_are_looked_through_few_times() -> None:
    # Two thirds of nearly every window are one gap, which each kind of break cuts at once.
    marks = ["w. ", "w\n", "w\n\n"]
    text = "".join(
        "w " * 64 + " " * 40_000 + marks[n % 3] + "w. " * 9 + "w " * 500 for n in range(20)
    )
    found = cut(text, words(text))
    check_progress_and_cover(text, found)
    assert sum(piece.end - piece.start for piece in found) < 4 * len(text)


@given(texts, st.data())
def test_halves_are_the_rule_and_lose_nothing(text, data) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    if end - start < 2:
        with pytest.raises(ValueError, match="cannot be split"):
            halve(text, Piece(start, end))
        return
    first, second = halve(text, Piece(start, end))
    assert (first, second) == naive.halves(text, start, end)
    assert (first.start, first.end, second.end) == (start, second.start, end)
    assert 3 * max(first.end - start, end - second.start) <= max(2 * (end - start), 3)
    assert first.start < first.end < second.end


@given(texts.filter(bool), st.integers(1, 9))
def test_halving_ends_with_what_is_accepted(text, longest) -> None:
    left, accepted = [Piece(0, len(text))], []
    while left:
        piece = left.pop()
        if piece.end - piece.start > longest:
            left += reversed(halve(text, piece))
        else:
            accepted.append(piece)
    assert "".join(text[piece.start : piece.end] for piece in accepted) == text


@given(texts.filter(bool), st.data())
def test_lines_are_counted(text, data) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    [[_, _, *lines]] = naive.located(text, [(start, end)])
    assert line_range(text, Piece(start, end)) == tuple(lines)


@pytest.mark.parametrize(
    ("text", "piece", "expected"),
    [
        ("a", (0, 1), (1, 1)),
        ("a\n", (0, 2), (1, 1)),
        ("a\nb\n", (0, 2), (1, 1)),
        ("a\nb\n", (0, 3), (1, 2)),
        ("a\nb\n", (2, 4), (2, 2)),
        ("\n\n\n", (0, 3), (1, 3)),
        ("\n\n\n", (2, 3), (3, 3)),
        ("a\r\nb\r\n", (0, 3), (1, 1)),
        ("a\r\nb\r\n", (2, 3), (1, 1)),
        ("a\r\nb\r\n", (3, 6), (2, 2)),
        ("a\rb\vc\u2028d\x85e", (0, 9), (1, 1)),
    ],
)
def test_line_range(text, piece, expected) -> None:
    assert line_range(text, Piece(*piece)) == expected


@given(st.integers(0, 2000), sizes)
def test_windows_cover_a_piece_evenly(count, sizes) -> None:
    most, overlap = sizes
    found = windows(count, most=most, overlap=overlap)
    assert set().union(*found) == set(range(count))
    assert all(0 < len(window) <= most for window in found)
    assert len(found) == 0 or max(map(len, found)) - min(map(len, found)) <= 1
    assert all(before.stop - window.start == overlap for before, window in pairwise(found))
    # One fewer, all full, would not be enough.
    assert count == 0 or len(found) == 1 or (len(found) - 1) * (most - overlap) + overlap < count


def test_a_piece_has_at_most_two_windows() -> None:
    assert windows(0) == []
    assert windows(256) == [range(256)]
    assert windows(257) == [range(144), range(112, 257)]
    assert windows(300) == [range(166), range(134, 300)]
    assert windows(MOST) == [range(256), range(224, 480)]
