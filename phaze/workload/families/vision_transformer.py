"""Vision transformers (arXiv 2010.11929): patches of an image as a sequence."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.model_family import Count, Extent
from phaze.workload.families.transformer_blocks import Transformer
from phaze.workload.families.transformer_dimensions import NormPlace, Positions, StackDimensions
from phaze.workload.families.transformer_operators import add_positions
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding.shard_roles import Shard
from phaze.workload.workload import Attention


class VisionTransformer(StackDimensions):
    """Square images cut into square patches, an encoder, and a classifier."""

    image: Annotated[Count, Field(description="pixels along a side of the square image")]
    patch: Annotated[Count, Field(description="pixels along a side of a patch; divides image")]
    classes: Annotated[Count, Field(description="of the classifier")]
    channels: Annotated[Count, Field(description="colours of a pixel")] = 3
    class_token: Annotated[
        bool, Field(description="a token more, which the classifier reads; without it, the mean of all")
    ] = True
    patch_bias: Annotated[bool, Field(description="a bias of the product that embeds patches")] = True
    embedding_norm: Annotated[bool, Field(description="a norm before the first block (CLIP)")] = False
    head_bias: Annotated[bool, Field(description="a bias of the classifier")] = True

    @property
    def longest_sequence(self) -> None:
        """None: an image has its number of patches."""
        return

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2

    @model_validator(mode="after")
    def _patches_fit(self) -> Self:
        """Reject patches that leave a rest, and blocks with a norm at their end."""
        if self.image % self.patch:
            msg = f"image ({self.image}) is not a multiple of patch ({self.patch})"
            raise ValueError(msg)
        if self.norm_place is NormPlace.POST:
            msg = "norm_place: post is not known of this family"
            raise ValueError(msg)
        return self

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from images (batch, channels, side, side) to logits (batch, classes)."""
        g = GraphBuilder(name)
        tokens = self.patches + self.class_token
        t = Transformer(g, self, Extent(extent.batch, tokens), attention)
        x = self._embed(t)
        if self.positions is Positions.LEARNED:
            x = add_positions(t, x, tokens)
        if self.embedding_norm:
            x = t.norm("embedding.norm", x)
        x = t.dropout("embedding.dropout", x, self.dropout)
        for number in range(self.layers):
            x = t.block(number, x, causal=False)
        x = self._pool(t, t.norm("head.norm", x))
        return g.build((t.linear("head.logits", x, self.classes, Shard.COLUMN, bias=self.head_bias),))

    def _embed(self, t: Transformer) -> str:
        """One vector per patch, and the class token before them; (batch, tokens, hidden)."""
        g, side = t.g, self.image // self.patch
        pixels = g.input("images", (t.batch, self.channels, self.image, self.image))
        weight = g.parameter("embedding.weight", (self.hidden, self.channels, self.patch, self.patch))
        size = (self.patch, self.patch)
        maps = (t.batch, self.hidden, side, side)
        x = t.operator("embedding.patches", OpKind.CONV, (pixels, weight), maps, kernel=size, strides=size)
        if self.patch_bias:
            bias = g.parameter("embedding.bias", (self.hidden, 1, 1))
            x = t.pointwise("embedding.add_bias", "add", (x, bias))
        x = t.operator("embedding.flat", OpKind.VIEW, (x,), (t.batch, self.patches, self.hidden), tokens=1)
        if not self.class_token:
            return x
        token = g.parameter("embedding.class_token", (1, 1, self.hidden))
        return t.operator("embedding.join", OpKind.VIEW, (token, x), (t.batch, t.sequence, self.hidden))

    def _pool(self, t: Transformer, x: str) -> str:
        """The class token, or the mean of all tokens; (batch, hidden)."""
        shape = (t.batch, self.hidden)
        if self.class_token:
            return t.operator("head.class_token", OpKind.VIEW, (x,), shape)
        return t.operator("head.mean", OpKind.REDUCE, (x,), shape, function="mean")
