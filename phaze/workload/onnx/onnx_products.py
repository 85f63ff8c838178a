"""Converters of operators that multiply matrices: products, Einsum, convolutions with pooling, integer products.

Transposes stay flags, so that tied weights stay one parameter. Einsum becomes sums, one product per further
operand, and a rearrangement. Kernels, strides, dilations and padding are made explicit. Products on 8-bit
integers are followed by one scaling of the result.

A stored integer tensor that is only made real (DequantizeLinear) is a parameter of its stored size.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

from onnx import NodeProto

from phaze.workload.onnx.batch_axes import Shape
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.operators.operator_graph import OpKind


def convert_matmul(low: Lowering, node: NodeProto) -> None:
    """MatMul; a vector on the right becomes a matrix of one column."""
    left, right = node.input
    out, shape = node.output[0], low.shape(node.output[0])
    if len(low.shape(left)) < 2:
        raise low.error(node, "has a vector as its left operand, which is not supported")
    stored = _stored_transposed(low, right)
    factors = [low.tensor(left), low.tensor(stored or right)]
    if stored is not None:
        low.emit(node, OpKind.MATMUL, factors, transpose_b=True)
    elif len(low.shape(right)) > 1:
        low.emit(node, OpKind.MATMUL, factors)
    else:
        factors[1] = low.builder.add(f"{out}.column", OpKind.VIEW, factors[1:], (*low.shape(right), 1))
        product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, (*shape, 1))
        low.emit(node, OpKind.VIEW, [product])


def _stored_transposed(low: Lowering, name: str) -> str | None:
    """The constant whose plain transpose this constant matrix is, if it is one."""
    maker = low.makers.get(name)
    if name in low.graph.live or maker is None or maker.op_type != "Transpose" or len(low.shape(name)) != 2:
        return None
    return maker.input[0] if low.attributes(maker).get("perm", [1, 0]) == [1, 0] else None


def convert_gemm(low: Lowering, node: NodeProto) -> None:
    """Gemm, alpha A' B' + beta C: a product, and an addition where there is a C."""
    attributes, out = low.attributes(node), node.output[0]
    factors = [low.tensor(name) for name in node.input[:2]]
    flags = {
        flag: True
        for flag, key in (("transpose_a", "transA"), ("transpose_b", "transB"))
        if attributes.get(key)
    }
    bias = low.operand(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    name = out if bias is None else f"{out}.product"
    low.builder.add(name, OpKind.MATMUL, factors, low.shape(out), low.element_bytes(out), **flags)
    if bias is not None:
        low.emit(node, OpKind.ELEMENTWISE, [name, bias], function="add")


def convert_einsum(low: Lowering, node: NodeProto) -> None:
    """Operands from left to right; labels that stand in one operand alone are summed before."""
    shapes = [low.shape(name) for name in node.input]
    terms, result = _labels(str(low.attributes(node)["equation"]), [len(shape) for shape in shapes])
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    work = _Contraction(low, node.output[0], sizes)
    left, label = low.tensor(node.input[0]), terms[0]
    for i, name in enumerate(node.input[1:], 1):
        wanted = set("".join(terms[i + 1 :])) | set(result)
        left, label = work.product(i, (left, label), (low.tensor(name), terms[i]), wanted)
    left, _ = work.reduced(f"{node.output[0]}.sum", left, label, set(result))
    low.emit(node, OpKind.VIEW, [left])


def _labels(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of the operands and of the result; an ellipsis becomes digits, aligned at the end."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError("as many terms as operands are needed")
    lengths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    most = max([0, *(length for term, length in zip(terms, lengths, strict=True) if "..." in term)])
    dots = string.digits[:most]
    full = [term.replace("...", dots[most - length :]) for term, length in zip(terms, lengths, strict=True)]
    if arrow:
        return full, right.replace("...", dots)
    once = sorted(label for label in set("".join(full)) - set(dots) if "".join(full).count(label) == 1)
    return full, dots + "".join(once)


class _Contraction:
    """Products and sums of one Einsum; `sizes` are those of the labels."""

    def __init__(self, low: Lowering, out: str, sizes: Mapping[str, int]) -> None:
        self._builder = low.builder
        self._out = out
        self._sizes = sizes

    def reduced(self, name: str, tensor: str, labels: str, wanted: set[str]) -> tuple[str, str]:
        """Sum over the labels that nobody wants."""
        kept = "".join(dict.fromkeys(label for label in labels if label in wanted))
        if set(kept) == set(labels):
            return tensor, labels
        return self._builder.add(name, OpKind.REDUCE, [tensor], self._shape(kept), function="sum"), kept

    def product(
        self, number: int, left: tuple[str, str], right: tuple[str, str], wanted: set[str]
    ) -> tuple[str, str]:
        """Two operands as (batch..., rows, inner) times (batch..., inner, columns)."""
        stem = f"{self._out}.{number}"
        a, first = self.reduced(f"{stem}.left", *left, wanted | set(right[1]))
        b, second = self.reduced(f"{stem}.right", *right, wanted | set(first))
        shared = [label for label in dict.fromkeys(first) if label in second]
        batch = "".join(label for label in shared if label in wanted)
        inner = "".join(label for label in shared if label not in wanted)
        rows = "".join(dict.fromkeys(label for label in first if label not in shared))
        columns = "".join(dict.fromkeys(label for label in second if label not in shared))
        labels = batch + rows + columns
        if not inner and not (rows and columns):
            return self._builder.add(
                stem, OpKind.ELEMENTWISE, [a, b], self._shape(labels), function="mul"
            ), labels
        lead, count = self._shape(batch), self._count
        a = self._builder.add(f"{stem}.a", OpKind.VIEW, [a], (*lead, count(rows), count(inner)))
        b = self._builder.add(f"{stem}.b", OpKind.VIEW, [b], (*lead, count(inner), count(columns)))
        return self._builder.add(stem, OpKind.MATMUL, [a, b], (*lead, count(rows), count(columns))), labels

    def _shape(self, labels: str) -> tuple[int, ...]:
        return tuple(self._sizes[label] for label in labels)

    def _count(self, labels: str) -> int:
        return math.prod(self._shape(labels))


def convert_convolution(low: Lowering, node: NodeProto) -> None:
    """Conv, its bias as a following addition."""
    out = node.output[0]
    bias = node.input[2] if len(node.input) > 2 else ""
    name = convolve(
        low, node, (node.input[0], node.input[1]), f"{out}.product" if bias else out, low.element_bytes(out)
    )
    if bias:  # one number per filter, stored as (filters, 1, ...) it broadcasts over space
        per_filter = (low.shape(out)[1],) + (1,) * (len(low.shape(out)) - 2)
        addend = bias if bias in low.graph.live else low.parameter(bias, per_filter)
        low.emit(node, OpKind.ELEMENTWISE, [name, addend], function="add")


def convolve(low: Lowering, node: NodeProto, operands: tuple[str, str], name: str, element_bytes: int) -> str:
    """Append the convolution of a map with filters under a name. Raises InputError where they do not fit."""
    (channels, *_), kernel = low.shape(operands[0])[1:], low.shape(operands[1])
    groups = _integer(low.attributes(node).get("group", 1))
    if len(kernel) < 3 or kernel[1] * groups != channels or kernel[0] % groups:
        raise low.error(node, f"does not fit: {channels} channels, {groups} groups, weight {kernel}")
    window = _window(low, node, kernel[2:])
    factors = [low.tensor(operand) for operand in operands]
    return low.builder.add(
        name, OpKind.CONV, factors, low.shape(node.output[0]), element_bytes, groups=groups, **window
    )


def convert_pool(function: str, low: Lowering, node: NodeProto) -> None:
    """MaxPool or AveragePool."""
    kernel = tuple(_integers(low.attributes(node)["kernel_shape"]))
    low.emit(node, OpKind.POOL, [node.input[0]], function=function, **_window(low, node, kernel))


def convert_global_pool(function: str, low: Lowering, node: NodeProto) -> None:
    """Pooling over the whole feature map."""
    kernel = low.shape(node.input[0])[2:]
    size = len(kernel)
    low.emit(
        node,
        OpKind.POOL,
        [node.input[0]],
        function=function,
        kernel=kernel,
        strides=(1,) * size,
        pads=(0,) * 2 * size,
    )


def _window(low: Lowering, node: NodeProto, kernel: Shape) -> dict[str, tuple[int, ...]]:
    """Attributes of a sliding window; automatic padding is worked out."""
    attributes, axes = low.attributes(node), len(kernel)
    strides = tuple(_integers(attributes.get("strides", [1] * axes)))
    dilations = tuple(_integers(attributes.get("dilations", [1] * axes)))
    pads = tuple(_integers(attributes.get("pads", [0] * 2 * axes)))
    auto = attributes.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        space, result = low.shape(node.input[0])[2:], low.shape(node.output[0])[2:]
        total = [
            max(0, (o - 1) * s + (k - 1) * d + 1 - i)
            for i, o, k, s, d in zip(space, result, kernel, strides, dilations, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = tuple(small + large) if auto == "SAME_UPPER" else tuple(large + small)
    elif auto == "VALID":
        pads = (0,) * 2 * axes
    found = {"kernel": tuple(kernel), "strides": strides, "pads": pads}
    return found | ({"dilations": dilations} if "Conv" in node.op_type else {})


def _integer(value: object) -> int:
    return int(str(value))


def _integers(values: object) -> list[int]:
    return [int(v) for v in values] if isinstance(values, list) else []


SUM_BYTES = 4  # products of 8-bit integers add up in 32 bits


def convert_scaling(low: Lowering, node: NodeProto) -> None:
    """QuantizeLinear and DequantizeLinear: one pass; the scales are no parameters that are trained."""
    low.emit(node, OpKind.ELEMENTWISE, [low.tensor(node.input[0])], function="scale")


def convert_integer_product(low: Lowering, node: NodeProto) -> None:
    """MatMulInteger: its result keeps 32 bits."""
    low.emit(node, OpKind.MATMUL, [low.tensor(name) for name in node.input[:2]])


def convert_integer_convolution(low: Lowering, node: NodeProto) -> None:
    """ConvInteger: its result keeps 32 bits."""
    convolve(low, node, (node.input[0], node.input[1]), node.output[0], SUM_BYTES)


def convert_scaled_product(low: Lowering, node: NodeProto) -> None:
    """QLinearMatMul: a product, scaled to 8 bits."""
    out, factors = node.output[0], [low.tensor(node.input[i]) for i in (0, 3)]
    product = low.builder.add(f"{out}.product", OpKind.MATMUL, factors, low.shape(out), SUM_BYTES)
    low.emit(node, OpKind.ELEMENTWISE, [product], function="scale")


def convert_scaled_convolution(low: Lowering, node: NodeProto) -> None:
    """QLinearConv: a convolution, its bias, scaled to 8 bits."""
    out = node.output[0]
    name = convolve(low, node, (node.input[0], node.input[3]), f"{out}.product", SUM_BYTES)
    if len(node.input) > 8 and node.input[8]:
        filters = low.shape(out)[1]
        bias = low.parameter(node.input[8], (filters,) + (1,) * (len(low.shape(out)) - 2))
        name = low.builder.add(
            f"{out}.biased", OpKind.ELEMENTWISE, [name, bias], low.shape(out), SUM_BYTES, function="add"
        )
    low.emit(node, OpKind.ELEMENTWISE, [name], function="scale")


def convert_dynamic_quantisation(low: Lowering, node: NodeProto) -> None:
    """DynamicQuantizeLinear: range of all numbers, then a scaling by it."""
    x, out = node.input[0], node.output[0]
    ends = [
        low.builder.add(f"{out}.{function}", OpKind.REDUCE, [x], (), function=function)
        for function in ("max", "min")
    ]
    for name in node.output[1:]:
        low.builder.add(name, OpKind.VIEW, ends, low.shape(name), low.element_bytes(name))
    low.emit(node, OpKind.ELEMENTWISE, [x, *ends], function="scale")
