"""Which model makes an instance's indexes, and getting it ready."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusefs.contract.chunks import Piece, cut_by_bytes
from fusefs.index.embedder.embedder import Embedder
from fusefs.index.embedder.embedding_model import EmbeddingModel
from fusefs.index.embedder.models import EmbedderUnavailable, load_model
from fusefs.index.embedder.served_cuts import CutByServer
from fusefs.index.index import Index
from fusefs.index.library import Library, made_by
from fusefs.index.model import Model, Windows
from fusefs.index.upkeep import read_json

MODEL = "model"
"""The setting that names a folder with a model, or is `NO_MODEL`; without it, the one that comes
along is used."""
NO_MODEL = "none"
TOKENIZER = "tokenizer"
"""The setting that has the address of a server of llama.cpp, whose tokens are counted."""

_THREADS = 2


class WordsAlone:
    """No model: texts are cut by their bytes, and nothing is embedded."""

    identity = "words alone"
    dimensions = 0

    def __init__(self, why: str) -> None:
        """Stand in for a model that is not there; `why` is for people."""
        self._why = why

    def cut(self, text: str) -> Sequence[Piece]:
        """Return the pieces of a text, with two bytes a token."""
        return cut_by_bytes(text)

    def embed(self, texts: Sequence[Sequence[str]]) -> list[Windows]:
        """Refuse.

        Raises:
            EmbedderUnavailable: there is nothing to embed with.
        """
        raise EmbedderUnavailable(self._why)

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """Refuse, as `embed`."""
        raise EmbedderUnavailable(self._why)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, or what is used in its place.

    Attributes:
        model: cuts, and embeds if it can.
        name: what it is called.
        unavailable: why nothing can be found by meaning, None where it can.
    """

    model: Model
    name: str
    unavailable: str | None


def load(library: Library) -> Loaded:
    """Return the model that the settings ask for, or what stands in for it."""
    return _load(library.settings)


def load_maker(library: Library, index: Index) -> Model | None:
    """Return the model that an index was made by, None where that is not there any more."""
    settings = read_json(index.folder / "about.json").get("settings")
    if not isinstance(settings, dict):
        return None
    found = _load(settings)
    is_maker = made_by(found.model) == index.made_by.get("by")
    return found.model if is_maker and found.unavailable is None else None


def _load(settings: Mapping[str, str]) -> Loaded:
    folder = settings.get(MODEL)
    name = NO_MODEL
    unavailable: str | None = "no model is to be used (fusefs index model)."
    model: Model | None = None
    if folder != NO_MODEL:
        try:
            files = load_model(None if folder is None else Path(folder))
            name = files.name
            model = EmbeddingModel(Embedder(files, _cache(), threads=_threads()))
            unavailable = None
        except EmbedderUnavailable as error:
            unavailable = str(error)
    if model is None:
        model = WordsAlone(unavailable or "")
    address = settings.get(TOKENIZER)
    if address is not None:
        model = CutByServer(model, address)
    return Loaded(model, name, unavailable)


def _threads() -> int:
    return min(_THREADS, len(os.sched_getaffinity(0)))


def _cache() -> Path:
    """Return where models are kept as they are used (XDG Base Directory Specification)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "fusefs" / "models"
