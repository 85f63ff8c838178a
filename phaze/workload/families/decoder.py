"""Decoder-only language models: GPT, OPT, LLaMA."""

from __future__ import annotations

from phaze.workload.families.blocks import Transformer
from phaze.workload.families.family import Extent
from phaze.workload.families.transformer import NormPlace, TransformerDimensions
from phaze.workload.ir import OperatorGraph
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class Decoder(TransformerDimensions):
    """A stack of causal blocks between a token table and logits."""

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to logits (batch, sequence, vocabulary)."""
        t = Transformer(name, self, extent, attention)
        x = t.dropout("embedding.dropout", t.embedding(), self.dropout)
        for number in range(self.layers):
            x = t.block(number, x, causal=True)
        if self.final_norm and self.norm_place is NormPlace.PRE:
            x = t.norm("head.norm", x)
        if self.embedding != self.hidden:
            x = t.linear("head.project", x, self.embedding, Shard.NONE, bias=False)
        return t.g.build((t.logits(x, bias=False),))
