"""Converters of operators on 8-bit integers: products in integers, then one scaling of the result.

A stored integer tensor that is only made real (DequantizeLinear) is a parameter of its stored size.
"""

from __future__ import annotations

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.lowering import Lowering
from phaze.workload.onnx.spatial import convolve

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
