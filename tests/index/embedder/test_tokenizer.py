"""Tokens found word by word are those that the library finds in the whole text."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusefs.index.embedder import tokenizer as module
from fusefs.index.embedder import word_cache, word_table
from fusefs.index.embedder.models import MINILM_TOKENIZER, MINILM_TOKENIZER_SHA256, read_checked
from fusefs.index.embedder.tokenizer import Tokenizer

DEFINITION = read_checked(MINILM_TOKENIZER, MINILM_TOKENIZER_SHA256).decode()
LIBRARY = tokenizers.Tokenizer.from_str(DEFINITION)
LIBRARY.no_truncation()
LIBRARY.no_padding()

ODD = [
    *("[CLS]", "[SEP]", "[MASK", "[UNK]]", "##ing", "tokens", "getUserName", "a_b", "1,234.5"),
    *(
        "\x00",
        "\x01",
        "\x0b",
        "\x0c",
        "\x7f",
        "\x85",
        "\xa0",
        "\u3000",
        "\u2028",
        "\ufffd",
        "\ufeff",
    ),
    *("naïve", "e\u0301\u0327", "\u0301", "İstanbul", "ß", "ﬁn", "Å", "가각", "ᄀ", "日本語", "豈"),
    *(
        "\u200d",
        "\u00ad",
        "👩‍👩‍👧",
        "\U000e0041",
        "\u0378",
        "€",
        "—",
        "“x”",
        "Σας",
        "\t",
        "\r\n",
        " ",
    ),
    *("f" * 14, "f" * 15, "f" * 16, "f" * 17, "x" * 100, "x" * 101, "é" * 7 + "x", "é" * 101),
]
TEXTS = st.lists(st.sampled_from(ODD) | st.text(max_size=6), max_size=30).map("".join)


def expected(text: str) -> list[tuple[int, int, int]]:
    encoding = LIBRARY.encode(text, add_special_tokens=False)
    return [(id_, *span) for id_, span in zip(encoding.ids, encoding.offsets, strict=True)]


def found(tokenizer: Tokenizer, text: str) -> list[tuple[int, int, int]]:
    spans = tokenizer.spans(text)
    assert all(column.dtype == np.int32 for column in spans)
    return list(zip(*(column.tolist() for column in spans), strict=True))


@pytest.fixture(scope="module")
def shared() -> Tokenizer:
    return Tokenizer(DEFINITION)


@settings(deadline=None)
@given(text=TEXTS)
def test_tokens_are_the_library_s(shared: Tokenizer, text: str) -> None:
    assert found(shared, text) == expected(text)


@settings(deadline=None)
@given(text=st.text(st.sampled_from("ab\t ._[]\x00é\u0301日가"), max_size=200))
def test_tokens_are_the_library_s_however_words_are_strung(shared: Tokenizer, text: str) -> None:
    assert found(shared, text) == expected(text)


@settings(deadline=None, max_examples=8)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["x", "é", "日", "ab ", "é.", "か"]), st.integers(1, 400))
    )
)
@example(parts=[("x", 256), ("日", 1)])
@example(parts=[("x", 256), ("\u3000", 1), ("x", 300)])
@example(parts=[("x", 255), ("\x01", 1), ("x", 300)])
def test_a_text_is_divided_in_parts_without_a_trace(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * times for part, times in parts)
    with mock.patch.object(module, "_BLOCK", 64), mock.patch.object(module, "_MOST_AT_ONCE", 256):
        assert found(Tokenizer(DEFINITION), text) == expected(text)


@pytest.mark.parametrize("most_short, most_long, most_tokens", [(9, 9, 10**6), (10**6, 10**6, 50)])
def test_a_full_cache_begins_anew(most_short: int, most_long: int, most_tokens: int) -> None:
    chosen = random.Random(1)
    words = ["".join(chosen.choices("abcdé", k=chosen.randint(1, 20))) for _ in range(300)]
    texts = [" ".join(chosen.choices(words, k=12)) for _ in range(60)]
    with (
        mock.patch.object(word_table, "_MOST", most_short),
        mock.patch.object(word_cache, "_MOST_LONG_WORDS", most_long),
        mock.patch.object(word_cache, "_MOST_TOKENS", most_tokens),
    ):
        tokenizer = Tokenizer(DEFINITION)
        for text in texts:
            assert found(tokenizer, text) == expected(text)


@settings(deadline=None)
@given(words=st.lists(st.binary(min_size=1, max_size=word_table.LONGEST), unique=True, max_size=60))
def test_a_table_finds_what_was_added_and_nothing_else(words: list[bytes]) -> None:
    half = len(words) // 2
    data = b"".join(words) + bytes(16)
    sizes = np.array([len(word) for word in words], np.int64)
    starts = np.cumsum(sizes) - sizes
    with mock.patch.object(word_table, "_INDEX_SHIFT", np.uint64(61)):  # all begin in few slots
        table = word_table.WordTable()
        numbers = np.arange(half, dtype=np.int32)
        table.add(word_table.Keys(data, starts[:half], sizes[:half]), numbers)
        found_ = table.find(word_table.Keys(data, starts, sizes)).tolist()
    assert found_ == [*range(half), *[word_table.ABSENT] * (len(words) - half)]


def test_the_frame_is_what_the_model_wants_around_a_text(shared: Tokenizer) -> None:
    before, after = shared.frame
    inside = shared.spans("some text").ids
    assert [*before, *inside, *after] == LIBRARY.encode("some text").ids


def made(model: tokenizers.models.Model) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(["the cat and the hat", "def get(self): return self"], trainer)
    library.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return library


@settings(deadline=None)
@given(lines=st.lists(st.text(max_size=8), max_size=8))
def test_another_kind_of_tokenizer_is_asked_for_whole_lines(lines: list[str]) -> None:
    library = made(tokenizers.models.BPE())
    tokenizer = Tokenizer(library.to_str())
    text = "\n".join(lines)
    encoding = library.encode(text, add_special_tokens=False)
    assert [token[1:] for token in found(tokenizer, text)] == encoding.offsets
    assert [int(ids[0]) for ids in tokenizer.frame] == [0, 1]
    with mock.patch.object(module, "_MOST_AT_ONCE", 16):
        spans = tokenizer.spans(text)
    covered = {
        place
        for start, end in zip(spans.starts, spans.ends, strict=True)
        for place in range(start, end)
    }
    assert covered >= {place for place, character in enumerate(text) if not character.isspace()}


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(ValueError, match="Model missing"):
        Tokenizer("{}")
