"""Encoders with a masked-language-model head: BERT.

The pooler and the next-sentence head (hidden^2 parameters, one row per sequence) are left out.
"""

from __future__ import annotations

from phaze.workload.families.blocks import Transformer
from phaze.workload.ir import OperatorGraph
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention
from phaze.workload.workload_file import Dimensions, NormPlace


def encoder_graph(
    name: str, dimensions: Dimensions, batch: int, sequence: int, attention: Attention
) -> OperatorGraph:
    """Forward graph from token ids to logits of every position (batch, sequence, vocabulary)."""
    t = Transformer(name, dimensions, batch, sequence, attention)
    x = t.embedding()
    if dimensions.norm_place is NormPlace.POST:
        x = t.norm("embedding.norm", x)
    x = t.dropout("embedding.dropout", x, dimensions.dropout)
    for number in range(dimensions.layers):
        x = t.block(number, x, causal=False)
    if dimensions.final_norm and dimensions.norm_place is NormPlace.PRE:
        x = t.norm("head.final_norm", x)
    x = t.linear("head.transform", x, dimensions.embedding, Shard.NONE)
    x = t.pointwise("head.activation", dimensions.activation.value, (x,))
    x = t.norm("head.norm", x)
    return t.g.build((t.logits(x, bias=True),))
