"""Converters of operators that graph optimisers put in, several textbook operators each, and of whole attentions.

Flash attention is meant as whoever writes the operator means it.

Masks only add to the scores inside the kernel and are no operands. Keys and values of earlier tokens are
joined in front; what is handed out of them for later tokens is a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from onnx import NodeProto

from phaze.workload.onnx.fused_shapes import integer_attribute
from phaze.workload.onnx.onnx_lowering import Lowering
from phaze.workload.operators.operator_graph import OpKind


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
    shape = (integer_attribute(attributes, "N"), integer_attribute(attributes, "K"))
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


@dataclass(frozen=True)
class _Attention:
    """One attention of a graph; `heads` of queries, `groups` of keys and values, `causal`."""

    low: Lowering
    node: NodeProto
    heads: int
    groups: int
    causal: bool

    @property
    def out(self) -> str:
        """Name of the result."""
        return str(self.node.output[0])

    def input(self, index: int) -> str | None:
        """An operand as a tensor of the graph, None where it is left out."""
        given = index < len(self.node.input) and self.node.input[index]
        return self.low.tensor(self.node.input[index]) if given else None

    def rows(self, part: str, tensor: str) -> str:
        """(batch, heads, rows, width) as (batch, rows, heads x width)."""
        shape = self.low.builder.shape(tensor)
        if len(shape) == 3:
            return tensor
        batch, heads, length, width = shape
        flat = (batch, length, heads * width)
        return self.low.builder.add(f"{self.out}.{part}", OpKind.VIEW, [tensor], flat)

    def joined(self, part: str, past: str | None, new: str, result: int) -> str:
        """Rows of earlier tokens before those of the new ones; handed out as a further result if read."""
        build, name = self.low.builder, self.node.output[result] if result < len(self.node.output) else ""
        rows = self.rows(part, new)
        if past is not None:
            before = self.rows(f"{part}.past", past)
            batch, length, width = build.shape(rows)
            whole = (batch, build.shape(before)[1] + length, width)
            rows = build.add(f"{self.out}.{part}.all", OpKind.VIEW, [before, rows], whole)
        if name in self.low.graph.read:
            build.add(name, OpKind.VIEW, [rows], self.low.shape(name))
        return rows

    def emit(self, q: str, k: str, v: str) -> None:
        """Append the attention of rows; its result has the layout of the file."""
        build, head = self.low.builder, self.low.builder.shape(q)[-1] // self.heads
        if build.shape(k)[-1] != self.groups * head:
            raise self.low.error(self.node, "has queries and keys of different widths")
        if build.shape(v)[-1] != self.groups * head:
            self.low.emit(self.node, OpKind.VIEW, [self._products(q, k, v)])
            return
        flat = len(self.low.shape(self.out)) == 3
        name = self.out if flat else f"{self.out}.rows"
        attributes = {"heads": self.heads, "kv_heads": self.groups, "head_size": head, "causal": self.causal}
        build.add(name, OpKind.ATTENTION, [q, k, v], build.shape(q), **attributes)
        if not flat:
            self.low.emit(self.node, OpKind.VIEW, [name])

    def _products(self, q: str, k: str, v: str) -> str:
        """Attention by its two products, for values of another width; heads of a group are rows of one."""
        build, share = self.low.builder, self.heads // self.groups
        (batch, rows, width), (_, length, values) = build.shape(q), build.shape(v)
        shapes = {
            "q": (batch, self.groups, share * rows, width // self.heads),
            "k": (batch, self.groups, length, width // self.heads),
            "v": (batch, self.groups, length, values // self.groups),
        }
        parts = {
            part: build.add(f"{self.out}.{part}.heads", OpKind.VIEW, [tensor], shapes[part])
            for part, tensor in zip("qkv", (q, k, v), strict=True)
        }
        scores, result = (*shapes["q"][:-1], length), (*shapes["q"][:-1], shapes["v"][-1])
        factors = [parts["q"], parts["k"]]
        made = build.add(f"{self.out}.scores", OpKind.MATMUL, factors, scores, transpose_b=True)
        made = build.add(f"{self.out}.softmax", OpKind.SOFTMAX, [made], scores)
        return build.add(f"{self.out}.mixed", OpKind.MATMUL, [made, parts["v"]], result)

    def biased(self, part: str, tensor: str, bias: str | None) -> str:
        """A tensor and its bias."""
        if bias is None:
            return tensor
        shape = self.low.builder.shape(tensor)
        return self.low.builder.add(
            f"{self.out}.{part}.biased", OpKind.ELEMENTWISE, [tensor, bias], shape, function="add"
        )

    def pieces(self, part: str, tensor: str, widths: Sequence[int]) -> tuple[str, ...]:
        """A tensor cut along its last axis."""
        lead = self.low.builder.shape(tensor)[:-1]
        named = {f"{self.out}.{part}{i}": (*lead, width) for i, width in enumerate(widths)}
        return self.low.builder.split_into(f"{self.out}.{part}", tensor, named)


def _required(attention: _Attention, *indices: int) -> list[str]:
    """Operands that must be there. Raises InputError for one that is left out."""
    found = [attention.input(i) for i in indices]
    if None in found:
        raise attention.low.error(attention.node, "takes its operands packed, which is not supported")
    return [name for name in found if name is not None]


def _standard(low: Lowering, node: NodeProto) -> None:
    """Attention of the standard (opset 23)."""
    if len(node.output) > 3 and node.output[3] in low.graph.read:
        raise low.error(node, "hands out its scores, which is not supported")
    attributes, query, key = low.attributes(node), low.shape(node.input[0]), low.shape(node.input[1])
    if len(query) == 4:
        heads, groups = query[1], key[1]
    else:
        heads, groups = (
            integer_attribute(attributes, "q_num_heads"),
            integer_attribute(attributes, "kv_num_heads"),
        )
    attention = _Attention(low, node, heads, groups, bool(attributes.get("is_causal")))
    q, k, v = _required(attention, 0, 1, 2)
    keys = attention.joined("k", attention.input(4), k, 1)
    attention.emit(attention.rows("q", q), keys, attention.joined("v", attention.input(5), v, 2))


def _multi_head(low: Lowering, node: NodeProto) -> None:
    """MultiHeadAttention: query, key, value, and one bias for all three."""
    heads = integer_attribute(low.attributes(node), "num_heads")
    causal = bool(low.attributes(node).get("unidirectional"))
    attention = _Attention(low, node, heads, heads, causal)
    tensors, bias = _required(attention, 0, 1, 2), attention.input(3)
    widths = [low.builder.shape(attention.rows(f"{i}", t))[-1] for i, t in zip("qkv", tensors, strict=True)]
    biases = attention.pieces("bias", bias, widths) if bias else (None,) * 3
    q, k, v = (attention.biased(i, t, b) for i, t, b in zip("qkv", tensors, biases, strict=True))
    keys = attention.joined("k", attention.input(6), k, 1)
    attention.emit(q, keys, attention.joined("v", attention.input(7), v, 2))


def _grouped(low: Lowering, node: NodeProto) -> None:
    """GroupQueryAttention: grouped heads, perhaps one packed operand, perhaps rotary positions inside."""
    attributes = low.attributes(node)
    heads, groups = integer_attribute(attributes, "num_heads"), integer_attribute(attributes, "kv_num_heads")
    attention = _Attention(low, node, heads, groups, causal=True)
    (q,), k, v = _required(attention, 0), attention.input(1), attention.input(2)
    if k is None or v is None:
        head = low.builder.shape(q)[-1] // (heads + 2 * groups)
        q, k, v = attention.pieces("packed", q, [heads * head, groups * head, groups * head])
    if attributes.get("do_rotary"):
        q, k = (
            low.builder.add(
                f"{node.output[0]}.{part}.turned",
                OpKind.ELEMENTWISE,
                [tensor],
                low.builder.shape(tensor),
                function="rope",
            )
            for part, tensor in (("q", q), ("k", k))
        )
    keys = attention.joined("k", attention.input(3), k, 1)
    attention.emit(q, keys, attention.joined("v", attention.input(4), v, 2))


def _whole(low: Lowering, node: NodeProto) -> None:
    """Attention of ONNX Runtime: the product that makes queries, keys and values belongs to it."""
    attributes = low.attributes(node)
    heads = integer_attribute(attributes, "num_heads")
    attention = _Attention(low, node, heads, heads, bool(attributes.get("unidirectional")))
    x, weight = _required(attention, 0, 1)
    width = low.builder.shape(weight)[-1]
    shape = (*low.builder.shape(x)[:-1], width)
    packed = low.builder.add(f"{node.output[0]}.packed", OpKind.MATMUL, [x, weight], shape)
    packed = attention.biased("packed", packed, attention.input(2))
    attention.emit(*attention.pieces("qkv", packed, [width // 3] * 3))


def _rotary(low: Lowering, node: NodeProto) -> None:
    """RotaryEmbedding: pairs turned by tables of sines and cosines, which are not trained."""
    low.emit(node, OpKind.ELEMENTWISE, [low.tensor(node.input[0])], function="rope")


ATTENTIONS: Mapping[str, Callable[[Lowering, NodeProto], None]] = MappingProxyType(
    {
        "Attention": _standard,
        "RotaryEmbedding": _rotary,
        "com.microsoft.Attention": _whole,
        "com.microsoft.GroupQueryAttention": _grouped,
        "com.microsoft.MultiHeadAttention": _multi_head,
        "com.microsoft.RotaryEmbedding": _rotary,
    }
)
"""Converters by operator type."""
