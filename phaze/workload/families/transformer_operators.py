"""Operators that every transformer is made of, with their tensor-parallel roles (arXiv 1909.08053).

Products, norms and activations; attention proper, from queries, keys and values to their mix, fused (flash) or
operator by operator; and both ends of a language model, tables of tokens and positions and scores of the
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phaze.workload.families.transformer_dimensions import (
    Activation,
    NormKind,
    Positions,
    StackDimensions,
    TransformerDimensions,
)
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention

ACTIVATION_BYTES = 2  # bf16 or fp16

Parts = tuple[tuple[int, int], ...]
"""(units, unit size) that make up a divided axis."""


class Primitives:
    """Appends operators to a graph; activations are (batch, sequence, width), results tensor names."""

    def __init__(self, graph: GraphBuilder, dimensions: StackDimensions, *, eager: bool = False) -> None:
        """Append to `graph` what `dimensions` describe; `eager`: for a framework without fused gradients."""
        self.g = graph
        self.d = dimensions
        self.eager = eager

    def operator(
        self, name: str, kind: OpKind, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: object
    ) -> str:
        """Append an operator with a 16-bit result."""
        if self.eager:
            attributes["eager"] = True
        return self.g.add(name, kind, inputs, shape, ACTIVATION_BYTES, **attributes)

    def linear(
        self,
        name: str,
        x: str,
        width: int,
        shard: Shard,
        *,
        bias: bool | None = None,
        parts: Parts | None = None,
        exact: bool = False,
    ) -> str:
        """x W, plus a bias where the model has biases (after the sum of a row-parallel product).

        `exact`: not in fewer bits where other linear layers are.
        """
        shape = self.g.shape(x)
        weight = self.g.parameter(f"{name}.weight", (shape[-1], width))
        roles: dict[str, object] = {"shard": shard}
        if parts is not None:
            roles["shard_parts"] = parts
        if exact:
            roles["exact"] = True
        y = self.operator(name, OpKind.MATMUL, (x, weight), (*shape[:-1], width), **roles)
        if not (self.d.bias if bias is None else bias):
            return y
        offset = self.g.parameter(f"{name}.bias", (width,))
        after = {"shard": Shard.NONE} if shard is Shard.ROW else roles
        return self.pointwise(f"{name}.add_bias", "add", (y, offset), **after)

    def pointwise(self, name: str, function: str, inputs: tuple[str, ...], **attributes: object) -> str:
        """Element-wise operator with the shape of its first input."""
        shape = self.g.shape(inputs[0])
        return self.operator(name, OpKind.ELEMENTWISE, inputs, shape, function=function, **attributes)

    def norm(self, name: str, x: str, **attributes: object) -> str:
        """Layer or RMS normalisation over the last axis."""
        width = self.g.shape(x)[-1]
        parameters = [self.g.parameter(f"{name}.scale", (width,))]
        if self.d.norm is NormKind.LAYER and self.d.norm_shift:
            parameters.append(self.g.parameter(f"{name}.shift", (width,)))
        function = self.d.norm.value
        inputs = (x, *parameters)
        return self.operator(name, OpKind.NORM, inputs, self.g.shape(x), function=function, **attributes)

    def dropout(self, name: str, x: str, probability: float, **attributes: object) -> str:
        """Dropout where its probability is not zero."""
        return self.pointwise(name, "dropout", (x,), **attributes) if probability else x

    def split(self, name: str, x: str, parts: Parts, names: Iterable[str], shard: Shard) -> tuple[str, ...]:
        """Cut the last axis into parts, one tensor each."""
        before = self.g.shape(x)[:-1]
        widths = (units * size for units, size in parts)
        pieces = {piece: (*before, width) for piece, width in zip(names, widths, strict=True)}
        roles = {} if shard is Shard.NONE else {"shard": shard, "shard_parts": parts}
        return self.g.split_into(name, x, pieces, **roles)

    def activate(self, name: str, x: str, **attributes: object) -> str:
        """Activation function between the products of a feed-forward half; a gated one halves the width."""
        d = self.d
        if not d.gated and d.activation is Activation.GELU_NEW:
            return self._gelu_new(f"{name}.gelu_new", x, **attributes)
        if not d.gated:
            return self.pointwise(f"{name}.{d.activation}", d.activation.value, (x,), **attributes)
        gate, shape = d.activation.gate, self.g.shape(x)
        half = (*shape[:-1], shape[-1] // 2)
        return self.operator(f"{name}.{gate}", OpKind.ELEMENTWISE, (x,), half, function=gate, **attributes)

    def _gelu_new(self, name: str, x: str, **attributes: object) -> str:
        """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an operator each."""

        def step(function: str, *inputs: str, called: str) -> str:
            return self.pointwise(f"{name}.{called}", function, inputs, **attributes)

        cube = step("scale", step("pow", x, called="cube"), called="times_cube")
        argument = step("scale", step("add", x, cube, called="sum"), called="argument")
        curve = step("scale", step("tanh", argument, called="tanh"), called="plus_one")
        return step("mul", step("scale", x, called="half"), curve, called="product")

    def _gated_apart(self, name: str, x: str, ffn: int) -> str:
        """A gated half with a product of its own for the gate."""
        gate, up = (self.linear(f"{name}.{half}", x, ffn, Shard.COLUMN) for half in ("gate", "up"))
        function = self.d.activation.gate
        y = self.pointwise(f"{name}.{function}", function, (gate, up), shard=Shard.COLUMN)
        return self.linear(f"{name}.down", y, self.d.hidden, Shard.ROW)

    def feed_forward(self, name: str, x: str, width: int | None = None) -> str:
        """Product, activation, product; `width` between them is the model's unless given."""
        ffn = width or self.d.ffn
        if self.d.gated and not self.d.joint_products:
            return self._gated_apart(name, x, ffn)
        if self.d.gated:
            y = self.linear(f"{name}.gate_up", x, 2 * ffn, Shard.COLUMN, parts=((ffn, 1), (ffn, 1)))
        else:
            y = self.linear(f"{name}.up", x, ffn, Shard.COLUMN)
        y = self.activate(name, y, shard=Shard.COLUMN)
        return self.linear(f"{name}.down", y, self.d.hidden, Shard.ROW)


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of queries and of keys and values; elements of a query or key, and of a value."""

    queries: int
    keys: int
    size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class Mask:
    """Mask of attention scores: the order of query and key, their distance, where keys lie."""

    causal: bool
    positions: Positions = Positions.NONE
    table: str = ""  # of relative positions, (buckets, heads)
    page: int = 0  # tokens of a page, where keys and values are a paged cache
    window: int | None = None  # keys that a query sees
    sinks: str = ""  # a score of every head that no key has, (heads)
    chosen: str = (
        ""  # places of the keys that each query sees, (batch, queries, window); else they are the last ones
    )

    @property
    def biased(self) -> bool:
        """Whether distances are added to the scores."""
        return self.positions in (Positions.ALIBI, Positions.RELATIVE)


def flash(p: Primitives, name: str, qkv: tuple[str, str, str], heads: Heads, mask: Mask) -> str:
    """One operator that keeps no score tensor; (batch, queries, heads x value size)."""
    shape = (*p.g.shape(qkv[0])[:-1], heads.queries * heads.value_size)
    optional: dict[str, object] = {"window": mask.window} if mask.window else {}
    if heads.value_size != heads.size:
        optional["value_size"] = heads.value_size
    if mask.biased:
        optional["score_bias"] = True
    if mask.page:
        optional["page"] = mask.page
    if mask.sinks:
        optional["sinks"] = True
    if mask.chosen:
        optional["chosen"] = True
    return p.operator(
        f"{name}.flash",
        OpKind.ATTENTION,
        (*qkv, *(t for t in (mask.table, mask.sinks, mask.chosen) if t)),
        shape,
        heads=heads.queries,
        kv_heads=heads.keys,
        head_size=heads.size,
        causal=mask.causal,
        dropout=p.d.attention_dropout > 0,
        shard=Shard.HEADS,
        shard_parts=((heads.queries, heads.value_size),),
        **optional,
    )


def unfused(p: Primitives, name: str, qkv: tuple[str, str, str], heads: Heads, mask: Mask) -> str:
    """Scores, softmax, dropout and the weighted sum as separate operators, (batch, heads, ...) each, of all keys.

    Eager, heads are copied to where products find them, and the mask is added after the scale.
    """
    role = {"shard": Shard.HEADS, "shard_axis": 1, "shard_parts": ((heads.queries, 1),)}
    q, k, v = (
        p.operator(
            f"{name}.{letter}_heads",
            OpKind.VIEW,
            (tensor,),
            (p.g.shape(tensor)[0], heads.queries, p.g.shape(tensor)[1], size),
            **role,
        )
        for letter, tensor, size in zip("qkv", qkv, (heads.size, heads.size, heads.value_size), strict=True)
    )
    if p.eager:
        q, k, v = (p.pointwise(f"{x}.copy", "copy", (x,), **role) for x in (q, k, v))
    rows = p.g.shape(q)[:3]
    square = (*rows, p.g.shape(k)[2])
    scores = p.operator(f"{name}.scores", OpKind.MATMUL, (q, k), square, transpose_b=True, **role)
    # one multiply-add per score: times 1 / sqrt(head size), plus the causal mask where there is one
    scaled = p.pointwise(f"{name}.scale", "scale", (scores,), **role)
    scaled = p.pointwise(f"{name}.mask", "mask", (scaled,), **role) if p.eager else scaled
    scaled = _add_distances(p, name, scaled, heads, mask, role)
    beside = (mask.sinks,) if mask.sinks else ()
    weights = p.operator(f"{name}.softmax", OpKind.SOFTMAX, (scaled, *beside), square, axis=-1, **role)
    weights = p.dropout(f"{name}.softmax_dropout", weights, p.d.attention_dropout, **role)
    mixed = p.operator(f"{name}.mix", OpKind.MATMUL, (weights, v), (*rows, heads.value_size), **role)
    mixed = p.pointwise(f"{name}.mix_copy", "copy", (mixed,), **role) if p.eager else mixed
    flat = (rows[0], rows[2], heads.queries * heads.value_size)
    parts = ((heads.queries, heads.value_size),)
    return p.operator(f"{name}.join", OpKind.VIEW, (mixed,), flat, shard=Shard.HEADS, shard_parts=parts)


def _add_distances(
    p: Primitives, name: str, scores: str, heads: Heads, mask: Mask, role: dict[str, object]
) -> str:
    """A slope of the distance is worked out on the fly; a learned table is spread over the scores first."""
    if not mask.biased:
        return scores
    if not mask.table:
        return p.pointwise(f"{name}.alibi", "scale", (scores,), **role)
    spread = p.operator(
        f"{name}.distances",
        OpKind.VIEW,
        (mask.table,),
        p.g.shape(scores)[1:],
        **{**role, "shard_axis": 0},
    )
    return p.pointwise(f"{name}.add_distances", "add", (scores, spread), **role)


def mix(
    p: Primitives, kind: Attention, name: str, qkv: tuple[str, str, str], heads: Heads, mask: Mask
) -> str:
    """Weighted sum of the values, in the form asked for."""
    return (flash if kind is Attention.FLASH else unfused)(p, name, qkv, heads, mask)


TABLE = "embedding.table"


def embed(p: Primitives, d: TransformerDimensions, batch: int, tokens: int) -> str:
    """Token, position and segment tables, as far as the model has them; (batch, tokens, hidden)."""
    g = p.g
    x = look_up(p, d, "embedding.tokens", g.input("token_ids", (batch, tokens), 8))
    if d.embedding != d.hidden:
        x = p.linear("embedding.project", x, d.hidden, Shard.NONE, bias=False)
    if d.positions is Positions.LEARNED:
        x = add_positions(p, x, d.position_rows or d.max_positions)
    if d.token_types:
        types = g.input("token_types", (batch, tokens), 8)
        segments = g.parameter("embedding.type_table", (d.token_types, d.hidden))
        wide = p.operator("embedding.types", OpKind.EMBEDDING, (types, segments), g.shape(x))
        x = p.pointwise("embedding.add_types", "add", (x, wide))
    if d.embedding_norm:
        x = p.norm("embedding.norm", x)
    return x


def look_up(p: Primitives, d: TransformerDimensions, name: str, ids: str) -> str:
    """Rows of the token table, (batch, tokens, embedding)."""
    table = p.g.parameter(TABLE, (d.vocabulary, d.embedding))
    shape = (*p.g.shape(ids), d.embedding)
    return p.operator(name, OpKind.EMBEDDING, (ids, table), shape, shard=Shard.VOCAB)


def add_positions(p: Primitives, x: str, rows: int) -> str:
    """Add the first rows of a learned table, one per element of the sequence."""
    places = p.g.parameter("embedding.position_table", (rows, p.d.hidden))
    used = p.operator("embedding.positions", OpKind.VIEW, (places,), p.g.shape(x)[1:])
    return p.pointwise("embedding.add_positions", "add", (x, used))


def logits(p: Primitives, d: TransformerDimensions, x: str, *, bias: bool, name: str = "head") -> str:
    """Scores of the vocabulary, by the token table or a matrix of their own, which all heads share."""
    g = p.g
    table = g.parameter(TABLE if d.tied_embeddings else "head.table", (d.vocabulary, d.embedding))
    shape = (*g.shape(x)[:-1], d.vocabulary)
    y = p.operator(
        f"{name}.logits", OpKind.MATMUL, (x, table), shape, transpose_b=True, shard=Shard.VOCAB, exact=True
    )
    if not bias:
        return y
    offset = g.parameter("head.logits.bias", (d.vocabulary,))
    return p.pointwise("head.logits.add_bias", "add", (y, offset), shard=Shard.COLUMN)
