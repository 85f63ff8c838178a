"""Shapes of the results of operators that ONNX does not define: what graph optimisers put in.

Definitions: ONNX Runtime, docs/ContribOperators.md (domain com.microsoft), and its norms in the standard
domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from phaze.workload.onnx.batch_axes import Shape

Operands = Sequence[Shape | None]
Attributes = Mapping[str, object]


def operand_shape(operands: Operands, index: int) -> Shape:
    """Shape of an operand. Raises ValueError where it is left out."""
    found = operands[index] if index < len(operands) else None
    if found is None:
        msg = f"operand {index} is missing"
        raise ValueError(msg)
    return found


def integer_attribute(attributes: Attributes, name: str, default: int | None = None) -> int:
    """An integer attribute. Raises KeyError for one that must be there and is not."""
    return int(str(attributes[name] if default is None else attributes.get(name, default)))


def _as_first(operands: Operands, _: Attributes) -> list[Shape]:
    return [operand_shape(operands, 0)]


def _skip_norm(operands: Operands, _: Attributes) -> list[Shape]:
    x = operand_shape(operands, 0)
    return [x, (*x[:-1], 1), (*x[:-1], 1), x]


def _embedded_norm(operands: Operands, _: Attributes) -> list[Shape]:
    ids, width = operand_shape(operands, 0), operand_shape(operands, 2)[-1]
    return [(*ids, width), ids[:1], (*ids, width)]


def _product(operands: Operands, attributes: Attributes) -> list[Shape]:
    left, right = list(operand_shape(operands, 0)), list(operand_shape(operands, 1))
    for shape, flag in ((left, "transA"), (right, "transB")):
        if attributes.get(flag):
            shape[-2:] = reversed(shape[-2:])
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        msg = f"{tuple(left)} times {tuple(right)}"
        raise ValueError(msg)
    return [(*np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2])), left[-2], right[-1])]


def _packed_product(operands: Operands, attributes: Attributes) -> list[Shape]:
    return [(*operand_shape(operands, 0)[:-1], integer_attribute(attributes, "N"))]


def _multi_head(operands: Operands, attributes: Attributes) -> list[Shape]:
    batch, rows, width = operand_shape(operands, 0)
    key, value = operand_shape(operands, 1), operand_shape(operands, 2)
    heads = integer_attribute(attributes, "num_heads")
    past = operands[6] if len(operands) > 6 else None
    length = key[-2] + (past[2] if past else 0)
    value_width = value[-1] if len(value) == 3 else value[1] * value[3]
    kept = [(batch, heads, length, size // heads) for size in (width, value_width)]
    return [(batch, rows, value_width), *kept]


def _grouped(operands: Operands, attributes: Attributes) -> list[Shape]:
    batch, rows, width = operand_shape(operands, 0)
    heads, groups = integer_attribute(attributes, "num_heads"), integer_attribute(attributes, "kv_num_heads")
    packed = len(operands) < 2 or operands[1] is None
    head = width // (heads + 2 * groups) if packed else width // heads
    past = operands[3] if len(operands) > 3 else None
    return [(batch, rows, heads * head), *[(batch, groups, rows + (past[2] if past else 0), head)] * 2]


def _whole_attention(operands: Operands, _: Attributes) -> list[Shape]:
    return [(*operand_shape(operands, 0)[:-1], operand_shape(operands, 1)[-1] // 3)]


RESULT_SHAPES: Mapping[str, Callable[[Operands, Attributes], list[Shape]]] = MappingProxyType(
    {
        "SimplifiedLayerNormalization": _as_first,
        "com.microsoft.SimplifiedLayerNormalization": _as_first,
        "com.microsoft.SkipLayerNormalization": _skip_norm,
        "com.microsoft.SkipSimplifiedLayerNormalization": _skip_norm,
        "com.microsoft.EmbedLayerNormalization": _embedded_norm,
        "com.microsoft.FastGelu": _as_first,
        "com.microsoft.BiasGelu": _as_first,
        "com.microsoft.Gelu": _as_first,
        "com.microsoft.QuickGelu": _as_first,
        "com.microsoft.RotaryEmbedding": _as_first,
        "com.microsoft.FusedMatMul": _product,
        "com.microsoft.MatMulNBits": _packed_product,
        "com.microsoft.MultiHeadAttention": _multi_head,
        "com.microsoft.GroupQueryAttention": _grouped,
        "com.microsoft.Attention": _whole_attention,
    }
)
"""Shapes of the results from those of the operands (None: left out) and the attributes."""
