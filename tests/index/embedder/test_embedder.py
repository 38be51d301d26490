"""Vectors, the faster graph that they come from, and what happens without one."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from fusefs.index.embedder import fused_cache
from fusefs.index.embedder.embedder import Embedder, WindowTooLong
from fusefs.index.embedder.models import EmbedderUnavailable, load_model
from fusefs.index.embedder.rewrite import LEAST_COSINE
from fusefs.index.embedder.runtime import Encode, open_plain
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


def check_close(
    encode: Encode, embedder: Embedder, vectors: np.ndarray, least: float = LEAST_COSINE
) -> None:
    before, after = embedder.tokenizer.frame
    for ids, vector in zip(windows(embedder), vectors, strict=True):
        if len(ids) > 1:  # of a single token no error is averaged out
            assert encode(np.concatenate([before, ids, after])) @ vector > least


def graphs(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.onnx"))


def test_the_model_that_comes_along_finds_what_means_the_same(minilm: Embedder) -> None:
    vectors = minilm.embed(windows(minilm))
    assert vectors.shape == (len(TEXTS), minilm.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    code, prose = (
        vectors @ minilm.embed_query(text) for text in ("open a file", "astronauts in 1969")
    )
    assert code[0] == code.max()
    assert prose[1] == prose.max()


def test_the_faster_graph_gives_what_the_model_gives(minilm: Embedder, cache: Path) -> None:
    vectors = minilm.embed(windows(minilm))
    assert graphs(cache)
    check_close(open_plain(load_model().graph, "mean"), minilm, vectors)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_vector_is_a_function_of_its_text_alone(
    minilm: Embedder, cache: Path, threads: int
) -> None:
    alone = [minilm.embed([ids])[0].tobytes() for ids in windows(minilm)]
    embedder = Embedder(load_model(), cache, threads=threads)
    order = np.random.default_rng(threads).permutation(len(TEXTS))
    together = embedder.embed([windows(minilm)[n] for n in order])
    assert [vector.tobytes() for vector in together] == [alone[n] for n in order]


def test_what_is_too_long_is_named(minilm: Embedder) -> None:
    most = minilm.max_tokens
    ids = np.full(most + 1, 2000, np.int32)
    assert minilm.embed([ids[:most]]).shape == (1, minilm.dimensions)
    with pytest.raises(WindowTooLong) as caught:
        minilm.embed([ids[:1], ids, ids])
    assert (caught.value.index, caught.value.tokens) == (1, most + 1)
    assert minilm.embed_query("word " * 2 * most).shape == (minilm.dimensions,)


def test_no_texts_have_no_vectors(minilm: Embedder) -> None:
    assert minilm.embed([]).shape == (0, minilm.dimensions)


def test_what_was_unloaded_is_loaded_again(minilm: Embedder) -> None:
    before = minilm.embed(windows(minilm)).tobytes()
    minilm.unload()
    assert minilm.embed(windows(minilm)).tobytes() == before


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_any_folder_with_such_weights_gets_a_faster_graph(tmp_path: Path, pooling: str) -> None:
    settings_ = {"1_Pooling/config": {"pooling_mode": pooling}}
    model = load_model(save_folder(tmp_path / "tiny", TinyBert(), **settings_))
    embedder = Embedder(model, tmp_path / "cache")
    vectors = embedder.embed(windows(embedder))
    assert embedder.dimensions == HIDDEN
    assert len(graphs(tmp_path / "cache")) == 1
    check_close(open_plain(model.graph, model.pooling), embedder, vectors)


def test_a_graph_is_made_once(tiny: Path, tmp_path: Path) -> None:
    model = load_model(tiny)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "1.partial").write_bytes(b"of one that was killed")
    with mock.patch.object(fused_cache, "_make", side_effect=fused_cache._make) as make:
        with ThreadPoolExecutor(3) as pool:
            embedders = [Embedder(model, tmp_path / "cache") for _ in range(3)]
            identities = set(pool.map(lambda embedder: embedder.identity, embedders))
        assert Embedder(model, tmp_path / "cache").identity in identities
    assert len(identities) == make.call_count == 1
    assert [path.suffix for path in sorted((tmp_path / "cache").iterdir())] == [".onnx", ""]


def test_a_damaged_graph_is_made_anew(tiny: Path, tmp_path: Path) -> None:
    first = Embedder(load_model(tiny), tmp_path / "cache")
    vectors = first.embed(windows(first)).tobytes()
    (path,) = graphs(tmp_path / "cache")
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes(100))
    second = Embedder(load_model(tiny), tmp_path / "cache")
    assert second.embed(windows(second)).tobytes() == vectors
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "model, reason",
    [
        (TinyBert(activation="Tanh"), "do not have one Erf each"),
        (TinyBert(shift=-1), "would change by a cosine of"),
    ],
)
def test_a_model_that_cannot_be_rewritten_runs_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, model: TinyBert, reason: str
) -> None:
    files = load_model(save_folder(tmp_path / "tiny", model))
    embedder = Embedder(files, tmp_path / "cache")
    vectors = embedder.embed(windows(embedder))
    assert reason in caplog.text
    check_close(open_plain(files.graph, "mean"), embedder, vectors, least=1 - 1e-6)
    with mock.patch.object(fused_cache, "_make", side_effect=AssertionError):
        assert Embedder(files, tmp_path / "cache").identity == embedder.identity


def test_prompts_stand_before_texts_and_questions(tmp_path: Path, cache: Path) -> None:
    prompts = {"query": "find this: ", "document": "note: "}
    plain = save_folder(tmp_path / "tiny", TinyBert())
    folder = tmp_path / "with prompts" / "tiny"
    settings_ = {"config_sentence_transformers": {"prompts": prompts}}
    prompted = save_folder(folder, TinyBert(), **settings_)
    with_prompts, without = (Embedder(load_model(folder), cache) for folder in (prompted, plain))
    np.testing.assert_array_equal(
        with_prompts.embed(windows(with_prompts, ["a text"])),
        without.embed(windows(without, ["note: a text"])),
    )
    np.testing.assert_array_equal(
        with_prompts.embed_query("a text"), without.embed_query("find this: a text")
    )
    assert with_prompts.max_tokens == without.max_tokens - 2 == LENGTH - 4
    assert with_prompts.identity != without.identity


def test_another_model_is_told_from_this_one(tiny: Path, tmp_path: Path, cache: Path) -> None:
    identity = Embedder(load_model(tiny), cache).identity
    copy = shutil.copytree(tiny, tmp_path / "copy")
    assert Embedder(load_model(copy), cache).identity == identity
    tokenizer = copy / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    other = save_folder(tmp_path / "other", TinyBert(seed=1))
    pooling = {"1_Pooling/config": {"pooling_mode_cls_token": True}}
    first = save_folder(tmp_path / "first", TinyBert(), **pooling)
    others = {Embedder(load_model(folder), cache).identity for folder in (copy, other, first)}
    assert len(others | {identity}) == 4


def test_a_broken_model_says_so(tiny: Path, tmp_path: Path) -> None:
    (tiny / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(EmbedderUnavailable, match="does not take"):
        Embedder(load_model(tiny), tmp_path / "cache").embed_query("?")
    (tiny / "tokenizer.json").write_text("[]")
    with pytest.raises(EmbedderUnavailable, match="is not a tokenizer"):
        Embedder(load_model(tiny), tmp_path / "cache").embed_query("?")


def test_a_damaged_model_says_so(tmp_path: Path) -> None:
    content = bytearray(load_model().graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph = tmp_path / "model.onnx"
    graph.write_bytes(content)
    model = dataclasses.replace(load_model(), graph=graph)
    with pytest.raises(EmbedderUnavailable, match="is damaged"):
        Embedder(model, tmp_path / "cache").embed_query("?")


def test_a_cache_that_cannot_be_written_says_so(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(EmbedderUnavailable, match="cannot be prepared"):
        Embedder(load_model(tiny), tmp_path / "cache").embed_query("?")


def test_nothing_is_kept_or_told_of_who_embeds(tmp_path: Path) -> None:
    """Builds of onnxruntime that report usage leave a number of the machine in the user's home."""
    program = (
        "from pathlib import Path; from fusefs.index.embedder.models import load_model\n"
        "from fusefs.index.embedder.embedder import Embedder\n"
        "print(Embedder(load_model(), Path.home() / 'cache').embed_query('a').shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HOME": str(tmp_path)}, capture_output=True,
        text=True, check=True, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("(384,)\n", "")
    assert [file.name for file in tmp_path.iterdir()] == ["cache"]
