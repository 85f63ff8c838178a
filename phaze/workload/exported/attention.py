"""Scaled dot-product attention: (batch, heads, positions, size) around the kernel's (batch, positions, width)."""

from __future__ import annotations

from math import prod

from phaze.workload.exported.arguments import number
from phaze.workload.exported.lowering import Lowering
from phaze.workload.exported.program import Node
from phaze.workload.ir import OpKind

DROPS = "dropout_p"


def attention(low: Lowering, node: Node) -> str:
    """One flash kernel; a mask is read inside it.

    Plain products where values are of another width, and where a trained bias is added to the scores.
    """
    q, k, v = (low.tensor(node, name) for name in ("query", "key", "value"))
    mask = low.maybe(node, "attn_mask") or low.maybe(node, "attn_bias")
    bias = mask if mask in low.trained else None
    if bias is not None or low.shape(v)[-1] != low.shape(q)[-1]:
        return _plain(low, node, (q, k, v), bias)
    heads, kv_heads = (low.shape(t)[-3] if len(low.shape(t)) > 3 else 1 for t in (q, k))
    rows = [_joined(low, node, t, step) for t, step in ((q, "q"), (k, "k"), (v, "v"))]
    made = low.add(
        node,
        OpKind.ATTENTION,
        rows,
        shape=low.shape(rows[0]),
        heads=heads,
        kv_heads=kv_heads,
        head_size=low.shape(q)[-1],
        causal=node.get("is_causal", False) is True,
        dropout=bool(number(node, DROPS)),
    )
    return low.view(node, made, low.shape_of(node), "heads")


def _joined(low: Lowering, node: Node, tensor: str, step: str) -> str:
    """(batch..., heads, positions, size) as (batch, positions, heads x size)."""
    *outer, positions, size = low.shape(tensor)
    heads = outer.pop() if len(outer) > 1 else 1
    return low.view(node, tensor, (prod(outer), positions, heads * size), step)


def _plain(low: Lowering, node: Node, inputs: tuple[str, str, str], bias: str | None) -> str:
    """Scores, scale, bias, softmax, dropout and the weighted sum; shared heads are repeated as views."""
    q, k, v = inputs
    heads = low.shape(q)[:-2]
    k, v = (low.view(node, t, (*heads, *low.shape(t)[-2:]), step) for t, step in ((k, "k"), (v, "v")))
    square = (*low.shape(q)[:-1], low.shape(k)[-2])
    scores = low.add(node, OpKind.MATMUL, [q, k], step="scores", shape=square, transpose_b=True)
    scaled = low.add(node, OpKind.ELEMENTWISE, [scores], step="scale", shape=square, function="scale")
    if bias is not None:
        scaled = low.add(
            node, OpKind.ELEMENTWISE, [scaled, bias], step="add_bias", shape=square, function="add"
        )
    weights = low.add(node, OpKind.SOFTMAX, [scaled], step="softmax", shape=square, axis=-1)
    if number(node, DROPS):
        weights = low.add(node, OpKind.ELEMENTWISE, [weights], step="drop", shape=square, function="dropout")
    return low.add(node, OpKind.MATMUL, [weights, v])
