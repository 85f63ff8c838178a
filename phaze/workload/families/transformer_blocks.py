"""Blocks of transformer stacks: attention half, feed-forward half, and their variants.

Halves that stand side by side (GPT-J; PaLM, arXiv 2204.02311), and a mixture of experts in place of the feed-forward
half (Mixtral, arXiv 2401.04088; DeepSeek, arXiv 2401.06066).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, CountOrNone, Extent, Strict
from phaze.workload.families.transformer_dimensions import NormPlace, Positions, Scores, StackDimensions
from phaze.workload.families.transformer_operators import (
    ACTIVATION_BYTES,
    Heads,
    Mask,
    Parts,
    Primitives,
    mix,
)
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.sharding.shard_roles import Shard, experts_reached
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
        self.cache_format = extent.cache_format
        self.attention_kind = attention
        self.scope = scope

    def block(self, number: int, x: str, *, causal: bool) -> str:
        """One transformer block: attention half, feed-forward half."""
        name = f"{self.scope}block{number}"
        window = self.d.window
        x = self.half(f"{name}.attention", x, lambda n, y: self.attention(n, y, causal=causal, window=window))
        return self.half(f"{name}.mlp", x, self.feed_forward)

    def half(self, name: str, x: str, body: Callable[[str, str], str]) -> str:
        """Norm, what the half does, dropout and residual sum, in the model's order."""
        place, inner = self.d.norm_place, f"{name}.norm"
        y = body(name, self.norm(inner, x) if place in (NormPlace.PRE, NormPlace.BOTH) else x)
        if place in (NormPlace.BOTH, NormPlace.AFTER):
            y = self.norm(f"{name}.after_norm", y)
        y = self.dropout(f"{name}.dropout", y, self.d.dropout)
        y = self.pointwise(f"{name}.residual", "add", (y, x))
        return self.norm(inner, y) if place is NormPlace.POST else y

    @property
    def head_parts(self) -> Parts:
        """Queries, keys and values as parts of one product's result, and the gate where there is one."""
        d = self.d
        parts = (d.heads, d.head), (d.kv, d.head), (d.kv, d.head)
        return (*parts, (d.heads, d.head)) if d.attention_gate else parts

    def attention(self, name: str, x: str, *, causal: bool, window: int | None = None) -> str:
        """Self-attention: one product, or three, make queries, keys and values, one puts the heads together.

        `window`: keys that a query sees, itself included (None: all).
        """
        parts, bias = self.head_parts, self.d.query_bias
        width = sum(units * size for units, size in parts)
        if self.d.joint_products:
            joint = self.linear(f"{name}.qkv", x, width, Shard.COLUMN, parts=parts, bias=bias)
            made = self.split(f"{name}.split", joint, parts, self.letters(name), Shard.HEADS)
        else:
            made = tuple(
                self.linear(letter, x, units * size, Shard.COLUMN, parts=((units, size),), bias=bias)
                for letter, (units, size) in zip(self.letters(name), parts, strict=True)
            )
        q, k, v, *gates = made
        mixed = self.self_mix(name, (q, k, v), causal=causal, window=window)
        for gate in gates:
            role = {"shard": Shard.HEADS, "shard_parts": (self.head_parts[0],)}
            opened = self.pointwise(f"{name}.open", "sigmoid", (gate,), **role)
            mixed = self.pointwise(f"{name}.gated", "mul", (mixed, opened), **role)
        return self.linear(f"{name}.projection", mixed, self.d.hidden, Shard.ROW)

    def letters(self, name: str) -> tuple[str, ...]:
        """Names of queries, keys and values, and of the gate where there is one."""
        made = f"{name}.q", f"{name}.k", f"{name}.v"
        return (*made, f"{name}.gate") if self.d.attention_gate else made

    def self_mix(
        self, name: str, qkv: tuple[str, str, str], *, causal: bool, window: int | None = None
    ) -> str:
        """Attention over queries, keys and values of one sequence, positions included."""
        d = self.d
        q, k, v = qkv
        if d.qk_norm:
            q, k = self.head_norm(f"{name}.norm_q", q, d.heads), self.head_norm(f"{name}.norm_k", k, d.kv)
        if d.qk_norm_whole:
            q, k = self._whole_norm(f"{name}.norm_q", q, d.heads), self._whole_norm(f"{name}.norm_k", k, d.kv)
        if d.positions is Positions.ROPE:
            q, k = self.rotate(f"{name}.rotate_q", q, d.heads), self.rotate(f"{name}.rotate_k", k, d.kv)
        letters = ("k", k), ("v", v)
        k, v = (self.cached(f"{name}.cache_{letter}", t, d.kv, window) for letter, t in letters)
        heads = Heads(d.heads, d.kv, d.head, d.head)
        mask = replace(self.mask(causal=causal), window=window)
        if d.sinks:
            mask = replace(mask, sinks=self.g.parameter(f"{name}.sinks", (d.heads,)))
        return mix(self, self.attention_kind, name, (q, k, v), heads, mask)

    def cached(self, name: str, x: str, heads: int, window: int | None = None) -> str:
        """The whole cache after appending x (batch, tokens, width) to it; x itself where nothing is kept."""
        if self.cache is None:
            return x
        width = self.g.shape(x)[-1]
        return self.kept(name, x, window, shard=Shard.HEADS, shard_parts=((heads, width // heads),))

    def kept(self, name: str, x: str, window: int | None = None, **roles: object) -> str:
        """The whole cache after appending x (batch, tokens, width) to it, where there is one.

        Of a window only those tokens are kept that the next one sees: the cache is a ring (Mistral 7B, arXiv
        2310.06825, section 2).
        """
        batch, tokens, width = self.g.shape(x)
        older = self.context if window is None else min(self.context, window - 1)
        shape = (batch, older + tokens, width)
        each = self.cache_format.element_bytes if self.cache_format else ACTIVATION_BYTES
        page = self.cache.page if self.cache else 0
        return self.g.add(name, OpKind.CACHE, (x,), shape, each, page=page, **roles)

    def rotate(self, name: str, x: str, heads: int) -> str:
        """Rotation of the heads' elements by their position."""
        parts = ((heads, self.g.shape(x)[-1] // heads),)
        return self.pointwise(name, "rope", (x,), shard=Shard.HEADS, shard_parts=parts)

    def _whole_norm(self, name: str, x: str, heads: int) -> str:
        """Norm over the elements of all heads together; that devices which share them add up a sum is left out."""
        parts = ((heads, self.g.shape(x)[-1] // heads),)
        return self.norm(name, x, shard=Shard.HEADS, shard_parts=parts)

    def head_norm(self, name: str, x: str, heads: int) -> str:
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


def parallel_block(t: Transformer, name: str, x: str) -> str:
    """x + attention(norm(x)) + feed-forward(norm(x)).

    The first products of both halves are one, and so are the last, which adds the halves up: one sum over
    tensor-parallel devices in each direction.
    """
    d = t.d
    ffn = (2 if d.gated else 1) * d.ffn
    parts = (*t.head_parts, (ffn, 1))
    width = sum(units * size for units, size in parts)
    joint = t.linear(f"{name}.in", t.norm(f"{name}.norm", x), width, Shard.COLUMN, parts=parts)
    names = (*t.letters(name), f"{name}.wide")
    q, k, v, wide = t.split(f"{name}.split", joint, parts, names, Shard.HEADS)
    mixed = t.self_mix(name, (q, k, v), causal=True, window=d.window)
    both = (mixed, t.activate(name, wide, shard=Shard.COLUMN))
    y = t.linear(f"{name}.out", _side_by_side(t, f"{name}.both", both), d.hidden, Shard.ROW)
    y = t.dropout(f"{name}.dropout", y, d.dropout)
    return t.pointwise(f"{name}.residual", "add", (y, x))


def _side_by_side(t: Transformer, name: str, halves: tuple[str, str]) -> str:
    d = t.d
    parts = ((d.heads, d.head), (d.ffn, 1))
    shape = (*t.g.shape(halves[0])[:-1], d.heads * d.head + d.ffn)
    return t.operator(name, OpKind.VIEW, halves, shape, shard=Shard.HEADS, shard_parts=parts)


ROUTE_BYTES = 8  # of a chosen expert: its number (int32) and its weight (fp32)


class Experts(Strict):
    """Experts of a block. Loads are taken as balanced."""

    number: Annotated[Count, Field(description="experts per block")]
    per_token: Annotated[Count, Field(description="experts that a token is sent to")]
    hidden: Annotated[Count, Field(description="width inside one expert")]
    shared: Annotated[CountOrNone, Field(description="experts more that every token passes")] = 0
    shared_gate: Annotated[bool, Field(description="a product weighs what they make (Qwen3-Next)")] = False
    bias: Annotated[bool, Field(description="biases in the router and in the experts (gpt-oss)")] = False
    dense_layers: Annotated[CountOrNone, Field(description="first blocks, which have none")] = 0
    scores: Annotated[Scores, Field(description="of the router: softmax or sigmoid")] = Scores.SOFTMAX
    groups: Annotated[Count, Field(description="groups of experts that a router chooses from first")] = 1
    groups_per_token: Annotated[Count, Field(description="groups that a token is sent to")] = 1

    @model_validator(mode="after")
    def _enough(self) -> Self:
        """A token cannot be sent to more experts than there are, nor than its groups have."""
        if self.per_token > self.number:
            msg = f"per_token ({self.per_token}) exceeds number ({self.number})"
            raise ValueError(msg)
        if self.groups_per_token > self.groups or self.number % self.groups:
            msg = f"groups ({self.groups}) must divide number and be no fewer than groups_per_token"
            raise ValueError(msg)
        if self.per_token > self.number // self.groups * self.groups_per_token:
            msg = f"{self.groups_per_token} of {self.groups} groups have fewer experts than per_token"
            raise ValueError(msg)
        return self

    @property
    def grouped(self) -> dict[str, int]:
        """What a DISPATCH and its COMBINE say of groups; nothing where there is one."""
        each = {"groups": self.groups, "groups_per_token": self.groups_per_token}
        return each if self.groups > 1 else {}


def mixture(p: Transformer, e: Experts, name: str, x: str) -> str:
    """Send every token to its experts, and add up what they and the shared ones make of it.

    Few tokens, as of decoding, do not reach all experts.
    """
    routes = _routes(p, e, name, x)
    batch, tokens, hidden = p.g.shape(x)
    reached = e.number if p.cache is None else experts_reached(e.number, e.per_token, batch * tokens)
    sent = (reached, -(-batch * tokens * e.per_token // reached), hidden)
    y = p.operator(f"{name}.dispatch", OpKind.DISPATCH, (x, routes), sent, shard=Shard.COLUMN, **e.grouped)
    y = _inside(p, e, name, y)
    y = p.operator(f"{name}.combine", OpKind.COMBINE, (y, routes), p.g.shape(x), shard=Shard.ROW, **e.grouped)
    if not e.shared:
        return y
    beside = p.feed_forward(f"{name}.shared", x, e.shared * e.hidden)
    if e.shared_gate:
        gate = p.linear(f"{name}.shared_gate", x, 1, Shard.NONE, bias=False, exact=True)
        gate = p.pointwise(f"{name}.shared_open", "sigmoid", (gate,))
        beside = p.pointwise(f"{name}.shared_gated", "mul", (beside, gate))
    return p.pointwise(f"{name}.add_shared", "add", (y, beside))


def _routes(p: Primitives, e: Experts, name: str, x: str) -> str:
    """The router: a product, weights of the experts, and the largest few (batch, tokens, chosen)."""
    found = p.linear(f"{name}.router", x, e.number, Shard.NONE, bias=e.bias, exact=True)
    if e.scores is Scores.SOFTMAX:
        weights = p.operator(f"{name}.scores", OpKind.SOFTMAX, (found,), p.g.shape(found), axis=-1)
    else:
        weights = p.pointwise(f"{name}.scores", "sigmoid", (found,))
    chosen = (*p.g.shape(x)[:-1], e.per_token)
    return p.g.add(f"{name}.routes", OpKind.REDUCE, (weights,), chosen, ROUTE_BYTES, function="top")


def _inside(p: Primitives, e: Experts, name: str, x: str) -> str:
    """Feed-forward halves side by side, (experts, rows, hidden), each divided as a dense one is."""
    parts = ((e.hidden, 1),) * (2 if p.d.gated else 1)
    y = _products(p, e, f"{name}.up", x, len(parts) * e.hidden, shard=Shard.COLUMN, shard_parts=parts)
    y = p.activate(name, y, shard=Shard.COLUMN, experts=e.number)
    return _products(p, e, f"{name}.down", y, p.g.shape(x)[-1], shard=Shard.ROW)


def _products(p: Primitives, e: Experts, name: str, x: str, width: int, **roles: object) -> str:
    """One product per expert that tokens reach, each with its own matrix, and its own bias where there are some."""
    reached, rows, inner = p.g.shape(x)
    weight = p.g.parameter(f"{name}.weight", (e.number, inner, width))
    roles["experts"] = e.number
    y = p.operator(name, OpKind.MATMUL, (x, weight), (reached, rows, width), **roles)
    if not e.bias:
        return y
    offset = p.g.parameter(f"{name}.bias", (e.number, 1, width))
    after = roles if roles["shard"] is Shard.COLUMN else {"shard": Shard.NONE, "experts": e.number}
    return p.pointwise(f"{name}.add_bias", "add", (y, offset), **after)
