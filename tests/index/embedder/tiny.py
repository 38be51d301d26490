"""Small models on disk, with weights drawn by lot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fusefs.index.embedder.models import MINILM_TOKENIZER

HIDDEN = 32
HEADS = 4
LENGTH = 64
VOCABULARY = 30522


class TinyBert:
    """A BERT encoder out of plain operators, its int8 weights behind a cast and a scale."""

    def __init__(self, seed: int = 0, *, activation: str = "Erf", shift: float = 1) -> None:
        self.chosen = np.random.default_rng(seed)
        self.activation = activation
        self.shift = shift
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []
        words = self.add("Gather", self.weight(VOCABULARY, HIDDEN, by_row=True), "input_ids")
        types = self.add("Gather", self.array(self.floats(2, HIDDEN)), "token_type_ids")
        count = self.add("Shape", "input_ids", start=1, end=2)
        places, start, axis = map(self.array, (np.arange(LENGTH)[None], [0], [1]))
        places = self.add("Slice", places, start, count, axis)
        positions = self.add("Gather", self.weight(LENGTH, HIDDEN, by_row=True), places)
        tokens = self.norm(self.add("Add", self.add("Add", words, types), positions))
        for _ in range(2):
            tokens = self.layer(tokens)
        self.add("Identity", tokens, output="last_hidden_state")

    def layer(self, tokens: str) -> str:
        query, key, value = (self.linear(tokens, HIDDEN, HIDDEN) for _ in range(3))
        shape = self.array([0, -1, HEADS, HIDDEN // HEADS])
        query, key, value = (self.add("Reshape", part, shape) for part in (query, key, value))
        query, value = (self.add("Transpose", x, perm=[0, 2, 1, 3]) for x in (query, value))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 2, 3, 1]))
        scores = self.add("Mul", scores, self.array(np.float32((HIDDEN // HEADS) ** -0.5)))
        scores = self.add("Softmax", scores, axis=-1)
        attended = self.add("Transpose", self.add("MatMul", scores, value), perm=[0, 2, 1, 3])
        attended = self.add("Reshape", attended, self.array([0, -1, HIDDEN]))
        attended = self.linear(attended, HIDDEN, HIDDEN)
        tokens = self.norm(self.add("Add", attended, tokens))
        active = self.gelu(self.linear(tokens, HIDDEN, 4 * HIDDEN))
        return self.norm(self.add("Add", self.linear(active, 4 * HIDDEN, HIDDEN), tokens))

    def linear(self, tokens: str, rows: int, columns: int) -> str:
        product = self.add("MatMul", tokens, self.weight(rows, columns))
        return self.add("Add", product, self.array(self.floats(columns)))

    def gelu(self, tokens: str) -> str:
        root = self.array(np.float32(2**0.5))
        half = self.add("Mul", tokens, self.array(np.float32(0.5)))
        bent = self.add(self.activation, self.add("Div", tokens, root))
        return self.add("Mul", half, self.add("Add", bent, self.array(np.float32(self.shift))))

    def norm(self, tokens: str) -> str:
        gain, bias = (self.array(self.floats(HIDDEN)) for _ in range(2))
        return self.add("LayerNormalization", tokens, gain, bias, axis=-1, epsilon=1e-12)

    def weight(self, rows: int, columns: int, *, by_row: bool = False) -> str:
        values = self.chosen.integers(-127, 128, (rows, columns)).astype(np.int8)
        scales = self.chosen.uniform(0.5, 1, (rows, 1) if by_row else (1, columns)) / 73
        if not by_row:
            scales /= np.sqrt(rows)
        cast = self.add("Cast", self.array(values), to=TensorProto.FLOAT)
        return self.add("Mul", cast, self.array(scales.astype(np.float32)))

    def floats(self, *shape: int) -> np.ndarray:
        return self.chosen.standard_normal(shape).astype(np.float32)

    def array(self, value: Any) -> str:
        name = f"array{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def save(self, path: Path) -> None:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in ("input_ids", "token_type_ids")
        ]
        shape: list[str | int | None] = ["batch", "tokens", HIDDEN]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "tiny", inputs, [output], self.arrays)
        versions = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)


def save_folder(folder: Path, model: TinyBert, **settings: Any) -> Path:
    """Write a folder as sentence-transformers has it; `settings` are files by name, no suffix."""
    (folder / "onnx").mkdir(parents=True)
    model.save(folder / "onnx" / "model.onnx")
    (folder / "tokenizer.json").write_bytes(MINILM_TOKENIZER.read_bytes())
    settings = {"sentence_bert_config": {"max_seq_length": LENGTH}, **settings}
    for name, value in settings.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
    return folder
