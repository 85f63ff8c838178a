"""Converters of everything that is neither a product nor a window: arithmetic, norms, data movement.

Data movement (concatenation, padding, slices, gathers, casts, comparisons) is a VIEW and costs nothing,
as in PHAZE: producers write into place, consumers read with an offset. A number of a formula (rank 0)
is no operand; what remains of the operator is a scaling.
"""

from __future__ import annotations

import math

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.lowering import Lowering


def convert_view(low: Lowering, node: NodeProto) -> None:
    """Reads activations only; the constants beside them say how to move them."""
    low.emit(node, OpKind.VIEW, [name for name in node.input if name in low.graph.live])


def convert_concat(low: Lowering, node: NodeProto) -> None:
    """Joins activations and parameters (such as a class token)."""
    low.emit(node, OpKind.VIEW, low.operands(node))


def convert_split(low: Lowering, node: NodeProto) -> None:
    """One view with all the pieces that are read."""
    pieces = [name for name in node.output if name in low.graph.read]
    low.builder.split_into(pieces[0], node.input[0], {name: low.shape(name) for name in pieces})


def convert_element_wise(function: str, low: Lowering, node: NodeProto) -> None:
    """One pass over operands that broadcast to the result."""
    low.emit(node, OpKind.ELEMENTWISE, low.operands(node), function=function)


def convert_binary(function: str, with_constant: str, low: Lowering, node: NodeProto) -> None:
    """Two operands, or one and a number."""
    operands = low.operands(node)
    low.emit(node, OpKind.ELEMENTWISE, operands, function=function if len(operands) > 1 else with_constant)


def convert_divide(low: Lowering, node: NodeProto) -> None:
    """By a number it is a scaling; a number by a tensor is a division."""
    divisor = low.operand(node.input[1])
    low.emit(node, OpKind.ELEMENTWISE, low.operands(node), function="scale" if divisor is None else "div")


def convert_variadic(function: str, with_constant: str, low: Lowering, node: NodeProto) -> None:
    """A chain of binary operators, and one more for the numbers among the inputs or for a mean."""
    out, kind = node.output[0], OpKind.ELEMENTWISE
    first, *rest = low.operands(node)
    is_last = len(rest) == len(node.input) - 1 and node.op_type != "Mean"
    if is_last and not rest:
        convert_view(low, node)
        return
    for i, operand in enumerate(rest, 1):
        name = out if is_last and i == len(rest) else f"{out}.{i}"
        first = low.builder.add(
            name, kind, [first, operand], low.shape(out), low.element_bytes(out), function=function
        )
    if not is_last:
        low.emit(node, kind, [first], function=with_constant)


def convert_power(low: Lowering, node: NodeProto) -> None:
    """Squares, cubes and roots cost less than a general power."""
    exponent = low.scalar(node.input[1])
    operands = low.operands(node) if exponent is None else [low.tensor(node.input[0])]
    function = {2.0: "mul", 3.0: "mul", 0.5: "sqrt", 1.0: "scale", -1.0: "div"}.get(exponent or 0.0, "pow")
    if exponent == 3.0:
        out, kind = node.output[0], OpKind.ELEMENTWISE
        operands.append(low.builder.add(f"{out}.square", kind, operands, low.shape(out), function="mul"))
    low.emit(node, OpKind.ELEMENTWISE, operands, function=function)


def convert_gelu(low: Lowering, node: NodeProto) -> None:
    """Exact, or by its approximation with a hyperbolic tangent."""
    exact = low.attributes(node).get("approximate", "none") == "none"
    convert_element_wise("gelu" if exact else "gelu_tanh", low, node)


def convert_norm(function: str, low: Lowering, node: NodeProto) -> None:
    """A norm over axes of one sample, with its scale and shift."""
    low.emit(node, OpKind.NORM, low.operands(node), function=function)


def convert_batch_norm(low: Lowering, node: NodeProto) -> None:
    """Scale and shift are trained, mean and variance are running statistics."""
    inputs = [low.tensor(name) for name in node.input[:5]]
    low.emit(node, OpKind.NORM, inputs, function="batch", statistics=2)


def convert_local_response(low: Lowering, node: NodeProto) -> None:
    """Divide by a power of the sum of squares over `size` neighbouring channels."""
    low.emit(node, OpKind.NORM, [node.input[0]], function="lrn", size=int(str(low.attributes(node)["size"])))


def convert_softmax(low: Lowering, node: NodeProto) -> None:
    """Until opset 12 the softmax runs over all axes from `axis` (default 1) on, as one."""
    name, shape = node.output[0], low.shape(node.output[0])
    coerced = low.graph.opset.get("", 1) < 13
    axis = int(str(low.attributes(node).get("axis", 1 if coerced else -1))) % len(shape)
    if not coerced or all(size == 1 for size in shape[axis + 1 :]):
        low.emit(node, OpKind.SOFTMAX, [node.input[0]], axis=axis)
        return
    rows = math.prod(shape[axis:])
    flat = low.builder.add(f"{name}.flat", OpKind.VIEW, [node.input[0]], (*shape[:axis], rows))
    soft = low.builder.add(f"{name}.softmax", OpKind.SOFTMAX, [flat], (*shape[:axis], rows), axis=-1)
    low.emit(node, OpKind.VIEW, [soft])


def convert_reduce(function: str, low: Lowering, node: NodeProto) -> None:
    """A plain reduction; which axes it runs over shows in the shapes."""
    low.emit(node, OpKind.REDUCE, [node.input[0]], function=function)


def convert_gather(low: Lowering, node: NodeProto) -> None:
    """Rows of a parameter chosen by an activation are an embedding; all else only moves data."""
    table, ids = node.input[0], node.input[1]
    if table in low.graph.live or ids not in low.graph.live:
        convert_view(low, node)
        return
    low.emit(node, OpKind.EMBEDDING, [ids, low.tensor(table)])
