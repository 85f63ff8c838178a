"""Blocks of transformer stacks: attention half, feed-forward half."""

from __future__ import annotations

from collections.abc import Callable

from phaze.workload.families.attention import Heads, Mask, mix
from phaze.workload.families.choices import NormPlace, Positions
from phaze.workload.families.family import Extent
from phaze.workload.families.primitives import Parts, Primitives
from phaze.workload.families.stack import StackDimensions
from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class Transformer(Primitives):
    """Grows a stack of blocks at one extent.

    Activations are (batch, sequence, width); each method appends operators and returns a tensor name.
    `scope` goes before the names of its blocks, where a model has several stacks.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        dimensions: StackDimensions,
        extent: Extent,
        attention: Attention,
        scope: str = "",
    ) -> None:
        """Grow on `graph`, for `extent.batch` sequences of `extent.tokens` tokens."""
        super().__init__(graph, dimensions, eager=attention is Attention.EAGER)
        self.batch = extent.batch
        self.sequence = extent.tokens
        self.context = extent.context
        self.cache = extent.cache
        self.attention_kind = attention
        self.scope = scope

    def block(self, number: int, x: str, *, causal: bool) -> str:
        """One transformer block: attention half, feed-forward half."""
        name = f"{self.scope}block{number}"
        x = self.half(f"{name}.attention", x, lambda n, y: self.attention(n, y, causal=causal))
        return self.half(f"{name}.mlp", x, self.feed_forward)

    def half(self, name: str, x: str, body: Callable[[str, str], str]) -> str:
        """Norm, what the half does, dropout and residual sum, in the model's order."""
        pre = self.d.norm_place is NormPlace.PRE
        y = body(name, self.norm(f"{name}.norm", x) if pre else x)
        y = self.dropout(f"{name}.dropout", y, self.d.dropout)
        y = self.pointwise(f"{name}.residual", "add", (y, x))
        return y if pre else self.norm(f"{name}.norm", y)

    @property
    def head_parts(self) -> Parts:
        """Queries, keys and values as parts of one product's result."""
        d = self.d
        return (d.heads, d.head), (d.kv, d.head), (d.kv, d.head)

    def attention(self, name: str, x: str, *, causal: bool) -> str:
        """Self-attention: one product, or three, make queries, keys and values, one puts the heads together."""
        parts = self.head_parts
        width = sum(units * size for units, size in parts)
        if self.d.joint_products:
            joint = self.linear(f"{name}.qkv", x, width, Shard.COLUMN, parts=parts, bias=self.d.query_bias)
            q, k, v = self.split(f"{name}.split", joint, parts, self.letters(name), Shard.HEADS)
        else:
            q, k, v = (
                self.linear(
                    letter, x, units * size, Shard.COLUMN, parts=((units, size),), bias=self.d.query_bias
                )
                for letter, (units, size) in zip(self.letters(name), parts, strict=True)
            )
        mixed = self.self_mix(name, (q, k, v), causal=causal)
        return self.linear(f"{name}.projection", mixed, self.d.hidden, Shard.ROW)

    @staticmethod
    def letters(name: str) -> tuple[str, str, str]:
        """Names of queries, keys and values."""
        return f"{name}.q", f"{name}.k", f"{name}.v"

    def self_mix(self, name: str, qkv: tuple[str, str, str], *, causal: bool) -> str:
        """Attention over queries, keys and values of one sequence, positions included."""
        d = self.d
        q, k, v = qkv
        if d.qk_norm:
            q, k = self._head_norm(f"{name}.norm_q", q, d.heads), self._head_norm(f"{name}.norm_k", k, d.kv)
        if d.positions is Positions.ROPE:
            q, k = self.rotate(f"{name}.rotate_q", q, d.heads), self.rotate(f"{name}.rotate_k", k, d.kv)
        k, v = (self.cached(f"{name}.cache_{letter}", t, d.kv) for letter, t in (("k", k), ("v", v)))
        heads = Heads(d.heads, d.kv, d.head, d.head)
        return mix(self, self.attention_kind, name, (q, k, v), heads, self.mask(causal=causal))

    def cached(self, name: str, x: str, heads: int) -> str:
        """The whole cache after appending x (batch, tokens, width) to it; x itself where nothing is kept."""
        if self.cache is None:
            return x
        batch, tokens, width = self.g.shape(x)
        shape, parts = (batch, self.context + tokens, width), ((heads, width // heads),)
        page = self.cache.page
        return self.operator(name, OpKind.CACHE, (x,), shape, page=page, shard=Shard.HEADS, shard_parts=parts)

    def rotate(self, name: str, x: str, heads: int) -> str:
        """Rotation of the heads' elements by their position."""
        parts = ((heads, self.g.shape(x)[-1] // heads),)
        return self.pointwise(name, "rope", (x,), shard=Shard.HEADS, shard_parts=parts)

    def _head_norm(self, name: str, x: str, heads: int) -> str:
        """Norm over the elements of each head, one scale for all heads."""
        role = {"shard": Shard.HEADS, "shard_axis": 2, "shard_parts": ((heads, 1),)}
        shape = self.g.shape(x)
        apart = (*shape[:-1], heads, shape[-1] // heads)
        y = self.operator(f"{name}.heads", OpKind.VIEW, (x,), apart, **role)
        y = self.norm(name, y, **role)
        parts = ((heads, apart[-1]),)
        return self.operator(f"{name}.join", OpKind.VIEW, (y,), shape, shard=Shard.HEADS, shard_parts=parts)

    def mask(self, *, causal: bool) -> Mask:
        """Order and distance in this stack's self-attention; a table of distances is shared by its blocks."""
        d = self.d
        if d.positions is not Positions.RELATIVE:
            return Mask(causal, d.positions, page=self.cache.page if self.cache else 0)
        table = self.g.parameter(f"{self.scope}distance_table", (d.position_buckets, d.heads))
        return Mask(causal, d.positions, table)
