"""Decoder-only language models: GPT, OPT, LLaMA."""

from __future__ import annotations

from phaze.workload.families.blocks import Transformer
from phaze.workload.ir import OperatorGraph
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention
from phaze.workload.workload_file import Dimensions, NormPlace


def decoder_graph(
    name: str, dimensions: Dimensions, batch: int, sequence: int, attention: Attention
) -> OperatorGraph:
    """Forward graph from token ids to logits (batch, sequence, vocabulary)."""
    t = Transformer(name, dimensions, batch, sequence, attention)
    x = t.dropout("embedding.dropout", t.embedding(), dimensions.dropout)
    for number in range(dimensions.layers):
        x = t.block(number, x, causal=True)
    if dimensions.final_norm and dimensions.norm_place is NormPlace.PRE:
        x = t.norm("head.norm", x)
    if dimensions.embedding != dimensions.hidden:
        x = t.linear("head.project", x, dimensions.embedding, Shard.NONE, bias=False)
    return t.g.build((t.logits(x, bias=False),))
