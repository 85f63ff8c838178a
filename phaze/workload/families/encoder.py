"""Encoders with a masked-language-model head: BERT.

The pooler and the next-sentence head (hidden^2 parameters, one row per sequence) are left out.
"""

from __future__ import annotations

from phaze.workload.families.blocks import Transformer
from phaze.workload.families.family import Extent
from phaze.workload.families.transformer import NormPlace, TransformerDimensions
from phaze.workload.ir import OperatorGraph
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class Encoder(TransformerDimensions):
    """A stack of blocks that see the whole sequence, and logits of every position."""

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to logits of every position (batch, sequence, vocabulary)."""
        t = Transformer(name, self, extent, attention)
        x = t.embedding()
        if self.norm_place is NormPlace.POST:
            x = t.norm("embedding.norm", x)
        x = t.dropout("embedding.dropout", x, self.dropout)
        for number in range(self.layers):
            x = t.block(number, x, causal=False)
        if self.final_norm and self.norm_place is NormPlace.PRE:
            x = t.norm("head.final_norm", x)
        x = t.linear("head.transform", x, self.embedding, Shard.NONE)
        x = t.pointwise("head.activation", self.activation.value, (x,))
        x = t.norm("head.norm", x)
        return t.g.build((t.logits(x, bias=True),))
