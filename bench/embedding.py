"""The embedder: tokens a second, memory, how long the first vector takes, and how close it is.

    python -m bench.embedding
    python -m bench.embedding --rounds 1 --tokens 20000 --megabytes 4

The texts are the source of Python's library and of the installed packages, in an order drawn by
lot. Each figure is taken in a process of its own. *Cold* is from the start of the interpreter to
the first vector of a question, with the files in the page cache and the faster graph made.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import random
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import tokenizers

from bench import machine
from fusefs.index.embedder.embedder import Embedder
from fusefs.index.embedder.embedding_model import EmbeddingModel
from fusefs.index.embedder.models import load_model
from fusefs.index.embedder.runtime import open_plain
from fusefs.index.embedder.tokenizer import Tokenizer

_Result = TypeVar("_Result")

_WINDOW = 254
_SAMPLE_SIZES = (16, 64, _WINDOW)
_COLD = """
from pathlib import Path
from fusefs.index.embedder.embedder import Embedder
from fusefs.index.embedder.models import load_model
Embedder(load_model(), Path({cache!r})).embed_query("where are files hashed?")
"""


def source_texts(size: int) -> list[str]:
    """Return some `size` bytes of source files."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platlib")}
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    random.Random(1).shuffle(paths)
    texts = []
    for path in paths:
        texts.append(path.read_text("utf-8", errors="ignore"))
        size -= len(texts[-1].encode())
        if size < 0:
            break
    return texts


def windows_of(texts: Sequence[str], size: int, count: int) -> list[np.ndarray]:
    """Return windows of `size` tokens, none of which goes over a text's end."""
    tokenizer = Embedder(load_model(), Path()).tokenizer
    windows = []
    for text in texts:
        ids = tokenizer.spans(text).ids
        windows += [ids[at : at + size] for at in range(0, len(ids) - size, size)]
    random.Random(2).shuffle(windows)
    return windows[:count]


def megabytes_of(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def embedding(cache: Path, threads: int, windows: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return tokens a second, and the most MiB that the process had."""
    embedder = Embedder(load_model(), cache, threads=threads)
    embedder.embed(windows[:threads])
    seconds = seconds_of(lambda: embedder.embed(windows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return sum(map(len, windows)) / seconds, peak


def tokenizing(cache: Path, texts: Sequence[str]) -> list[float]:
    """Return MB a second: of the library, of words seen first and again, and cut on top."""
    model = EmbeddingModel(Embedder(load_model(), cache))
    definition = load_model().tokenizer.read_text()
    library = tokenizers.Tokenizer.from_str(definition)
    library.no_truncation()
    library.no_padding()
    ours = Tokenizer(definition)
    some = texts[: max(len(texts) // 8, 1)]
    works: list[tuple[Sequence[str], Callable[[str], object]]] = [
        (some, lambda text: library.encode(text, add_special_tokens=False).offsets),
        (texts, ours.spans),
        (texts, ours.spans),
        (texts, model.cut),
        (texts, model.cut),
    ]
    speeds = []
    for given, work in works:
        began = time.perf_counter()
        for text in given:
            work(text)
        speeds.append(megabytes_of(given) / (time.perf_counter() - began))
    return [*speeds[:3], speeds[4]]


def cold(cache: Path) -> float:
    """Return seconds from the start of an interpreter to its first vector."""
    command = [sys.executable, "-c", _COLD.format(cache=str(cache))]
    return seconds_of(lambda: subprocess.run(command, check=True))


def closeness(cache: Path, texts: Sequence[str]) -> list[tuple[float, float]]:
    """Return mean and least cosine to the model's own graph, by size of the window."""
    model = load_model()
    embedder = Embedder(model, cache)
    plain = open_plain(model.graph, model.pooling)
    before, after = embedder.tokenizer.frame
    found = []
    for size in _SAMPLE_SIZES:
        windows = windows_of(texts, size, 60)
        cosines = [
            float(plain(np.concatenate([before, ids, after])) @ vector)
            for ids, vector in zip(windows, embedder.embed(windows), strict=True)
        ]
        found.append((statistics.mean(cosines), min(cosines)))
    return found


def alone(work: Callable[..., _Result], *arguments: object) -> _Result:
    """Return what `work` returns in a new process."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100_000, help="to embed in a round")
    parser.add_argument("--megabytes", type=int, default=20, help="to find tokens in")
    options = parser.parse_args()
    texts = source_texts(options.megabytes * 1_000_000)
    windows = windows_of(texts, _WINDOW, options.tokens // _WINDOW)
    with tempfile.TemporaryDirectory(prefix="fusefs-bench-") as folder:
        cache = Path(folder) / "cache"
        print("\n".join(machine.describe(Path(folder))))
        print(f"the first time, with the faster graph made: {machine.seconds(cold(cache))}")
        colds = [cold(cache) for _ in range(max(2 * options.rounds, 3))]
        embedded = {
            threads: [alone(embedding, cache, threads, windows) for _ in range(options.rounds)]
            for threads in (1, 2)
        }
        speeds = [alone(tokenizing, cache, texts) for _ in range(options.rounds)]
        cosines = alone(closeness, cache, texts)
    print(f"cold to the first vector: {_spread(colds, machine.seconds)}")
    for threads, rounds in embedded.items():
        rates, peaks = zip(*rounds, strict=True)
        print(f"tokens/s on {threads}: {_spread(rates, _whole)}, peak {max(peaks):.0f} MiB")
    names = ("library", "words seen first", "words seen again", "and cut into pieces")
    for name, taken in zip(names, zip(*speeds, strict=True), strict=True):
        print(f"MB/s, {name}: {_spread(taken, '{:.1f}'.format)}")
    for size, (mean, least) in zip(_SAMPLE_SIZES, cosines, strict=True):
        print(f"cosine to the model's own graph, {size} tokens: mean {mean:.4f}, least {least:.4f}")


def _spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"median {show(middle)} ({show(low)} to {show(high)})"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


if __name__ == "__main__":
    main()
