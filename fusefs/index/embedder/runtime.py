"""Running a model's graph with onnxruntime, one text at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusefs.index.embedder.models import EmbedderUnavailable, Pooling
from fusefs.index.embedder.spans import Ids

if TYPE_CHECKING:
    import onnxruntime

Vector = NDArray[np.float32]
Encode = Callable[[Ids], Vector]
"""Makes a text's vector, normalised. May be called by several threads at once."""

_INPUTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "input_ids": lambda ids: ids,
    "attention_mask": np.ones_like,
    "token_type_ids": np.zeros_like,
    "position_ids": lambda ids: np.arange(ids.shape[1], dtype=ids.dtype)[None],
}
"""What a graph may ask for, made from the tokens of one text."""
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def open_fused(path: Path) -> Encode:
    """Open a graph that goes from tokens to a normalised vector.

    Raises:
        EmbedderUnavailable: onnxruntime does not take it.
    """
    session = _open(path)
    output = str(session.get_outputs()[0].name)

    def encode(ids: Ids) -> Vector:
        vectors = _run(session, output, {"input_ids": ids[None].astype(np.int64)})
        return np.asarray(vectors[0], np.float32)

    return encode


def open_plain(path: Path, pooling: Pooling) -> Encode:
    """Open a graph as sentence-transformers exports it.

    Raises:
        EmbedderUnavailable: onnxruntime does not take it, or it is not such a graph.
    """
    session = _open(path)
    inputs = {}
    for wanted in session.get_inputs():
        if wanted.name not in _INPUTS or wanted.type not in _TYPES:
            raise EmbedderUnavailable(f"{path} asks for {wanted.name}, which is not supported.")
        inputs[wanted.name] = _INPUTS[wanted.name], _TYPES[wanted.type]
    output = _output_of(path, session)

    def encode(ids: Ids) -> Vector:
        given = {name: make(ids[None].astype(kind)) for name, (make, kind) in inputs.items()}
        vector = np.asarray(_run(session, output, given)[0], np.float32)
        if vector.ndim == 2:
            vector = vector.mean(0) if pooling == "mean" else vector[0]
        return vector / max(float(np.linalg.norm(vector)), 1e-12)

    return encode


def _output_of(path: Path, session: onnxruntime.InferenceSession) -> str:
    """Return the output with a vector for each text, else the first with one for each token."""
    outputs = session.get_outputs()
    for rank in (2, 3):
        for output in outputs:
            if len(output.shape) == rank and (rank == 3 or output.name == "sentence_embedding"):
                return str(output.name)
    raise EmbedderUnavailable(f"{path} gives no vectors for tokens.")


def _open(path: Path) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: they are raised too, and warnings are about its own
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's exceptions have no base of their own
        raise EmbedderUnavailable(f"onnxruntime does not take {path}: {error}") from error


def _run(
    session: onnxruntime.InferenceSession, output: str, given: dict[str, NDArray[Any]]
) -> NDArray[Any]:
    try:
        return np.asarray(session.run([output], given)[0])
    except Exception as error:  # as above
        raise EmbedderUnavailable(f"onnxruntime cannot run the model: {error}") from error
