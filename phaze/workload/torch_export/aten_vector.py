"""Element-wise operators, norms, softmax, tables, reductions.

A number, a mask or a table that nobody trains is no operand; what remains of the operator is a scaling.
"""

from __future__ import annotations

from math import prod
from typing import Any

from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.aten_lowering import Lowering
from phaze.workload.torch_export.exported_program import Node, Ref, integer, number


def unary(function: str, low: Lowering, node: Node) -> str:
    """One pass over the first argument."""
    return low.add(node, OpKind.ELEMENTWISE, [low.first(node)], function=function)


def prelu(low: Lowering, node: Node) -> str:
    """max(x, 0) + w min(x, 0), with one trained slope for all, or one for each channel."""
    x, slope = low.first(node), low.tensor(node, "weight")
    if len(low.shape(slope)) == 1:
        slope = low.view(node, slope, (*low.shape(slope), *(1,) * (len(low.shape(x)) - 2)), "column")
    return low.add(node, OpKind.ELEMENTWISE, [x, slope], function="prelu")


def binary(function: str, with_constant: str, low: Lowering, node: Node) -> str:
    """Two operands that broadcast to the result, or one and a constant."""
    operands = low.operands(node.reads())
    chosen = function if len(operands) > 1 else with_constant
    more: dict[str, Any] = {"causal": True} if len(operands) == 1 and low.orders(node) else {}
    if function == "mul" and len([*node.reads()]) == 1:
        more["by_number"] = True
    return low.add(node, OpKind.ELEMENTWISE, operands, function=chosen, **more)


def outer(low: Lowering, node: Node) -> str:
    """Every element of one vector times every one of another; times constants, such as frequencies, it is a scaling."""
    (rows, columns), operands = low.shape_of(node), []
    for argument, shape in (("self", (rows, 1)), ("vec2", (1, columns))):
        tensor = low.maybe(node, argument)
        if tensor is not None:
            operands.append(low.view(node, tensor, shape, argument))
    return low.add(node, OpKind.ELEMENTWISE, operands, function="mul" if len(operands) > 1 else "scale")


def divide(low: Lowering, node: Node) -> str:
    """By a constant it is a scaling; a constant by a tensor is a division."""
    function = "scale" if low.maybe(node, "other") is None else "div"
    return low.add(node, OpKind.ELEMENTWISE, low.operands(node.reads()), function=function)


def chosen(low: Lowering, node: Node) -> str:
    """`where` and masked filling: the condition is a mask that costs nothing of its own."""
    operands = low.operands(v.tensor for n in ("self", "other") if isinstance(v := node.get(n), Ref))
    causal: dict[str, Any] = {"causal": True} if low.orders(node) else {}
    return low.add(
        node, OpKind.ELEMENTWISE, operands or low.operands(node.reads()), function="where", **causal
    )


def power(low: Lowering, node: Node) -> str:
    """Squares, cubes and roots cost less than a general power."""
    exponent, kind = number(node, "exponent"), OpKind.ELEMENTWISE
    operands = low.operands(node.reads())
    function = {2.0: "mul", 3.0: "mul", 0.5: "sqrt", -0.5: "sqrt", 1.0: "scale", -1.0: "div"}.get(
        exponent or 0.0, "pow"
    )
    if exponent == 3.0:
        operands.append(low.add(node, kind, operands, step="square", function="mul"))
    return low.add(node, kind, operands, function=function)


def gelu(low: Lowering, node: Node) -> str:
    """Exact, or by its approximation with a hyperbolic tangent."""
    return unary("gelu_tanh" if node.get("approximate") == "tanh" else "gelu", low, node)


def mish(low: Lowering, node: Node) -> str:
    """x tanh(softplus(x))."""
    x, kind = low.first(node), OpKind.ELEMENTWISE
    soft = low.add(node, kind, [x], step="softplus", function="softplus")
    gate = low.add(node, kind, [soft], step="tanh", function="tanh")
    return low.add(node, kind, [x, gate], function="mul")


def gated(low: Lowering, node: Node) -> str:
    """glu: one half times the sigmoid of the other."""
    x, shape, kind = low.first(node), low.shape_of(node), OpKind.ELEMENTWISE
    label = low.label(node)
    halves = {f"{label}.{half}": shape for half in ("value", "gate")}
    value, gate = low.builder.split_into(f"{label}.split", x, halves)
    opened = low.add(node, kind, [gate], step="sigmoid", function="sigmoid")
    return low.add(node, kind, [value, opened], function="mul")


def dropout(low: Lowering, node: Node) -> str:
    """A dropout, whether the module was recorded in training or not; with probability 0 it is nothing."""
    return unary("dropout", low, node) if number(node, "p") != 0.0 else low.first(node)


def softmax(low: Lowering, node: Node) -> str:
    """Softmax or its logarithm along one axis, which must not be the batch."""
    x, name = low.first(node), next(node.reads())
    axis = integer(node, "dim", -1) % len(low.shape(x))
    if axis in {low.extents[name].batch_axis, low.extents[name].pair_axis}:
        raise low.error(node, "does not keep the batch: it works along it")
    return low.add(node, OpKind.SOFTMAX, [x], axis=axis)


def norm(function: str, low: Lowering, node: Node) -> str:
    """A norm within each sample, with its scale and shift."""
    inputs = [low.first(node)]
    inputs += [p for name in ("weight", "bias") if (p := low.maybe(node, name)) is not None]
    return low.add(node, OpKind.NORM, inputs, function=function)


def batch_norm(low: Lowering, node: Node) -> str:
    """Scale and shift are trained, mean and variance are running statistics."""
    name = next(node.reads())
    if low.extents[name].batch_axis not in {0, None}:
        raise low.error(node, "does not keep the batch: it is not the first dimension of the input")
    inputs = [low.first(node)]
    inputs += [p for name in ("weight", "bias") if (p := low.maybe(node, name)) is not None]
    stored = [v for n in ("running_mean", "running_var") if isinstance(v := node.get(n), Ref)]
    inputs += [low.statistic(ref.tensor) for ref in stored]
    return low.add(node, OpKind.NORM, inputs, function="batch", statistics=len(stored))


def embedding(low: Lowering, node: Node) -> str:
    """Rows of a table chosen by an activation; chosen by a constant, they are a view of the table."""
    table, ids = low.tensor(node, "weight"), low.maybe(node, "indices")
    if ids is None:
        return low.add(node, OpKind.VIEW, [table])
    return low.add(node, OpKind.EMBEDDING, [ids, table])


def embedding_bag(low: Lowering, node: Node) -> str:
    """Rows of a table, summed within each bag."""
    table, ids = low.tensor(node, "weight"), low.tensor(node, "indices")
    shape = (*low.shape(ids), low.shape(table)[-1])
    rows = low.add(node, OpKind.EMBEDDING, [ids, table], step="rows", shape=shape)
    return low.add(node, OpKind.REDUCE, [rows], function="max" if integer(node, "mode", 0) == 2 else "sum")


def index(low: Lowering, node: Node) -> str:
    """Rows of a parameter chosen by an activation are an embedding; all else only moves data."""
    names = list(node.reads())
    source, chosen_by = low.operand(names[0]), low.operands(names[1:])
    if names[0] not in low.program.parameters or len(chosen_by) != 1:
        return low.add(node, OpKind.VIEW, chosen_by if source is None else [source])
    return low.add(node, OpKind.EMBEDDING, [chosen_by[0], low.tensor(node, "self")])


def cross_entropy(low: Lowering, node: Node) -> str:
    """The logits themselves: whoever trains the model appends the loss, and labels come with it."""
    return low.first(node)


def reduce(function: str, low: Lowering, node: Node) -> str:
    """A plain reduction; which axes it runs over shows in the shapes."""
    return low.add(node, OpKind.REDUCE, [low.first(node)], function=function)


def extremes(function: str, low: Lowering, node: Node) -> tuple[str, ...] | str:
    """The largest (or smallest) elements along an axis, and where they were."""
    if isinstance(node.get("other"), Ref):
        return binary(function, "clip", low, node)
    x = low.first(node)
    values = low.add(node, OpKind.REDUCE, [x], function=function)
    if len(node.outputs) == 1:
        return values
    where = f"{low.label(node)}.indices"
    shape, size = low.shape_of(node, 1), low.bytes_of(node, 1)
    return values, low.builder.add(where, OpKind.REDUCE, [x], shape, size, function="argmax")


def composed_reduction(before: str, after: str, low: Lowering, node: Node) -> str:
    """An element-wise step, a sum, an element-wise step; an empty name stands for no step."""
    x, kind = low.first(node), OpKind.ELEMENTWISE
    if before:
        x = low.add(node, kind, [x], step="terms", shape=low.shape(x), function=before)
    if not after:
        return low.add(node, OpKind.REDUCE, [x], function="sum")
    summed = low.add(node, OpKind.REDUCE, [x], step="sum", function="sum")
    return low.add(node, kind, [summed], function=after)


def variance(after: str, low: Lowering, node: Node) -> tuple[str, ...]:
    """Mean, centred squares, their mean, and the root of a deviation."""
    x, kind = low.first(node), OpKind.ELEMENTWISE
    wide, shape = low.shape(x), low.shape_of(node)
    mean = low.add(node, OpKind.REDUCE, [x], step="mean", function="mean")
    ones = iter(shape)
    column = shape if len(shape) == len(wide) else _spread(wide, tuple(ones))
    centre = low.view(node, mean, column, "column")
    centred = low.add(node, kind, [x, centre], step="centred", shape=wide, function="sub")
    squares = low.add(node, kind, [centred, centred], step="squares", shape=wide, function="mul")
    spread = low.add(node, OpKind.REDUCE, [squares], step="variance" if after else "", function="mean")
    made = low.add(node, kind, [spread], function=after) if after else spread
    return (made, mean)[: len(node.outputs)]


def _spread(wide: tuple[int, ...], narrow: tuple[int, ...]) -> tuple[int, ...]:
    """A reduced shape with ones where dimensions went, so that it broadcasts."""
    left, column = list(narrow), []
    for size in wide:
        column.append(left.pop(0) if left and left[0] == size else 1)
    return tuple(column) if prod(column) == prod(narrow) else (1,) * len(wide)
