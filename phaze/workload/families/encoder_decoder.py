"""Encoder-decoders: T5.

The sequence that a stage of a pipeline does not work on travels beside the other: the embedded target
through the encoder, the encoder's result through the decoder, as where one device looks all tokens up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.choices import NormPlace, Positions
from phaze.workload.families.family import Count, Extent
from phaze.workload.families.stack import Depth
from phaze.workload.families.tokens import embed, logits
from phaze.workload.families.transformer import TransformerDimensions
from phaze.workload.families.two_stacks import SourceAndTarget
from phaze.workload.ir import GraphBuilder, OperatorGraph
from phaze.workload.workload import Attention


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
