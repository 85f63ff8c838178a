"""ONNX operators to operators of the graph: one small converter per operator type, one registry.

A converter appends the operators that make a node's outputs. Choices where ONNX and hardware differ:
data movement (concatenation, padding, slices, gathers, casts, comparisons) is a
VIEW and costs nothing, as in PHAZE: producers write into place, consumers read with an offset. An
n-ary sum is n - 1 additions. A number of a formula (rank 0) is no operand; what remains is a scaling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx_composed import (
    REDUCTIONS,
    convert_mish,
    convert_reduction,
    convert_resize,
    convert_transposed_convolution,
)
from phaze.workload.onnx_lowering import Lowering
from phaze.workload.onnx_nodes import operator_type
from phaze.workload.onnx_products import convert_gemm, convert_matmul
from phaze.workload.onnx_spatial import convert_convolution, convert_global_pool, convert_pool

Converter = Callable[[Lowering, NodeProto], None]


def _view(low: Lowering, node: NodeProto) -> None:
    """Reads activations only; the constants beside them say how to move them."""
    low.emit(node, OpKind.VIEW, [name for name in node.input if name in low.graph.live])


def _concat(low: Lowering, node: NodeProto) -> None:
    """Joins activations and parameters (such as a class token)."""
    low.emit(node, OpKind.VIEW, low.operands(node))


def _split(low: Lowering, node: NodeProto) -> None:
    """One view with all the pieces that are read."""
    pieces = [name for name in node.output if name in low.graph.read]
    low.builder.cut(pieces[0], node.input[0], {name: low.shape(name) for name in pieces})


def _element_wise(function: str, low: Lowering, node: NodeProto) -> None:
    low.emit(node, OpKind.ELEMENTWISE, low.operands(node), function=function)


def _binary(function: str, with_constant: str, low: Lowering, node: NodeProto) -> None:
    """Two operands, or one and a number."""
    operands = low.operands(node)
    low.emit(node, OpKind.ELEMENTWISE, operands, function=function if len(operands) > 1 else with_constant)


def _divide(low: Lowering, node: NodeProto) -> None:
    """By a number it is a scaling; a number by a tensor is a division."""
    divisor = low.operand(node.input[1])
    low.emit(node, OpKind.ELEMENTWISE, low.operands(node), function="scale" if divisor is None else "div")


def _variadic(function: str, with_constant: str, low: Lowering, node: NodeProto) -> None:
    """A chain of binary operators, and one more for the numbers among the inputs or for a mean."""
    out, kind = node.output[0], OpKind.ELEMENTWISE
    first, *rest = low.operands(node)
    is_last = len(rest) == len(node.input) - 1 and node.op_type != "Mean"
    if is_last and not rest:
        _view(low, node)
        return
    for i, operand in enumerate(rest, 1):
        name = out if is_last and i == len(rest) else f"{out}.{i}"
        first = low.builder.add(
            name, kind, [first, operand], low.shape(out), low.element_bytes(out), function=function
        )
    if not is_last:
        low.emit(node, kind, [first], function=with_constant)


def _power(low: Lowering, node: NodeProto) -> None:
    """Squares, cubes and roots cost less than a general power."""
    exponent, operands = low.scalar(node.input[1]), low.operands(node)
    function = {2.0: "mul", 3.0: "mul", 0.5: "sqrt", 1.0: "scale", -1.0: "div"}.get(exponent or 0.0, "pow")
    if exponent == 3.0:
        out, kind = node.output[0], OpKind.ELEMENTWISE
        operands.append(low.builder.add(f"{out}.square", kind, operands, low.shape(out), function="mul"))
    low.emit(node, OpKind.ELEMENTWISE, operands, function=function)


def _gelu(low: Lowering, node: NodeProto) -> None:
    exact = low.attributes(node).get("approximate", "none") == "none"
    _element_wise("gelu" if exact else "gelu_tanh", low, node)


def _norm(function: str, low: Lowering, node: NodeProto) -> None:
    low.emit(node, OpKind.NORM, low.operands(node), function=function)


def _batch_norm(low: Lowering, node: NodeProto) -> None:
    """Scale and shift are trained, mean and variance are running statistics."""
    inputs = [low.tensor(name) for name in node.input[:5]]
    low.emit(node, OpKind.NORM, inputs, function="batch", statistics=2)


def _local_response(low: Lowering, node: NodeProto) -> None:
    """Divide by a power of the sum of squares over `size` neighbouring channels."""
    low.emit(node, OpKind.NORM, [node.input[0]], function="lrn", size=int(str(low.attributes(node)["size"])))


def _softmax(low: Lowering, node: NodeProto) -> None:
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


def _reduce(function: str, low: Lowering, node: NodeProto) -> None:
    low.emit(node, OpKind.REDUCE, [node.input[0]], function=function)


def _gather(low: Lowering, node: NodeProto) -> None:
    """Rows of a parameter chosen by an activation are an embedding; all else only moves data."""
    table, ids = node.input[0], node.input[1]
    if table in low.graph.live or ids not in low.graph.live:
        _view(low, node)
        return
    low.emit(node, OpKind.EMBEDDING, [ids, low.tensor(table)])


def _registry() -> dict[str, Converter]:
    table: dict[str, Converter] = {
        "MatMul": convert_matmul,
        "Gemm": convert_gemm,
        "Conv": convert_convolution,
        "MaxPool": partial(convert_pool, "max"),
        "AveragePool": partial(convert_pool, "average"),
        "GlobalMaxPool": partial(convert_global_pool, "max"),
        "GlobalAveragePool": partial(convert_global_pool, "average"),
        "BatchNormalization": _batch_norm,
        "LRN": _local_response,
        "Softmax": _softmax,
        "LogSoftmax": _softmax,  # the logarithm replaces the division
        "Gather": _gather,
        "Concat": _concat,
        "Split": _split,
        "Add": partial(_binary, "add", "scale"),
        "Sub": partial(_binary, "sub", "scale"),
        "Mul": partial(_binary, "mul", "scale"),
        "Div": _divide,
        "Pow": _power,
        "Sum": partial(_variadic, "add", "scale"),
        "Mean": partial(_variadic, "add", "scale"),
        "Max": partial(_variadic, "max", "clip"),
        "Min": partial(_variadic, "min", "clip"),
        "Gelu": _gelu,
        "Mish": convert_mish,
        "ConvTranspose": convert_transposed_convolution,
        "Resize": convert_resize,
        "Upsample": convert_resize,
    }
    norms = {
        "Layer": "layer",
        "RMS": "rms",
        "Instance": "instance",
        "Group": "group",
        "MeanVariance": "instance",
    }
    table |= {f"{prefix}Normalization": partial(_norm, function) for prefix, function in norms.items()}
    reductions = ("Mean", "Sum", "Max", "Min", "Prod")
    table |= {f"Reduce{name}": partial(_reduce, name.lower()) for name in reductions}
    table |= dict.fromkeys(REDUCTIONS, convert_reduction)
    table |= {"ArgMax": partial(_reduce, "argmax"), "ArgMin": partial(_reduce, "argmax")}
    table |= {name: partial(_element_wise, function) for name, function in ELEMENT_WISE.items()}
    return table | dict.fromkeys(MOVES, _view)


ELEMENT_WISE: Mapping[str, str] = MappingProxyType(
    {
        "Abs": "abs",
        "Ceil": "cast",
        "Celu": "elu",
        "Clip": "clip",
        "Cos": "cos",
        "Dropout": "dropout",
        "Elu": "elu",
        "Erf": "erf",
        "Exp": "exp",
        "Floor": "cast",
        "HardSigmoid": "hard_sigmoid",
        "HardSwish": "hard_swish",
        "LeakyRelu": "leaky_relu",
        "Log": "log",
        "Neg": "neg",
        "PRelu": "leaky_relu",
        "Reciprocal": "div",
        "Relu": "relu",
        "Round": "cast",
        "Selu": "elu",
        "Sigmoid": "sigmoid",
        "Sin": "sin",
        "Softplus": "softplus",
        "Softsign": "div",
        "Sqrt": "sqrt",
        "Swish": "silu",
        "Tanh": "tanh",
        "ThresholdedRelu": "relu",
        "Trilu": "where",
        "Where": "where",
    }
)
"""Element-wise functions, as `cycles.FUNCTIONS` calls them; what has no name there, by its nearest kin."""

MOVES = frozenset(
    {
        *("Cast", "CastLike", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"),
        *("Slice", "Pad", "Expand", "Tile"),
        *("DepthToSpace", "SpaceToDepth"),
        *("GatherElements", "GatherND", "ScatterElements", "ScatterND"),
        *("And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN"),
    }
)
"""Data movement, and comparisons (masks): no cost."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

CONVERTERS: Mapping[str, Converter] = MappingProxyType(_registry())
"""Converters by operator type (standard domain)."""


def unsupported(node: NodeProto, functions: frozenset[tuple[str, str]]) -> str | None:
    """How an operator that cannot be converted is reported; None for one that can."""
    name = operator_type(node)
    if (node.domain, node.op_type) in functions:
        return f"function {name}"
    if node.op_type in CONTROL_FLOW and not node.domain:
        return f"control flow {name}"
    return None if name in CONVERTERS else name
