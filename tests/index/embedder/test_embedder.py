"""Vectors, the faster graph that they come from, and what happens without one."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

from fusefs.index.embedder import fused_cache
from fusefs.index.embedder.embedder import Embedder, WindowTooLong
from fusefs.index.embedder.models import EmbedderUnavailable, load_model
from fusefs.index.embedder.rewrite import LEAST_COSINE, least_cosine
from fusefs.index.embedder.runtime import open_plain
from tests.index.embedder.tiny import HIDDEN, LENGTH, TinyBert, save_folder

TEXTS = [
    "def open_file(path: Path) -> int:\n    return os.open(path, os.O_RDONLY)\n",
    "The moon landing was watched by six hundred million people.",
    "x",
    "",
    *(f"words {' and more words' * n}" for n in range(12)),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def minilm(cache: Path) -> Embedder:
    return Embedder(load_model(), cache)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_folder(tmp_path / "tiny", TinyBert())


def windows(embedder: Embedder, texts: list[str] = TEXTS) -> list[np.ndarray]:
    return [embedder.tokenizer.spans(text).ids for text in texts]


def graphs(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.onnx"))


def test_the_model_that_comes_along_finds_what_means_the_same(minilm: Embedder) -> None:
    vectors = minilm.embed(windows(minilm))
    assert vectors.shape == (len(TEXTS), minilm.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    code, prose = (vectors @ minilm.embed_query(text) for text in ("open a file", "astronauts in 1969"))
    assert code[0] == code.max()
    assert prose[1] == prose.max()


def test_the_faster_graph_gives_what_the_model_gives(minilm: Embedder, cache: Path) -> None:
    minilm.embed_query("made now")
    model = load_model()
    (fused,) = graphs(cache)
    assert least_cosine(model.graph, fused, "mean", minilm.tokenizer) > LEAST_COSINE
    plain = open_plain(model.graph, "mean")
    before, after = minilm.tokenizer.frame
    question = plain(np.concatenate([before, minilm.tokenizer.spans(TEXTS[1]).ids, after]))
    assert question @ minilm.embed_query(TEXTS[1]) > LEAST_COSINE
