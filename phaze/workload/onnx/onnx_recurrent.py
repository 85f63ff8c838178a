"""Converters of recurrent layers: LSTM, GRU and RNN, unrolled over the length of their sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.operators.recurrent_layers import (
    GATES,
    STATES,
    Cell,
    Functions,
    State,
    Weights,
    recurrent_layer,
)

_CELLS: Mapping[str, Cell] = MappingProxyType(
    {"LSTM": Cell.LSTM, "GRU": Cell.GRU_RESET_FIRST, "RNN": Cell.RNN}
)

_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "affine": "scale",
        "elu": "elu",
        "hardsigmoid": "hard_sigmoid",
        "leakyrelu": "leaky_relu",
        "relu": "relu",
        "scaledtanh": "tanh",
        "sigmoid": "sigmoid",
        "softplus": "softplus",
        "softsign": "div",
        "tanh": "tanh",
        "thresholdedrelu": "relu",
    }
)
"""Activation functions of the standard, which ignores their case, as `elementwise_cycles.FUNCTIONS` calls them."""


def convert_recurrent(low: Lowering, node: NodeProto) -> None:
    """One layer in one or both directions. Lengths of single sequences are not used: all are padded."""
    attributes = low.attributes(node)
    if (len(node.input) > 7 and node.input[7]) or attributes.get("input_forget"):
        raise low.error(node, "has peepholes or coupled gates, which are not supported")
    cell = Cell.GRU if attributes.get("linear_before_reset") else _CELLS[node.op_type]
    base = next(filter(None, node.output))
    first, layout = low.tensor(node.input[0]), int(str(attributes.get("layout", 0)))
    shape = low.shape(node.input[0])
    batch, steps = shape[1 - layout], shape[layout]
    x = low.builder.add(f"{base}.x", OpKind.VIEW, [first], (batch, steps, shape[2])) if not layout else first
    weights = _weights(low, node, base, GATES[cell])
    states = _states(low, node, base, (batch, len(weights)), STATES[cell])
    reverse = {"forward": [False], "reverse": [True]}.get(
        str(attributes.get("direction", "forward")), [False, True]
    )
    functions = _functions(node.op_type, attributes.get("activations"), len(weights))
    made = [
        recurrent_layer(
            low.builder,
            f"{base}.{i}",
            cell,
            x,
            weight,
            state=states[i],
            reverse=reverse[i],
            functions=functions[i],
        )
        for i, weight in enumerate(weights)
    ]
    results = [[layer.sequence for layer in made], *zip(*(layer.state for layer in made), strict=True)]
    for name, parts in zip(node.output, results, strict=False):
        if name in low.graph.read:
            low.builder.add(name, OpKind.VIEW, parts, low.shape(name))


def _weights(low: Lowering, node: NodeProto, base: str, gates: int) -> list[Weights]:
    """Weights of each direction, as views of the tensors that hold those of both."""
    directions, rows, width = low.shape(node.input[1])
    if directions != (wanted := 2 if low.attributes(node).get("direction") == "bidirectional" else 1):
        raise low.error(node, f"has weights of {directions} directions, not of {wanted}")
    hidden = rows // gates
    shapes = {"input_weight": (rows, width), "recurrent_weight": (rows, hidden)}
    pieces = [
        _pieces(low, node.input[i + 1], {f"{base}.{d}.{part}": shape for d in range(directions)})
        for i, (part, shape) in enumerate(shapes.items())
    ]
    biases: tuple[str, ...] = ()
    if len(node.input) > 3 and node.input[3]:
        named = {f"{base}.{d}.bias{i}": (rows,) for d in range(directions) for i in (0, 1)}
        biases = _pieces(low, node.input[3], named)
    return [Weights(pieces[0][d], pieces[1][d], biases[2 * d : 2 * d + 2]) for d in range(directions)]


def _pieces(low: Lowering, name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    tensor = low.tensor(name)
    return low.builder.split_into(f"{next(iter(shapes))}.pieces", tensor, shapes)


def _states(low: Lowering, node: NodeProto, base: str, sizes: tuple[int, int], count: int) -> list[State]:
    """State that each direction starts from; empty where none is computed: constants are as good as zeros."""
    batch, directions = sizes
    given = [name if name in low.graph.live else "" for name in (*node.input[5:], "", "")][:count]
    if not any(given):
        return [()] * directions
    hidden = low.shape(node.input[2])[-1]
    columns = []
    for i, name in enumerate(given):
        shapes = {f"{base}.{d}.given{i}": (batch, hidden) for d in range(directions)}
        if name:
            columns.append(low.builder.split_into(f"{base}.given{i}", name, shapes))
        else:
            columns.append(tuple(low.builder.add(n, OpKind.VIEW, (), shape) for n, shape in shapes.items()))
    return list(zip(*columns, strict=True))


def _functions(kind: str, given: object, directions: int) -> list[Functions]:
    """Element-wise functions of each direction. Raises KeyError for a name the standard does not have."""
    if not isinstance(given, Sequence) or not given:
        return [Functions()] * directions
    names = [_FUNCTIONS[(name.decode() if isinstance(name, bytes) else str(name)).lower()] for name in given]
    each = len(names) // directions
    if kind == "RNN":
        return [Functions(candidate=names[d * each]) for d in range(directions)]
    return [Functions(*names[d * each : (d + 1) * each]) for d in range(directions)]
