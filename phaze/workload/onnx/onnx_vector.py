"""Converters of everything that is neither a product nor a window: arithmetic, norms, data movement, decompositions.

Operators that are several operators of the graph are decomposed as textbooks do.

Data movement (concatenation, padding, slices, gathers, casts, comparisons) is a VIEW and costs nothing,
as in PHAZE: producers write into place, consumers read with an offset. A number of a formula (rank 0)
is no operand; what remains of the operator is a scaling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import NodeProto

from phaze.workload.onnx.batch_axes import Shape
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.operators.operator_graph import OpKind


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
    bias = low.single_bias(node) if function == "add" and len(operands) == 1 else None
    if bias is not None:
        operands.append(bias)
    if len(operands) > 1:
        low.emit(node, OpKind.ELEMENTWISE, operands, function=function)
    else:
        by_number = function == "mul" and all(low.is_number(t) for t in node.input if t not in operands)
        more = low.orders(node) | ({"by_number": True} if by_number else {})
        low.emit(node, OpKind.ELEMENTWISE, operands, function=with_constant, **more)


def convert_where(low: Lowering, node: NodeProto) -> None:
    """A choice by a mask, which costs nothing of its own; one that only replaces what is no number is no step."""
    condition, *others = node.input
    test = low.makers.get(condition)
    kept = [name for name in others if name in low.graph.live]
    if test is not None and test.op_type == "IsNaN" and kept == [test.input[0]]:
        low.emit(node, OpKind.VIEW, kept)
    else:
        low.emit(node, OpKind.ELEMENTWISE, low.operands(node), function="where", **low.orders(node))


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


def convert_prelu(low: Lowering, node: NodeProto) -> None:
    """The slope is trained, also where it is a single number."""
    low.emit(node, OpKind.ELEMENTWISE, [low.tensor(name) for name in node.input[:2]], function="prelu")


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


# Element-wise step before the sum, and after it, of the reductions that are not plain.
_AROUND_SUM: dict[str, tuple[str | None, str | None]] = {
    "ReduceL1": ("abs", None),
    "ReduceL2": ("mul", "sqrt"),
    "ReduceSumSquare": ("mul", None),
    "ReduceLogSum": (None, "log"),
    "ReduceLogSumExp": ("exp", "log"),
}
REDUCTIONS = frozenset(_AROUND_SUM)


def convert_reduction(low: Lowering, node: NodeProto) -> None:
    """A norm or logarithmic sum: element-wise, sum, element-wise."""
    before, after = _AROUND_SUM[node.op_type]
    x, out = node.input[0], node.output[0]
    if before is not None:
        x = low.builder.add(f"{out}.terms", OpKind.ELEMENTWISE, [x], low.shape(x), function=before)
    name = out if after is None else f"{out}.sum"
    low.builder.add(name, OpKind.REDUCE, [x], low.shape(out), low.element_bytes(out), function="sum")
    if after is not None:
        low.emit(node, OpKind.ELEMENTWISE, [name], function=after)


def convert_unit_norm(low: Lowering, node: NodeProto) -> None:
    """LpNormalization: divide by the sum of magnitudes, or by the root of the sum of squares, along an axis."""
    x, out, order = node.input[0], node.output[0], int(str(low.attributes(node).get("p", 2)))
    shape, axis = low.shape(x), int(str(low.attributes(node).get("axis", -1)))
    rows = (*shape[:axis], 1, *shape[axis:][1:])
    kind, function = OpKind.ELEMENTWISE, "abs" if order == 1 else "mul"
    terms = low.builder.add(f"{out}.terms", kind, [x], shape, function=function)
    length = low.builder.add(f"{out}.sum", OpKind.REDUCE, [terms], rows, function="sum")
    if order != 1:
        length = low.builder.add(f"{out}.length", kind, [length], rows, function="sqrt")
    low.emit(node, kind, [x, length], function="div")


def convert_power_pool(low: Lowering, node: NodeProto) -> None:
    """LpPool and GlobalLpPool: powers, their sum over a window, its root."""
    x, out, kind = node.input[0], node.output[0], OpKind.ELEMENTWISE
    powers = low.builder.add(f"{out}.powers", kind, [x], low.shape(x), function="mul")
    kernel = low.attributes(node).get("kernel_shape", low.shape(x)[2:])
    window = tuple(int(size) for size in kernel) if isinstance(kernel, Sequence) else ()
    total = low.builder.add(
        f"{out}.sum", OpKind.POOL, [powers], low.shape(out), function="average", kernel=window
    )
    low.emit(node, kind, [total], function="sqrt")


def convert_top_k(low: Lowering, node: NodeProto) -> None:
    """The largest along an axis: one comparison per number, as for the few experts of a router, and a gather."""
    x, (values, places) = node.input[0], node.output[:2]
    low.builder.add(
        places, OpKind.REDUCE, [x], low.shape(places), low.element_bytes(places), function="argmax"
    )
    if values in low.graph.read:
        low.emit(node, OpKind.VIEW, [x, places])


def convert_hardmax(low: Lowering, node: NodeProto) -> None:
    """One at the largest along an axis, zero elsewhere."""
    place = low.builder.add(
        f"{node.output[0]}.place", OpKind.REDUCE, [node.input[0]], low.shape(node.input[0]), function="argmax"
    )
    low.emit(node, OpKind.VIEW, [place])


def convert_mish(low: Lowering, node: NodeProto) -> None:
    """Mish: x tanh(softplus(x))."""
    x, out, kind = node.input[0], node.output[0], OpKind.ELEMENTWISE
    soft = low.builder.add(f"{out}.softplus", kind, [x], low.shape(out), function="softplus")
    gate = low.builder.add(f"{out}.tanh", kind, [soft], low.shape(out), function="tanh")
    low.emit(node, kind, [x, gate], function="mul")


def convert_resize(low: Lowering, node: NodeProto) -> None:
    """Nearest neighbours only move data; interpolation weighs 2 or 4 neighbours along each resized axis."""
    x = node.input[0]
    neighbours = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4}[
        str(low.attributes(node).get("mode", "nearest"))
    ]
    space = zip(low.shape(x)[2:], low.shape(node.output[0])[2:], strict=True)
    kernel = tuple(neighbours if before != after else 1 for before, after in space)
    if math.prod(kernel) == 1:
        low.emit(node, OpKind.VIEW, [x])
    else:
        low.emit(node, OpKind.POOL, [x], function="average", kernel=kernel)


def convert_transposed_convolution(low: Lowering, node: NodeProto) -> None:
    """ConvTranspose as a product of every input pixel with all filters, and the sum of what overlaps."""
    x, weight, out = node.input[0], node.input[1], node.output[0]
    batch, channels, *space = low.shape(x)
    inner, per_group, *kernel = low.shape(weight)
    groups = int(str(low.attributes(node).get("group", 1)))
    if inner != channels or channels % groups:
        raise low.error(
            node, f"does not fit: {channels} channels, {groups} groups, weight {low.shape(weight)}"
        )
    pixels, columns = math.prod(space), per_group * math.prod(kernel)
    filters: Shape = (groups, channels // groups, columns)
    rows: Shape = (batch, groups, pixels, channels // groups)
    if groups == 1:
        filters, rows = filters[1:], (batch, pixels, channels)
    gathered = low.builder.add(f"{out}.pixels", OpKind.VIEW, [x], rows)
    if weight in low.graph.live:
        stored = low.builder.add(f"{out}.filters", OpKind.VIEW, [weight], filters)
    else:
        stored = low.parameter(weight, filters)
    factors = [gathered, stored]
    product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, (*rows[:-1], columns))
    bias = node.input[2] if len(node.input) > 2 else ""
    name = f"{out}.sum" if bias else out
    low.builder.add(name, OpKind.REDUCE, [product], low.shape(out), function="sum")
    if bias:
        per_filter = (groups * per_group,) + (1,) * len(kernel)
        addend = bias if bias in low.graph.live else low.parameter(bias, per_filter)
        low.emit(node, OpKind.ELEMENTWISE, [name, addend], function="add")
