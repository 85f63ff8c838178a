"""Convolutional networks: an image through a list of blocks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from phaze.workload.families.family import Count, Extent, FamilyDimensions
from phaze.workload.families.feature_maps import Activation, FeatureMaps
from phaze.workload.families.layer_blocks import (
    Conv,
    Dropout,
    GlobalPool,
    Linear,
    NetworkBlock,
    Pool,
    Sizes,
    grow_all,
)
from phaze.workload.families.residual_blocks import Basic, Bottleneck, Fire, Inverted
from phaze.workload.ir import OperatorGraph
from phaze.workload.workload import Attention


class Branches(NetworkBlock):
    """Lists of blocks side by side, their maps joined along the channels (Inception); an empty list passes on."""

    block: Literal["branches"]
    branches: Annotated[list[list[AnyBlock]], Field(min_length=2, description="lists of blocks")]

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Every branch, and a concatenation."""
        name = net.fresh(self.block, inside)
        parts = [
            grow_all(branch, net, x, f"{name}.branch{number}")
            for number, branch in enumerate(self.branches, 1)
        ]
        return net.concatenate(f"{name}.join", parts)


AnyBlock = Annotated[
    Conv | Pool | GlobalPool | Linear | Dropout | Basic | Bottleneck | Inverted | Fire | Branches,
    Field(discriminator="block"),
]


class Convolutional(FamilyDimensions):
    """A network over images."""

    image: Annotated[Sizes, Field(description="pixels, or [height, width]")]
    channels: Annotated[Count, Field(description="colours of a pixel")] = 3
    norm: Annotated[bool, Field(description="a batch norm, and no bias, in every convolution")] = True
    activation: Annotated[Activation, Field(description="after every convolution")] = Activation.RELU
    blocks: Annotated[list[AnyBlock], Field(min_length=1, description="from the image to the logits")]

    @property
    def heads_to_divide(self) -> None:
        """None: maps are not divided over devices."""
        return

    @property
    def depth(self) -> int:
        """Blocks, repeated ones as often as they stand."""
        return sum(block.depth for block in self.blocks)

    @property
    def longest_sequence(self) -> None:
        """None: an image has its size."""
        return

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Every block takes what the one before it makes."""
        self._grown("check", 1)
        return self

    def graph(self, name: str, extent: Extent, attention: Attention) -> OperatorGraph:
        """Forward graph from images to what the last block makes."""
        return self._grown(name, extent.batch)

    def _grown(self, name: str, batch: int) -> OperatorGraph:
        net = FeatureMaps(name, norm=self.norm, activation=self.activation)
        image = net.g.input("image", (batch, self.channels, *self.image))
        return net.g.build((grow_all(self.blocks, net, image),))


Branches.model_rebuild()
