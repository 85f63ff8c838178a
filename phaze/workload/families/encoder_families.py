"""Encoders with a masked-language-model head (BERT) and encoder-decoders (T5).

The pooler and the next-sentence head (hidden^2 parameters, one row per sequence) are left out.

The sequence that a stage of a pipeline does not work on travels beside the other: the embedded target
through the encoder, the encoder's result through the decoder, as where one device looks all tokens up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, Extent
from phaze.workload.families.transformer_blocks import Transformer
from phaze.workload.families.transformer_dimensions import (
    Depth,
    NormPlace,
    Positions,
    StackDimensions,
    TransformerDimensions,
)
from phaze.workload.families.transformer_operators import Heads, Mask, embed, logits, mix
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


class SourceAndTarget(Transformer):
    """Blocks over tensors (batch, source + target, width), of which each half of a block changes one part.

    So one tensor passes between any two halves, and the model is a chain of layers.
    """

    def __init__(
        self,
        graph: GraphBuilder,
        dimensions: StackDimensions,
        extent: Extent,
        attention: Attention,
        scope: str,
        target: int,
    ) -> None:
        """`extent.tokens` of the source, `target` of the target."""
        super().__init__(graph, dimensions, extent, attention, scope)
        self.target = target

    def encoder_block(self, number: int, both: str) -> str:
        """Self-attention and feed-forward of the source."""
        name = f"{self.scope}block{number}"
        both = self.on_source(f"{name}.attention", both, lambda n, x: self.half(n, x, self._see_all))
        return self.on_source(f"{name}.mlp", both, lambda n, x: self.half(n, x, self.feed_forward))

    def decoder_block(self, number: int, both: str) -> str:
        """Causal self-attention of the target, its attention to the source, its feed-forward."""
        name = f"{self.scope}block{number}"
        both = self._on_target(f"{name}.attention", both, lambda _: self._see_past)
        both = self._on_target(
            f"{name}.cross", both, lambda source: lambda n, x: self.cross_attention(n, x, source)
        )
        return self._on_target(f"{name}.mlp", both, lambda _: self.feed_forward)

    def apart(self, name: str, both: str) -> tuple[str, str]:
        """Source and target."""
        batch, _, width = self.g.shape(both)
        shapes = {
            f"{name}.source": (batch, self.sequence, width),
            f"{name}.target": (batch, self.target, width),
        }
        source, target = self.g.split_into(f"{name}.apart", both, shapes)
        return source, target

    def on_source(self, name: str, both: str, change: Callable[[str, str], str]) -> str:
        """Change the source, pass the target on."""
        source, target = self.apart(name, both)
        return self._beside(name, both, change(name, source), target)

    def _on_target(self, name: str, both: str, body: Callable[[str], Callable[[str, str], str]]) -> str:
        """A half of a block on the target, which `body` gives for the source, passed on."""
        source, target = self.apart(name, both)
        return self._beside(name, both, source, self.half(name, target, body(source)))

    def _beside(self, name: str, both: str, source: str, target: str) -> str:
        return self.operator(f"{name}.both", OpKind.VIEW, (source, target), self.g.shape(both))

    def _see_all(self, name: str, x: str) -> str:
        return self.attention(name, x, causal=False)

    def _see_past(self, name: str, x: str) -> str:
        return self.attention(name, x, causal=True)

    def cross_attention(self, name: str, x: str, source: str) -> str:
        """Queries of x (batch, target, width) to keys and values of the source; no positions."""
        d = self.d
        queries, *others = self.head_parts
        q = self.linear(f"{name}.q", x, d.heads * d.head, Shard.COLUMN, parts=(queries,), bias=d.query_bias)
        parts = tuple(others)
        width = sum(units * size for units, size in parts)
        joint = self.linear(f"{name}.kv", source, width, Shard.COLUMN, parts=parts, bias=d.query_bias)
        k, v = self.split(f"{name}.split", joint, parts, (f"{name}.k", f"{name}.v"), Shard.HEADS)
        heads = Heads(d.heads, d.kv, d.head, d.head)
        mixed = mix(self, self.attention_kind, name, (q, k, v), heads, Mask(causal=False))
        return self.linear(f"{name}.projection", mixed, d.hidden, Shard.ROW)


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


class EncoderDecoder(TransformerDimensions):
    """An encoder of `layers` blocks, and a decoder that attends to its result.

    A sample is a source, as long as the sequence, and a target.
    """

    decoder_layers: Annotated[Depth | None, Field(description="blocks of the decoder (default: layers)")] = (
        None
    )
    target_length: Annotated[
        Count | None, Field(description="tokens of a target (default: as many as of the source)")
    ] = None

    @property
    def depth_of_decoder(self) -> int:
        """Blocks of the decoder."""
        return self.decoder_layers or self.layers

    @property
    def depth(self) -> int:
        """Blocks of both stacks."""
        return self.layers + self.depth_of_decoder

    @property
    def repeats(self) -> Mapping[str, tuple[int, int]]:
        """Blocks of a stack are alike."""
        return {"layers": (1, self.layers), "decoder_layers": (1, self.depth_of_decoder)}

    @model_validator(mode="after")
    def _forms_fit(self) -> Self:
        """Reject what the two stacks cannot share."""
        if self.norm_place is NormPlace.POST or self.positions is Positions.LEARNED or self.token_types:
            msg = "this family knows neither norm_place: post nor positions: learned nor token_types"
            raise ValueError(msg)
        return self

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids, source before target, to logits (batch, target, vocabulary)."""
        g = GraphBuilder(name)
        target = self.target_length or extent.tokens
        encoder = SourceAndTarget(g, self, extent, attention, "encoder.", target)
        decoder = SourceAndTarget(g, self, extent, attention, "decoder.", target)
        both = embed(encoder, self, extent.batch, extent.tokens + target)
        both = encoder.dropout("embedding.dropout", both, self.dropout)
        for number in range(self.layers):
            both = encoder.encoder_block(number, both)
        both = encoder.on_source("encoder.end", both, lambda n, x: encoder.norm(f"{n}.norm", x))
        for number in range(self.depth_of_decoder):
            both = decoder.decoder_block(number, both)
        _, y = decoder.apart("head", both)
        return g.build((logits(decoder, self, decoder.norm("head.norm", y), bias=False),))
