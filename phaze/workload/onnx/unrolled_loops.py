"""Loops of a constant count as what they repeat: the body once for each round, in the loop's place.

A Loop of ONNX has a count, a condition, and tensors that each round hands to the next; what else its body gives is
stacked over the rounds (https://onnx.ai/onnx/operators/onnx__Loop.html). A Scan has such tensors and others that it
goes through along an axis, one slice for each round (https://onnx.ai/onnx/operators/onnx__Scan.html).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from phaze.workload.onnx.onnx_nodes import constant_node, node_attributes, put_in_place, stored_tensors
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
            yield from _stack(names, result, 0, opset)


@dataclass(frozen=True)
class Scanned:
    """A Scan: how many tensors each round hands to the next, those that it goes through, and along which axes.

    `backwards`: of those inputs, and of the stacked results, which begin at the end.
    """

    kept: int
    sources: tuple[str, ...]
    axes: tuple[int, ...]
    backwards: tuple[bool, ...]
    result_axes: tuple[int, ...]
    results_backwards: tuple[bool, ...]

    @classmethod
    def of(cls, node: NodeProto) -> Scanned:
        """As a node says (opset 9 and later)."""
        told = node_attributes(node)
        through = int(str(told["num_scan_inputs"]))
        kept = len(node.input) - through
        stacked = len(node.output) - kept

        def each(name: str, count: int) -> tuple[int, ...]:
            given = told.get(name)
            return tuple(int(v) for v in given) if isinstance(given, Sequence) and given else (0,) * count

        return cls(
            kept,
            tuple(node.input[kept:]),
            each("scan_input_axes", through),
            tuple(map(bool, each("scan_input_directions", through))),
            each("scan_output_axes", stacked),
            tuple(map(bool, each("scan_output_directions", stacked))),
        )


def scanned(node: NodeProto, body: GraphProto, told: Scanned, length: int, opset: int) -> Iterator[NodeProto]:
    """Nodes of all rounds of a Scan, in order; `length`: slices that it goes through."""
    label = next(filter(None, node.output), node.name)
    states, stacked = list(node.input[: told.kept]), [list[str]() for _ in body.output[told.kept :]]
    constants = [constant_node(tensor) for tensor in stored_tensors(body)]
    for number in range(length):
        slices = []
        for k, (source, axis) in enumerate(zip(told.sources, told.axes, strict=True)):
            at, name = f"{label}/{number}/place {k}", f"{label}/{number}/slice {k}"
            yield _stored(at, np.asarray(length - 1 - number if told.backwards[k] else number, np.int64))
            yield helper.make_node("Gather", [source, at], [name], name, axis=axis)
            slices.append(name)
        made = [f"{label}/{number}.{k}" for k in range(len(body.output))]
        given = dict(zip((value.name for value in body.input), (*states, *slices), strict=True))
        turn = NodeProto(op_type="Scan", name=f"{node.name or label}/{number}", output=made)
        yield from put_in_place(turn, [*constants, *body.node], [o.name for o in body.output], given, {})
        states = made[: told.kept]
        for names, name in zip(stacked, made[told.kept :], strict=True):
            names.append(name)
    for name, result in zip(states, node.output, strict=False):
        if result:
            yield NodeProto(op_type="Identity", name=node.name or label, input=[name], output=[result])
    for k, (names, result) in enumerate(zip(stacked, node.output[told.kept :], strict=False)):
        if result:
            rows = names[::-1] if told.results_backwards[k] else names
            yield from _stack(rows, result, told.result_axes[k], opset)


def _stack(names: Sequence[str], result: str, axis: int, opset: int) -> Iterator[NodeProto]:
    """Tensors put together along a new axis."""
    rows = [f"{name}/row" for name in names]
    place = f"{result}/new axis"
    if opset >= 13:  # where axes are an input
        yield _stored(place, np.asarray([axis], np.int64))
    for name, row in zip(names, rows, strict=True):
        if opset >= 13:
            yield helper.make_node("Unsqueeze", [name, place], [row], row)
        else:
            yield helper.make_node("Unsqueeze", [name], [row], row, axes=[axis])
    yield helper.make_node("Concat", rows, [result], result, axis=axis)


def _stored(name: str, content: Array) -> NodeProto:
    """A constant, as a node."""
    return constant_node(numpy_helper.from_array(content, name))
