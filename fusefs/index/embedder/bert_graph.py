"""A BERT encoder whose int8 weights stand behind a cast and a scale, read from an ONNX graph.

Exported this way the weights are small on disk, but become floats before anything is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

Floats = NDArray[np.float32]

_INPUTS = ("input_ids", "token_type_ids")


class NotRead(Exception):
    """A graph is not of this kind; the message says what is otherwise."""


class Quantised(NamedTuple):
    """A matrix of floats: each value times the scale of its row or column."""

    values: NDArray[np.int8]
    scales: Floats

    def floats(self) -> Floats:
        """Return the matrix."""
        return self.values.astype(np.float32) * self.scales


class Linear(NamedTuple):
    """A matrix product with a scale for each column, and what is added to it."""

    weight: Quantised
    bias: Floats


class Norm(NamedTuple):
    """A layer normalisation."""

    gain: Floats
    bias: Floats
    epsilon: float


class Layer(NamedTuple):
    """One layer of the encoder: attention and its norm, then two products and theirs."""

    query: Linear
    key: Linear
    value: Linear
    attended: Linear
    up: Linear
    down: Linear
    attended_norm: Norm
    norm: Norm


@dataclass(frozen=True)
class Encoder:
    """A BERT encoder.

    Attributes:
        words: a row for each token, with a scale for each row.
        positions: a row for each position, the type of a first sentence in it.
        heads: into how many parts attention is divided.
    """

    words: Quantised
    positions: Floats
    norm: Norm
    layers: Sequence[Layer]
    heads: int


def read(content: bytes) -> Encoder:
    """Read the encoder that a model computes, from what is in its ONNX file.

    How layers hang together is not looked at: whoever uses the encoder compares what comes out.

    Raises:
        NotRead: this is not such a model.
    """
    try:
        model = onnx.load_from_string(content)
    except DecodeError as error:
        raise NotRead(f"it is not an ONNX file: {error}") from error
    if any(uses_external_data(array) for array in model.graph.initializer):
        raise NotRead("its weights are in another file")
    try:
        return _Reader(model.graph).encoder()
    except (KeyError, IndexError, StopIteration) as error:
        raise NotRead(f"a part is missing: {error!r}") from error


class _Reader:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = list(graph.node)
        self._arrays = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
        self._makers = {name: node for node in self._nodes for name in node.output}
        self._users: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self._nodes:
            for name in node.input:
                self._users[name].append(node)
        self._weights = dict(self._find_weights())

    def encoder(self) -> Encoder:
        products = [node for node in self._of_kind("MatMul") if node.input[1] in self._weights]
        linears = [self._linear(node) for node in products]
        norms = [self._norm(node) for node in self._of_kind("LayerNormalization")]
        count = len(linears) // 6
        if not count or len(linears) != 6 * count or len(norms) != 1 + 2 * count:
            raise NotRead(f"{len(linears)} products and {len(norms)} norms are not layers of BERT")
        for kind in ("Softmax", "Erf"):
            if len(self._of_kind(kind)) != count:
                raise NotRead(f"{count} layers do not have one {kind} each")
        words, positions = self._tables()
        hidden = words.values.shape[1]
        return Encoder(
            words,
            positions,
            norms[0],
            [
                Layer._make([*linears[6 * n : 6 * n + 6], *norms[2 * n + 1 : 2 * n + 3]])
                for n in range(count)
            ],
            hidden // self._head_size(products[0]),
        )

    def _of_kind(self, kind: str) -> list[onnx.NodeProto]:
        return [node for node in self._nodes if node.op_type == kind]

    def _find_weights(self) -> Iterator[tuple[str, Quantised]]:
        for node in self._of_kind("Mul"):
            cast = self._makers.get(node.input[0])
            scales = self._arrays.get(node.input[1])
            if cast is None or cast.op_type != "Cast" or scales is None:
                continue
            values = self._arrays.get(cast.input[0])
            if values is not None and values.dtype == np.int8 and values.ndim == 2:
                yield node.output[0], Quantised(values, scales.astype(np.float32))

    def _linear(self, product: onnx.NodeProto) -> Linear:
        weight = self._weights[product.input[1]]
        added = self._only_user(product, "Add")
        biases = [self._arrays[name] for name in added.input if name in self._arrays]
        columns = weight.values.shape[1]
        if len(biases) != 1 or biases[0].shape != (columns,) or weight.scales.size != columns:
            raise NotRead(f"{product.name} has no bias or no scale for each column")
        return Linear(weight, biases[0])

    def _norm(self, node: onnx.NodeProto) -> Norm:
        epsilon = next(item.f for item in node.attribute if item.name == "epsilon")
        return Norm(self._arrays[node.input[1]], self._arrays[node.input[2]], epsilon)

    def _tables(self) -> tuple[Quantised, Floats]:
        """Return the rows of words, and those of positions with the first type added."""
        tables: dict[str, Quantised | Floats] = {}
        for node in self._of_kind("Gather"):
            table = self._weights.get(node.input[0], self._arrays.get(node.input[0]))
            if isinstance(table, Quantised) or (table is not None and table.ndim == 2):
                tables[node.input[1] if node.input[1] in _INPUTS else "positions"] = table
        words, types, positions = (tables.get(name) for name in (*_INPUTS, "positions"))
        if not isinstance(words, Quantised) or types is None or positions is None:
            raise NotRead("words, types and positions do not have a table each")
        if words.scales.shape != (len(words.values), 1):
            raise NotRead("rows of words do not have a scale each")
        return words, _floats(positions) + _floats(types)[0]

    def _head_size(self, product: onnx.NodeProto) -> int:
        """Return how wide the parts are into which attention divides the first product."""
        shape = self._only_user(self._only_user(product, "Add"), "Reshape").input[1]
        maker = self._makers.get(shape)
        last = self._arrays.get(maker.input[-1] if maker is not None else shape)
        if last is None or last.ndim != 1:
            raise NotRead("attention does not say how wide its heads are")
        return int(last[-1])

    def _only_user(self, node: onnx.NodeProto, kind: str) -> onnx.NodeProto:
        users = self._users[node.output[0]]
        if [user.op_type for user in users] != [kind]:
            raise NotRead(f"{node.name} is not followed by one {kind}")
        return users[0]


def _floats(table: Quantised | Floats) -> Floats:
    return table.floats() if isinstance(table, Quantised) else table
