"""Converters of operators that are several operators of the graph: their textbook decompositions."""

from __future__ import annotations

import math

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.batch import Shape
from phaze.workload.onnx.lowering import Lowering

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
    if weight in low.graph.live:
        raise low.error(node, "has a computed weight, which is not supported")
    pixels, columns = math.prod(space), per_group * math.prod(kernel)
    filters: Shape = (groups, channels // groups, columns)
    rows: Shape = (batch, groups, pixels, channels // groups)
    if groups == 1:
        filters, rows = filters[1:], (batch, pixels, channels)
    gathered = low.builder.add(f"{out}.pixels", OpKind.VIEW, [x], rows)
    factors = [gathered, low.parameter(weight, filters)]
    product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, (*rows[:-1], columns))
    bias = node.input[2] if len(node.input) > 2 else ""
    name = f"{out}.sum" if bias else out
    low.builder.add(name, OpKind.REDUCE, [product], low.shape(out), function="sum")
    if bias:
        per_filter = (groups * per_group,) + (1,) * len(kernel)
        addend = bias if bias in low.graph.live else low.parameter(bias, per_filter)
        low.emit(node, OpKind.ELEMENTWISE, [name, addend], function="add")
