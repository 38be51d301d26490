"""Writes the same weights into a faster graph, and compares what comes out.

    python -m fusefs.index.embedder.rewrite GRAPH SHA256 TOKENIZER POOLING LENGTH TARGET

A process of its own, since it needs more memory than the graph that it makes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from fusefs.contract import chunks
from fusefs.index.embedder import bert_graph, fused_graph
from fusefs.index.embedder.fused_cache import REFUSED, UNUSABLE
from fusefs.index.embedder.models import EmbedderUnavailable, Pooling, read_checked
from fusefs.index.embedder.runtime import open_fused, open_plain
from fusefs.index.embedder.spans import Ids
from fusefs.index.embedder.tokenizer import Tokenizer

LEAST_COSINE = 0.99
"""Between what the two graphs make of each text of a sample."""

_SAMPLE_SIZES = (250, 60, 16)
"""Tokens of the texts in the sample."""
_TEXTS_OF_A_SIZE = 6


def main(arguments: Sequence[str]) -> int:
    """Do what the module says; return an exit status."""
    graph, sha256, tokenizer, pooling, max_length, target = arguments
    try:
        content = read_checked(Path(graph), sha256)
        definition = read_checked(Path(tokenizer), None)
    except EmbedderUnavailable as error:
        sys.stdout.write(f"{error}\n")
        return UNUSABLE
    try:
        rewrite(content, cast(Pooling, pooling), Path(target))
        texts = list(sample(Tokenizer(definition.decode()), int(max_length)))
        least = least_cosine(Path(graph), Path(target), cast(Pooling, pooling), texts)
    except (bert_graph.NotRead, EmbedderUnavailable) as refusal:
        sys.stdout.write(f"{refusal}\n")
        return REFUSED
    if least < LEAST_COSINE:
        sys.stdout.write(f"its vectors would change by a cosine of {least:.4f}\n")
        return REFUSED
    return 0


def rewrite(content: bytes, pooling: Pooling, target: Path) -> None:
    """Write the faster graph of a model, which is an ONNX file's content, to `target`, durably.

    Raises:
        bert_graph.NotRead: there is none.
    """
    fused = fused_graph.build(bert_graph.read(content), pooling)
    with target.open("wb") as file:
        file.write(fused.SerializeToString())
        file.flush()
        os.fsync(file.fileno())


def least_cosine(graph: Path, fused: Path, pooling: Pooling, texts: Sequence[Ids]) -> float:
    """Return the least cosine between the vectors that two graphs give for a text.

    Raises:
        EmbedderUnavailable: onnxruntime does not take one of them.
    """
    encode = open_fused(fused)
    vectors = [encode(ids) for ids in texts]
    del encode  # the other one takes much memory
    reference = open_plain(graph, pooling)
    return min(
        float(np.dot(reference(ids), vector)) for ids, vector in zip(texts, vectors, strict=True)
    )


def sample(tokenizer: Tokenizer, max_length: int) -> Iterator[Ids]:
    """Yield texts of code and of prose, with what the model wants around them: our own source."""
    before, after = tokenizer.frame
    folder = Path(chunks.__file__).parent
    source = "\n".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
    ids = tokenizer.spans(source).ids
    for size in (min(size, max_length - len(before) - len(after)) for size in _SAMPLE_SIZES):
        for start in np.linspace(0, len(ids) - size, _TEXTS_OF_A_SIZE, dtype=np.int64):
            yield np.concatenate([before, ids[start : start + size], after])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
