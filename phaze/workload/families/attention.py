"""Attention proper: from queries, keys and values to their mix, fused (flash) or operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.workload.families.choices import Positions
from phaze.workload.families.primitives import Primitives
from phaze.workload.ir import OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of queries and of keys and values; elements of a query or key, and of a value."""

    queries: int
    keys: int
    size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class Mask:
    """What a score may depend on beside its query and key: their order, and their distance; where keys lie."""

    causal: bool
    positions: Positions = Positions.NONE
    table: str = ""  # of relative positions, (buckets, heads)
    page: int = 0  # tokens of a page, where keys and values are a paged cache

    @property
    def biased(self) -> bool:
        """Whether distances are added to the scores."""
        return self.positions in (Positions.ALIBI, Positions.RELATIVE)


def flash(p: Primitives, name: str, qkv: tuple[str, str, str], heads: Heads, mask: Mask) -> str:
    """One operator that keeps no score tensor; (batch, queries, heads x value size)."""
    shape = (*p.g.shape(qkv[0])[:-1], heads.queries * heads.value_size)
    optional: dict[str, object] = {"window": p.d.window} if p.d.window else {}
    if heads.value_size != heads.size:
        optional["value_size"] = heads.value_size
    if mask.biased:
        optional["score_bias"] = True
    if mask.page:
        optional["page"] = mask.page
    return p.operator(
        f"{name}.flash",
        OpKind.ATTENTION,
        (*qkv, mask.table) if mask.table else qkv,
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
    """Scores, softmax, dropout and the weighted sum as separate operators, (batch, heads, ...) each.

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
    weights = p.operator(f"{name}.softmax", OpKind.SOFTMAX, (scaled,), square, axis=-1, **role)
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
