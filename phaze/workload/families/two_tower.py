"""Two towers that meet in one product: images and texts (CLIP, arXiv 2103.00020)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from phaze.workload.families.blocks import Transformer
from phaze.workload.families.family import Count, Extent, FamilyDimensions
from phaze.workload.families.graft import graft
from phaze.workload.families.tokens import embed
from phaze.workload.families.transformer import TransformerDimensions
from phaze.workload.families.vit import VisionTransformer
from phaze.workload.ir import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.sharding import Shard
from phaze.workload.workload import Attention


class TextTower(TransformerDimensions):
    """A stack of blocks over a text, of which one token becomes the text's vector."""

    features: Annotated[Count, Field(description="width of the vector")]
    causal: Annotated[bool, Field(description="a token sees only those before it")] = True

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from token ids to vectors (batch, features)."""
        t = Transformer(GraphBuilder(name), self, extent, attention)
        x = embed(t, self, t.batch, t.sequence)
        for number in range(self.layers):
            x = t.block(number, x, causal=self.causal)
        x = t.operator("head.last", OpKind.VIEW, (x,), (t.batch, self.hidden))
        x = t.norm("head.norm", x)
        return t.g.build((t.linear("head.vector", x, self.features, Shard.NONE, bias=False),))


class TwoTower(FamilyDimensions):
    """Every image of a microbatch is held against every text of it; the loss goes both ways.

    Vectors of other devices take no part in the product. `classes` of the image tower is the width of its
    vector. The towers run one after the other, and what the other one needs or made travels beside.
    """

    image: Annotated[VisionTransformer, Field(description="tower of images")]
    text: Annotated[TextTower, Field(description="tower of texts")]

    @model_validator(mode="after")
    def _meet(self) -> Self:
        """Both vectors are equally wide."""
        if self.image.classes != self.text.features:
            msg = (
                f"image.classes ({self.image.classes}) and text.features ({self.text.features}) must be equal"
            )
            raise ValueError(msg)
        return self

    @property
    def heads_to_divide(self) -> None:
        """None: towers are repeated on every device."""
        return

    @property
    def depth(self) -> int:
        """Blocks of both towers."""
        return self.image.layers + self.text.layers

    @property
    def longest_sequence(self) -> int:
        """Longest text."""
        return self.text.max_positions

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from images and token ids to similarities (images, texts) and (texts, images)."""
        g = GraphBuilder(name)
        towers = [
            tower.graph(part, extent, attention)
            for part, tower in (("image", self.image), ("text", self.text))
        ]
        entry, ids = (
            g.input(
                f"{tower.name}.{source}", tower.tensors[source].shape, tower.tensors[source].element_bytes
            )
            for tower in towers
            for source in tower.inputs
        )
        image, ids = graft(g, towers[0], entry, ids)
        text, image = graft(g, towers[1], ids, image)
        return g.build(_similarities(g, image, text))


def _similarities(g: GraphBuilder, image: str, text: str) -> tuple[str, str]:
    """Products of all pairs of vectors of length one, times a trained factor; and the same transposed."""
    size = (g.shape(image)[0], g.shape(text)[0])
    unit = [
        g.add(f"similarity.{side}", OpKind.NORM, (x,), g.shape(x), function="rms")
        for side, x in (("image", image), ("text", text))
    ]
    products = g.add("similarity.products", OpKind.MATMUL, unit, size, transpose_b=True)
    scale = g.parameter("similarity.scale", (1,))
    scaled = g.add("similarity.scaled", OpKind.ELEMENTWISE, (products, scale), size, function="mul")
    turned = g.add("similarity.turned", OpKind.VIEW, (scaled,), size[::-1])
    return scaled, turned
