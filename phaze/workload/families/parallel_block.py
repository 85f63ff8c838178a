"""Blocks whose halves stand side by side (GPT-J; PaLM, arXiv 2204.02311)."""

from __future__ import annotations

from phaze.workload.families.blocks import Transformer
from phaze.workload.ir import OpKind
from phaze.workload.sharding import Shard


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
    both = (t.self_mix(name, (q, k, v), causal=True), t.activate(name, wide, shard=Shard.COLUMN))
    y = t.linear(f"{name}.out", _side_by_side(t, f"{name}.both", both), d.hidden, Shard.ROW)
    y = t.dropout(f"{name}.dropout", y, d.dropout)
    return t.pointwise(f"{name}.residual", "add", (y, x))


def _side_by_side(t: Transformer, name: str, halves: tuple[str, str]) -> str:
    d = t.d
    parts = ((d.heads, d.head), (d.ffn, 1))
    shape = (*t.g.shape(halves[0])[:-1], d.heads * d.head + d.ffn)
    return t.operator(name, OpKind.VIEW, halves, shape, shard=Shard.HEADS, shard_parts=parts)
