"""Loops of a constant count as what they repeat: the body once for each round, in the loop's place.

A Loop of ONNX has a count, a condition, and tensors that each round hands to the next; what else its body gives is
stacked over the rounds (https://onnx.ai/onnx/operators/onnx__Loop.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from phaze.workload.onnx.onnx_nodes import constant_node, put_in_place, stored_tensors
from phaze.workload.onnx.shape_data import Array


def always_goes_on(body: GraphProto) -> bool:
    """Whether the condition that a body hands on is true whenever the one that it was given is."""
    makers = {name: node for node in body.node for name in node.output}
    stored = {tensor.name: tensor for tensor in stored_tensors(body)}
    name = body.output[0].name
    while (node := makers.get(name)) is not None and node.op_type in {"Identity", "Cast"}:
        name = node.input[0]
    if node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
        return bool(np.all(numpy_helper.to_array(node.attribute[0].t)))
    if name in stored:
        return bool(np.all(numpy_helper.to_array(stored[name])))
    return len(body.input) > 1 and name == body.input[1].name


def rounds(loop: NodeProto, body: GraphProto, count: int, opset: int) -> Iterator[NodeProto]:
    """Nodes of all rounds of a loop, in order. There is at least one where anything is stacked."""
    label = next(filter(None, loop.output), loop.name)
    kept = len(loop.input) - 2  # tensors that every round hands to the next
    states, stacked = list(loop.input[2:]), [list[str]() for _ in body.output[1 + kept :]]
    constants = [constant_node(tensor) for tensor in stored_tensors(body)]
    going = f"{label}/goes on"
    yield _stored(going, np.asarray(True))
    for number in range(count):
        made = [f"{label}/{number}.{k}" for k in range(1, len(body.output))]
        at = f"{label}/{number}"
        yield _stored(at, np.asarray(number, np.int64))
        given = dict(zip((value.name for value in body.input), (at, going, *states), strict=True))
        turn = NodeProto(op_type="Loop", name=f"{loop.name or label}/{number}", output=["", *made])
        yield from put_in_place(turn, [*constants, *body.node], [o.name for o in body.output], given, {})
        states = made[:kept]
        for names, name in zip(stacked, made[kept:], strict=True):
            names.append(name)
    for name, result in zip(states, loop.output, strict=False):
        if result:
            yield NodeProto(op_type="Identity", name=loop.name or label, input=[name], output=[result])
    for names, result in zip(stacked, loop.output[kept:], strict=False):
        if result:
            yield from _stack(names, result, opset)


def _stack(names: Sequence[str], result: str, opset: int) -> Iterator[NodeProto]:
    """Tensors put together along a new first axis."""
    rows = [f"{name}/row" for name in names]
    axis = f"{result}/first axis"
    if opset >= 13:  # where axes are an input
        yield _stored(axis, np.asarray([0], np.int64))
    for name, row in zip(names, rows, strict=True):
        if opset >= 13:
            yield helper.make_node("Unsqueeze", [name, axis], [row], row)
        else:
            yield helper.make_node("Unsqueeze", [name], [row], row, axes=[0])
    yield helper.make_node("Concat", rows, [result], result, axis=0)


def _stored(name: str, content: Array) -> NodeProto:
    """A constant, as a node."""
    return constant_node(numpy_helper.from_array(content, name))
