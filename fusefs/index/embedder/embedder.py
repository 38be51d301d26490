"""Vectors of texts, from a model that is loaded when it is needed."""

from __future__ import annotations

import ctypes
import gc
import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from fusefs.index.embedder import fused_cache
from fusefs.index.embedder.models import EmbedderUnavailable, ModelFiles, read_checked
from fusefs.index.embedder.runtime import Encode, Vector, open_fused, open_plain
from fusefs.index.embedder.spans import Ids
from fusefs.index.embedder.tokenizer import Tokenizer


class WindowTooLong(ValueError):
    """A window has more tokens than the model takes.

    Attributes:
        index: which one of those given.
        tokens: how many it has.
    """

    def __init__(self, index: int, tokens: int, most: int) -> None:
        super().__init__(f"window {index} has {tokens} tokens, and {most} is the limit")
        self.index = index
        self.tokens = tokens


class Embedder:
    """Makes vectors. Several threads may use it.

    Each text is computed by itself, on one core: its vector is a function of its tokens alone,
    whatever is embedded with it and by however many threads. Nothing is loaded before it is
    needed. All raise `EmbedderUnavailable` when the model is missing or broken.
    """

    def __init__(self, model: ModelFiles, cache: Path, *, threads: int = 1) -> None:
        """Use a model.

        Args:
            model: what to load.
            cache: a folder for what is made of models; see `fused_cache`.
            threads: how many texts are computed at a time.
        """
        self._model = model
        self._cache = cache
        self._threads = threads
        self._lock = RLock()
        self._tokenizer: Tokenizer | None = None
        self._encode: Encode | None = None

    @cached_property
    def identity(self) -> str:
        """A name for all that vectors depend on: those of another identity cannot be compared."""
        model = self._model
        made_of = [
            self._graph_sha256,
            *(_sha256(path) for path in _data_beside(model.graph)),
            model.tokenizer_sha256 or _sha256(model.tokenizer),
            "plain" if self._fused is None else f"fused {fused_cache.VERSION}",
            *(model.pooling, str(model.max_length), model.question_prompt, model.text_prompt),
        ]
        digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
        return digest[:16]

    @cached_property
    def dimensions(self) -> int:
        """Components of a vector."""
        return self._model.dimensions or len(self._load()(self.tokenizer.spans("a").ids))

    @property
    def max_tokens(self) -> int:
        """How many tokens a window has at most."""
        before, after = self.tokenizer.frame
        prompt = self.tokenizer.spans(self._model.text_prompt).ids
        return self._model.max_length - len(before) - len(prompt) - len(after)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        with self._lock:
            if self._tokenizer is None:
                path = self._model.tokenizer
                try:
                    definition = read_checked(path, self._model.tokenizer_sha256).decode()
                    self._tokenizer = Tokenizer(definition)
                except ValueError as error:
                    raise EmbedderUnavailable(f"{path} is not a tokenizer: {error}.") from error
            return self._tokenizer

    def embed(self, windows: Sequence[Ids]) -> NDArray[np.float32]:
        """Return the vectors of texts, normalised, in the order given.

        Args:
            windows: the tokens of each, as `tokenizer` finds them.

        Raises:
            WindowTooLong: one has more than `max_tokens`; nothing was computed.
            EmbedderUnavailable: see the class.
        """
        most = self.max_tokens
        for index, ids in enumerate(windows):
            if len(ids) > most:
                raise WindowTooLong(index, len(ids), most)
        before, after = self.tokenizer.frame
        before = np.concatenate([before, self.tokenizer.spans(self._model.text_prompt).ids])
        framed = [np.concatenate([before, ids, after]) for ids in windows]
        if len(framed) < 2 or self._threads == 1:
            vectors = [self._run(ids) for ids in framed]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self._threads) as pool:
                vectors = list(pool.map(self._run, framed))
        return np.array(vectors, np.float32).reshape(len(windows), self.dimensions)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question, normalised. What is too long of it does not count.

        Raises:
            EmbedderUnavailable: see the class.
        """
        before, after = self.tokenizer.frame
        ids = self.tokenizer.spans(self._model.question_prompt + text).ids
        most = self._model.max_length - len(before) - len(after)
        return self._run(np.concatenate([before, ids[:most], after]))

    def unload(self) -> None:
        """Give back the memory. What is asked for next loads the model again."""
        with self._lock:
            self._tokenizer = self._encode = None
        gc.collect()
        # What is freed in small parts goes back to the system only when it is told to.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def _run(self, ids: Ids) -> Vector:
        vector = self._load()(ids)
        if vector.shape != (self.dimensions,):
            raise EmbedderUnavailable(
                f"{self._model.graph} gives {vector.shape}, not {self.dimensions} numbers."
            )
        return vector

    def _load(self) -> Encode:
        with self._lock:
            if self._encode is None:
                self._encode = self._open()
            return self._encode

    def _open(self) -> Encode:
        if self._fused is not None:
            return open_fused(self._fused)
        read_checked(self._model.graph, self._model.graph_sha256)
        return open_plain(self._model.graph, self._model.pooling)

    @cached_property
    def _fused(self) -> Path | None:
        return fused_cache.fused_graph(self._model, self._graph_sha256, self._cache)

    @cached_property
    def _graph_sha256(self) -> str:
        return self._model.graph_sha256 or _sha256(self._model.graph)


def _data_beside(graph: Path) -> list[Path]:
    """Return the files in which a graph of more than two gigabytes has its weights."""
    names = (graph.name + "_data", graph.name + ".data")
    return [path for name in names if (path := graph.with_name(name)).exists()]


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderUnavailable(f"{path} cannot be read: {error.strerror}.") from error
