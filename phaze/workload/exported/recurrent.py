"""Recurrent layers (`aten.lstm`, `gru`, `rnn_tanh`), unrolled over the length of their sequence."""

from __future__ import annotations

from phaze.workload.exported.arguments import integer, number
from phaze.workload.exported.lowering import Lowering
from phaze.workload.exported.program import Node, Ref, tensors_in
from phaze.workload.ir import OpKind
from phaze.workload.recurrent import STATES, Unrolled, bidirectional_layer, recurrent_layer
from phaze.workload.recurrent_cells import Cell, State, Weights


def recurrent(cell: Cell, low: Lowering, node: Node) -> tuple[str, ...]:
    """A stack of layers in one or both directions: its sequence, then the last states of all its layers.

    Refused are packed sequences, a sequence without a batch, and LSTMs that project their state.
    """
    batch_first = node.get("batch_first") is True
    _check_batch(low, node, 0 if batch_first else 1)
    layers = integer(node, "num_layers", 1)
    weights = _weights(low, node, layers)
    initial = _initial(low, node, cell, len(weights))
    ways = _ways(node)
    x, last = low.tensor(node, "input"), []
    if not batch_first:
        steps, batch, width = low.shape(x)
        x = low.add(node, OpKind.VIEW, [x], step="batch_first", shape=(batch, steps, width))
    for i in range(layers):
        here = slice(i * ways, (i + 1) * ways)
        made = _layer(low, f"{low.label(node)}.layer{i}", cell, x, weights[here], initial[here])
        last.append(made.state)
        x = made.sequence
        if i < layers - 1 and number(node, "dropout"):
            shape, step = low.shape(x), f"layer{i}.dropout"
            x = low.add(node, OpKind.ELEMENTWISE, [x], step=step, shape=shape, function="dropout")
    sequence = low.add(node, OpKind.VIEW, [x])
    return sequence, *(
        low.add(node, OpKind.VIEW, parts, step=f"last{j}", shape=low.shape_of(node, 1 + j))
        for j, parts in enumerate(zip(*last, strict=True))
    )


def _ways(node: Node) -> int:
    return 2 if node.get("bidirectional") is True else 1


def _layer(
    low: Lowering, name: str, cell: Cell, x: str, weights: list[Weights], initial: list[State]
) -> Unrolled:
    """One layer; `weights` and `initial` have one entry per direction."""
    if len(weights) == 1:
        return recurrent_layer(low.builder, name, cell, x, weights[0], state=initial[0])
    return bidirectional_layer(low.builder, name, cell, x, weights, state=initial[0] + initial[1])


def _weights(low: Lowering, node: Node, layers: int) -> list[Weights]:
    """Weights of each layer, and in it of each direction."""
    given = low.operands(tensors_in(node.get("params")))
    count = layers * _ways(node)
    each = 4 if node.get("has_biases") is True else 2
    if len(given) != count * each:
        raise low.error(node, f"has {len(given)} weights, not {each} per layer and direction: no projections")
    groups = (given[i : i + each] for i in range(0, len(given), each))
    return [Weights(fed, own, tuple(biases)) for fed, own, *biases in groups]


def _initial(low: Lowering, node: Node, cell: Cell, count: int) -> list[State]:
    """State that each layer and direction starts from; empty where only constants are given: as good as zeros."""
    names = list(tensors_in(node.get("hx")))[: STATES[cell]]
    given = [low.operand(name) for name in names]
    if not any(given):
        return [()] * count
    columns = []
    for i, (name, tensor) in enumerate(zip(names, given, strict=True)):
        label, (_, batch, hidden) = f"{low.label(node)}.first{i}", low.extents[name].at(low.batch)
        shapes = {f"{label}.{j}": (batch, hidden) for j in range(count)}
        if tensor is not None:
            columns.append(low.builder.split_into(label, tensor, shapes))
        else:
            columns.append(tuple(low.builder.add(n, OpKind.VIEW, (), shape) for n, shape in shapes.items()))
    return list(zip(*columns, strict=True))


def _check_batch(low: Lowering, node: Node, axis: int) -> None:
    value = node.get("input")
    if node.get("batch_sizes") is not None or not isinstance(value, Ref):
        raise low.error(node, "takes packed sequences, which are not supported; give it padded ones")
    if len(low.extents[value.tensor].shape) != 3 or low.extents[value.tensor].batch_axis not in {axis, None}:
        raise low.error(node, f"does not keep the batch: it is not dimension {axis} of the input")
