"""Encoders with a masked-language-model head: BERT.

The pooler and the next-sentence head (hidden^2 parameters, one row per sequence) are left out.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phaze.workload.families.blocks import Transformer
from phaze.workload.families.choices import NormPlace
from phaze.workload.families.family import Count, Extent
from phaze.workload.families.tokens import embed, logits
from phaze.workload.families.transformer import TransformerDimensions
from phaze.workload.ir import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class Encoder(TransformerDimensions):
    """A stack of blocks that see the whole sequence, and logits of every position, or of those that are masked."""

    scored: Annotated[
        Count | None, Field(description="positions of a sequence that get logits (default: all)")
    ] = None

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to logits of the scored positions (batch, positions, vocabulary)."""
        t = Transformer(GraphBuilder(name), self, extent, attention)
        x = embed(t, self, t.batch, t.sequence)
        if self.norm_place is NormPlace.POST and not self.embedding_norm:
            x = t.norm("embedding.norm", x)
        x = t.dropout("embedding.dropout", x, self.dropout)
        for number in range(self.layers):
            x = t.block(number, x, causal=False)
        if self.final_norm and self.norm_place is NormPlace.PRE:
            x = t.norm("head.final_norm", x)
        if self.scored is not None and self.scored < t.sequence:
            x = t.operator("head.scored", OpKind.VIEW, (x,), (t.batch, self.scored, self.hidden))
        x = t.linear("head.transform", x, self.embedding, Shard.NONE)
        x = t.pointwise("head.activation", self.activation.value, (x,))
        x = t.norm("head.norm", x)
        return t.g.build((logits(t, self, x, bias=True),))
