"""Converters of matrix products; transposes stay flags, so that tied weights stay one parameter."""

from __future__ import annotations

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.lowering import Lowering


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
