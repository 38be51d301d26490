"""The words of texts, and the terms that a question is looked for by."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fusefs.index.terms import WORDS, query_terms, terms_of, words_of

STOP_WORDS = ["how", "do", "I", "the", "of", "Not"]
TELLING = ["stream", "is_not", "readLine", "Übung", "日本語", "x1"]


def terms(words: list[str]) -> tuple[str, ...]:
    return tuple(
        term for word in words for found in WORDS.findall(word) for term in terms_of(found)
    )


@given(st.lists(st.sampled_from(STOP_WORDS + TELLING)))
def test_stop_words_count_only_among_themselves(words: list[str]) -> None:
    telling = [word for word in words if word in TELLING]
    assert query_terms(" ".join(words)) == terms(telling or words)


def test_a_part_of_an_identifier_is_no_stop_word() -> None:
    assert query_terms("is_not") == ("isnot", "is", "not")


@given(st.text(st.sampled_from("aZ0_ .\x00\x1c\x7f\u00a0é日\n")) | st.text())
def test_words_are_those_of_the_pattern(text: str) -> None:
    assert words_of(text) == WORDS.findall(text)


@given(st.text(st.sampled_from("abXY"), min_size=1))
def test_parts_begin_where_letters_rise(word: str) -> None:
    borders = r"(?<=[ab])(?=[XY])|(?=[XY][ab])"
    parts = [part.lower() for part in re.split(borders, word) if part]
    expected = dict.fromkeys([*([word.lower()] if len(parts) > 1 else []), *parts])
    assert terms_of(word) == tuple(terms_of(term)[0] for term in expected)
