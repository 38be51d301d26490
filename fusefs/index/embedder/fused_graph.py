"""An ONNX graph of fused int8 operators that computes a BERT encoder for one text.

Activations are quantised as they come. The scale of a whole text is good enough for all but two:

- What the activation function gives has a few values a hundred times as large as the others, so
  each token gets a scale of its own.
- What attention gives meets weights so even that the sums of products overflow 16 bits, where
  AVX2 saturates. Weights shifted to be unsigned take another, exact path.

Since a scale depends on all that is computed with it, a run takes one text: then its vector is a
function of the text alone, whatever else is embedded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from fusefs.index.embedder.bert_graph import Encoder, Layer, Linear, Norm, Quantised
from fusefs.index.embedder.models import Pooling

_MICROSOFT = "com.microsoft"
_OF_MICROSOFT = ("FastGelu", "MatMulIntegerToFloat", "MultiHeadAttention")
_LOWEST = 0.17
"""No value of GELU is below its negative."""
_ZERO_POINT = 32
"""What stands for 0 in bytes of GELU's values, few of which are negative."""


def build(encoder: Encoder, pooling: Pooling) -> onnx.ModelProto:
    """Return a model: ``input_ids`` of one text to its vector, normalised."""
    graph = _Graph()
    tokens = _embed(graph, encoder)
    for number, layer in enumerate(encoder.layers):
        tokens = _layer(graph, tokens, layer, encoder.heads, f"layer{number}.")
    if pooling == "mean":
        pooled = graph.add("ReduceMean", [tokens], axes=[1], keepdims=0)
    else:
        pooled = graph.add("Gather", [tokens, graph.constant("first", np.int64(0))], axis=1)
    vector = graph.add("LpNormalization", [pooled], axis=-1, p=2)
    return graph.model(vector, encoder.words.values.shape[1])


class _Graph:
    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: NDArray[np.generic] | np.generic) -> str:
        """Keep a constant, once for a name, and return the name."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        return self.add_many(kind, inputs, [f"{kind}{len(self._nodes)}"], **attributes)[0]

    def add_many(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Add a node with these outputs."""
        domain = _MICROSOFT if kind in _OF_MICROSOFT else ""
        node = helper.make_node(kind, inputs, outputs, domain=domain, **attributes)
        self._nodes.append(node)
        return outputs

    def model(self, output: str, dimensions: int) -> onnx.ModelProto:
        """Return the model."""
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, dimensions])],
            list(self._constants.values()),
        )
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8)


def _embed(graph: _Graph, encoder: Encoder) -> str:
    values = graph.constant("words", encoder.words.values)
    scales = graph.constant("words.scales", encoder.words.scales)
    words = graph.add("Gather", [values, "input_ids"], axis=0)
    words = graph.add("Cast", [words], to=TensorProto.FLOAT)
    words = graph.add("Mul", [words, graph.add("Gather", [scales, "input_ids"], axis=0)])
    start = graph.constant("start", np.array([0]))
    count = graph.add("Shape", ["input_ids"], start=1, end=2)
    positions = graph.constant("positions", encoder.positions)
    positions = graph.add("Slice", [positions, start, count, start])
    return _norm(graph, graph.add("Add", [words, positions]), encoder.norm, "norm")


def _layer(graph: _Graph, tokens: str, layer: Layer, heads: int, name: str) -> str:
    activations = _quantise(graph, tokens)
    parts = [
        _linear(graph, activations, linear, name + part)
        for part, linear in (("query", layer.query), ("key", layer.key), ("value", layer.value))
    ]
    attended = graph.add("MultiHeadAttention", parts, num_heads=heads)
    activations = _quantise(graph, attended)
    attended = _linear(graph, activations, layer.attended, name + "attended", exact=True)
    tokens = graph.add("Add", [attended, tokens])
    tokens = _norm(graph, tokens, layer.attended_norm, name + "attended_norm")
    active = _linear(graph, _quantise(graph, tokens), layer.up, name + "up")
    # GELU within .001, in two thirds of the time.
    active = graph.add("FastGelu", [active])
    tokens = graph.add("Add", [_linear_of_active(graph, active, layer.down, name + "down"), tokens])
    return _norm(graph, tokens, layer.norm, name + "norm")


def _norm(graph: _Graph, tokens: str, norm: Norm, name: str) -> str:
    gain = graph.constant(name + ".gain", norm.gain)
    bias = graph.constant(name + ".bias", norm.bias)
    # Adding first and this are together five times as fast as the operator that does both.
    return graph.add("LayerNormalization", [tokens, gain, bias], axis=-1, epsilon=norm.epsilon)


class _Activations(NamedTuple):
    """Names of bytes, of what one step of them is worth, and of the byte that stands for 0."""

    values: str
    scale: str
    zero_point: str


def _quantise(graph: _Graph, tokens: str) -> _Activations:
    name = f"{tokens}.bytes"
    outputs = [name, f"{name}.scale", f"{name}.zero_point"]
    return _Activations(*graph.add_many("DynamicQuantizeLinear", [tokens], outputs))


def _linear(
    graph: _Graph, activations: _Activations, linear: Linear, name: str, *, exact: bool = False
) -> str:
    product = _product_inputs(graph, activations, linear.weight, name, exact=exact)
    return graph.add(
        "MatMulIntegerToFloat", [*product, graph.constant(name + ".bias", linear.bias)]
    )


def _product_inputs(
    graph: _Graph, activations: _Activations, weight: Quantised, name: str, *, exact: bool = False
) -> list[str]:
    values: NDArray[np.int8 | np.uint8] = weight.values
    zero_point = ""
    if exact:
        values = (weight.values.astype(np.int16) + 128).astype(np.uint8)
        zero_point = graph.constant(name + ".zero_point", np.full(values.shape[1], 128, np.uint8))
    return [
        activations.values,
        graph.constant(name + ".weight", values),
        activations.scale,
        graph.constant(name + ".scales", weight.scales.reshape(-1)),
        activations.zero_point,
        zero_point,
    ]


def _linear_of_active(graph: _Graph, active: str, linear: Linear, name: str) -> str:
    """Multiply what the activation function gave, with a scale for each token."""
    highest = graph.add("ReduceMax", [active], axes=[-1], keepdims=1)
    step = graph.constant("active.step", np.float32(1 / (255 - _ZERO_POINT)))
    least = graph.constant("active.least", np.float32(_LOWEST / _ZERO_POINT))
    scales = graph.add("Max", [graph.add("Mul", [highest, step]), least])
    flat = graph.add("Reshape", [scales, graph.constant("all", np.array([-1]))])
    zero_point = graph.constant("active.zero_point", np.uint8(_ZERO_POINT))
    zero_points = graph.add("Expand", [zero_point, graph.add("Shape", [flat])])
    values = graph.add("QuantizeLinear", [active, flat, zero_points], axis=1)
    one = graph.constant("one", np.float32(1))
    activations = _Activations(values, one, zero_point)
    product = graph.add(
        "MatMulIntegerToFloat", _product_inputs(graph, activations, linear.weight, name)
    )
    product = graph.add("Mul", [product, scales])
    return graph.add("Add", [product, graph.constant(name + ".bias", linear.bias)])
