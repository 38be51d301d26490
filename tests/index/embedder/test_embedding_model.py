"""Pieces and their vectors, as an index gets them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusefs.contract.chunks import cut
from fusefs.index.embedder.embedder import Embedder
from fusefs.index.embedder.embedding_model import EmbeddingModel
from fusefs.index.embedder.models import load_model
from fusefs.index.model import Model
from tests.index.embedder.tiny import TinyBert, save_folder


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    folder: Path = tmp_path_factory.mktemp("models")
    return Embedder(load_model(save_folder(folder / "tiny", TinyBert())), folder / "cache")


@settings(deadline=None, max_examples=30)
@given(words=st.lists(st.sampled_from(["word", "naïve", "日本", ".", "\n", "\n\n"]), max_size=1500))
def test_texts_are_cut_by_the_embedder_s_tokens(embedder: Embedder, words: list[str]) -> None:
    text = " ".join(words)
    spans = embedder.tokenizer.spans(text)
    tokens = list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))
    model: Model = EmbeddingModel(embedder)
    assert list(model.cut(text)) == cut(text, tokens)


def test_every_piece_has_vectors_of_all_its_tokens(embedder: Embedder) -> None:
    model = EmbeddingModel(embedder)
    texts = [["one", "word " * 150], [], ["   ", "two"]]
    found = model.embed(texts)
    assert [list(windows.ordinals) for windows in found] == [[0, 1, 1, 1], [], [1]]
    assert [windows.vectors.shape for windows in found] == [
        (len(windows.ordinals), model.dimensions) for windows in found
    ]
    np.testing.assert_array_equal(found[0].vectors[0], model.embed([["one"]])[0].vectors[0])
    np.testing.assert_array_equal(found[2].vectors[0], model.embed_question("two"))
    assert model.embed([]) == []
