"""The terms that a question is looked for by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusefs.index.terms import WORDS, query_terms, terms_of

STOP_WORDS = ["how", "do", "I", "the", "of", "Not"]
TELLING = ["stream", "is_not", "readLine", "Übung", "日本語", "x1"]


def terms(words: list[str]) -> tuple[str, ...]:
    return tuple(term for word in words for found in WORDS.findall(word) for term in terms_of(found))


@given(st.lists(st.sampled_from(STOP_WORDS + TELLING)))
def test_stop_words_count_only_among_themselves(words: list[str]) -> None:
    telling = [word for word in words if word in TELLING]
    assert query_terms(" ".join(words)) == terms(telling or words)


def test_a_part_of_an_identifier_is_no_stop_word() -> None:
    assert query_terms("is_not") == ("isnot", "is", "not")
