"""Converters of operators that graph optimisers put in: several textbook operators each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.ir import OpKind
from phaze.workload.onnx.fused_shapes import number
from phaze.workload.onnx.lowering import Lowering


def added(low: Lowering, name: str, terms: Sequence[str]) -> str:
    """Sum of tensors, the first of which has its shape; itself where it is alone."""
    total = terms[0]
    for i, term in enumerate(terms[1:], 1):
        made = name if i == len(terms) - 1 else f"{name}.{i}"
        total = low.builder.add(
            made, OpKind.ELEMENTWISE, [total, term], low.builder.shape(total), function="add"
        )
    return total


def _present(node: NodeProto, *indices: int) -> list[str]:
    """Names of those operands that are not left out."""
    return [node.input[i] for i in indices if i < len(node.input) and node.input[i]]


def _norm(function: str, low: Lowering, node: NodeProto) -> None:
    """The norm of one tensor."""
    low.emit(node, OpKind.NORM, low.operands(node), function=function)


def _skip_norm(function: str, trained: int, low: Lowering, node: NodeProto) -> None:
    """A sum of the residual, an input and perhaps a bias, handed out too, and its norm.

    `trained`: how many parameters the norm has, scale and perhaps shift.
    """
    out = node.output[0]
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{out}.total"
    terms = [low.tensor(name) for name in _present(node, 0, 1, 2 + trained)]
    scales = [low.tensor(name) for name in _present(node, *range(2, 2 + trained))]
    low.emit(node, OpKind.NORM, [added(low, total, terms), *scales], function=function)


def _embedded_norm(low: Lowering, node: NodeProto) -> None:
    """Rows of the token, position and segment tables, their sum and its norm."""
    out, shape = node.output[0], low.shape(node.output[0])
    ids, segments = low.tensor(node.input[0]), _present(node, 1)
    rows = [low.builder.add(f"{out}.tokens", OpKind.EMBEDDING, [ids, low.tensor(node.input[2])], shape)]
    rows.append(low.builder.add(f"{out}.places", OpKind.EMBEDDING, [ids, low.tensor(node.input[3])], shape))
    if segments and _present(node, 4):
        tables = [low.tensor(segments[0]), low.tensor(node.input[4])]
        rows.append(low.builder.add(f"{out}.segments", OpKind.EMBEDDING, tables, shape))
    scales = [low.tensor(name) for name in _present(node, 5, 6)]
    low.emit(node, OpKind.NORM, [added(low, f"{out}.total", rows), *scales], function="layer")


def _biased(function: str, low: Lowering, node: NodeProto) -> None:
    """An activation function after an optional bias."""
    terms = [low.tensor(name) for name in _present(node, 0, 1)]
    total = added(low, f"{node.output[0]}.biased", terms)
    low.emit(node, OpKind.ELEMENTWISE, [total], function=function)


def _product(low: Lowering, node: NodeProto) -> None:
    """A product with transposed operands."""
    attributes = low.attributes(node)
    flags = {flag: True for flag, key in _FLAGS.items() if attributes.get(key)}
    low.emit(node, OpKind.MATMUL, [low.tensor(name) for name in node.input[:2]], **flags)


_FLAGS = MappingProxyType({"transpose_a": "transA", "transpose_b": "transB"})


def _packed_product(low: Lowering, node: NodeProto) -> None:
    """A product with a weight of few bits: a byte per number, the smallest size that a tensor can have."""
    attributes = low.attributes(node)
    shape = (number(attributes, "N"), number(attributes, "K"))
    if node.input[1] in low.graph.live:
        raise low.error(node, "has a computed weight, which is not supported")
    factors = [low.tensor(node.input[0]), low.parameter(node.input[1], shape)]
    low.emit(node, OpKind.MATMUL, factors, transpose_b=True)


FUSED: Mapping[str, Callable[[Lowering, NodeProto], None]] = MappingProxyType(
    {
        "SimplifiedLayerNormalization": partial(_norm, "rms"),
        "com.microsoft.SimplifiedLayerNormalization": partial(_norm, "rms"),
        "com.microsoft.SkipLayerNormalization": partial(_skip_norm, "layer", 2),
        "com.microsoft.SkipSimplifiedLayerNormalization": partial(_skip_norm, "rms", 1),
        "com.microsoft.EmbedLayerNormalization": _embedded_norm,
        "com.microsoft.FastGelu": partial(_biased, "gelu_tanh"),
        "com.microsoft.BiasGelu": partial(_biased, "gelu"),
        "com.microsoft.Gelu": partial(_biased, "gelu"),
        "com.microsoft.QuickGelu": partial(_biased, "silu"),
        "com.microsoft.FusedMatMul": _product,
        "com.microsoft.MatMulNBits": _packed_product,
    }
)
"""Converters by operator type; shapes of the results are in `fused_shapes.py`."""
