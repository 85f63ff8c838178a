"""Convolutional networks: an image through a list of blocks.

Blocks are one layer each (convolution, pooling, product), or have a shortcut around them, or are fire modules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from phaze.workload.families.feature_maps import Activation, FeatureMaps, Window
from phaze.workload.families.model_family import (
    Count,
    CountOrNone,
    Extent,
    FamilyDimensions,
    Probability,
    Strict,
)
from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.workload import Attention


def _both_axes(value: object) -> object:
    """One number stands for height and width alike; YAML's list becomes a pair."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value


Sizes = Annotated[tuple[Count, Count], BeforeValidator(_both_axes)]
Padding = Annotated[tuple[CountOrNone, CountOrNone], BeforeValidator(_both_axes)]


class NetworkBlock(Strict, ABC):
    """One entry of `blocks`. `block` names the kind."""

    block: str

    @abstractmethod
    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Append the block's operators behind tensor `x`, named within the path `inside`."""

    @property
    def depth(self) -> int:
        """Number of blocks that the entry stands for."""
        return 1


class Conv(NetworkBlock):
    """Convolution, batch norm (or bias, in a network without norms), activation."""

    block: Literal["conv"]
    channels: Annotated[Count, Field(description="filters")]
    kernel: Annotated[Sizes, Field(description="size, or [height, width]")] = (1, 1)
    stride: Annotated[Sizes, Field(description="step, or [down, right]")] = (1, 1)
    padding: Annotated[Padding | None, Field(description="on each side (default: half the kernel)")] = None
    groups: Annotated[Count, Field(description="groups of channels that do not mix")] = 1
    norm: Annotated[
        bool | None, Field(description="batch norm instead of a bias (default: the network's)")
    ] = None
    activation: Annotated[Activation | None, Field(description="default: the network's")] = None

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Up to three operators."""
        window = Window(self.kernel, self.stride, self.padding)
        name = net.fresh("conv", inside)
        return net.conv(
            name, x, self.channels, window, groups=self.groups, norm=self.norm, activation=self.activation
        )


class Pool(NetworkBlock):
    """Largest or mean value of every window."""

    block: Literal["max_pool", "average_pool"]
    kernel: Annotated[Sizes, Field(description="size, or [height, width]")]
    stride: Annotated[Sizes | None, Field(description="step (default: the kernel)")] = None
    padding: Annotated[Padding, Field(description="on each side")] = (0, 0)

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """One operator."""
        window = Window(self.kernel, self.stride or self.kernel, self.padding)
        name = net.fresh(self.block, inside)
        return net.pool(name, x, self.block.removesuffix("_pool"), window)


class GlobalPool(NetworkBlock):
    """Mean of each channel over the whole map."""

    block: Literal["global_pool"]

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """One operator."""
        return net.global_pool(net.fresh(self.block, inside), x)


class Linear(NetworkBlock):
    """Fully connected layer with bias; maps are flattened first."""

    block: Literal["linear"]
    features: Annotated[Count, Field(description="width of the result; of the last one, the classes")]
    activation: Annotated[Activation, Field(description="function after it")] = Activation.NONE

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Up to three operators and a view."""
        return net.linear(net.fresh(self.block, inside), x, self.features, self.activation)


class Dropout(NetworkBlock):
    """Dropout, in training only."""

    block: Literal["dropout"]
    probability: Annotated[Probability, Field(description="share of elements dropped")] = 0.5

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """One operator, none at probability 0."""
        return net.pointwise(net.fresh(self.block, inside), "dropout", x) if self.probability else x


def grow_all(blocks: Sequence[NetworkBlock], net: FeatureMaps, x: str, inside: str = "") -> str:
    """Append blocks one behind the other."""
    for block in blocks:
        x = block.grow(net, x, inside)
    return x


class Repeated(NetworkBlock):
    """A block that may stand several times; only the first one has the stride."""

    channels: Annotated[Count, Field(description="channels of the result")]
    stride: Annotated[Sizes, Field(description="step of the first block")] = (1, 1)
    repeat: Annotated[int, Field(strict=True, gt=0, le=1000, description="how many of them")] = 1
    activation: Annotated[Activation | None, Field(description="default: the network's")] = None

    @property
    def depth(self) -> int:
        """As often as it is repeated."""
        return self.repeat

    @abstractmethod
    def body(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """Append the operators of one block, called `name`."""

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Append all of them."""
        for number in range(self.repeat):
            x = self.body(net, net.fresh(self.block, inside), x, self.stride if number == 0 else (1, 1))
        return x


class Residual(Repeated):
    """Convolutions, and a sum with what came in: as it is, or through a convolution where shapes differ."""

    def body(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """The convolutions, the shortcut, sum and activation."""
        y = self.convolutions(net, name, x, stride)
        if net.g.shape(x) != net.g.shape(y):
            window = Window(stride=stride)
            x = net.conv(f"{name}.shortcut", x, self.channels, window, activation=Activation.NONE)
        return net.activate(name, net.pointwise(f"{name}.residual", "add", y, x), self.activation)

    @abstractmethod
    def convolutions(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """Append the convolutions; the last one has no activation."""


class Basic(Residual):
    """Two 3 x 3 convolutions (He et al., arXiv 1512.03385, figure 5 left)."""

    block: Literal["basic"]

    def convolutions(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """Stride on the first."""
        x = net.conv(f"{name}.conv1", x, self.channels, Window((3, 3), stride), activation=self.activation)
        return net.conv(f"{name}.conv2", x, self.channels, Window((3, 3)), activation=Activation.NONE)


class Bottleneck(Residual):
    """1 x 1, 3 x 3, 1 x 1 (He et al., figure 5 right), the middle one grouped in ResNeXt (arXiv 1611.05431).

    The stride is on the 3 x 3 convolution, as in every released implementation since ("v1.5").
    """

    block: Literal["bottleneck"]
    width: Annotated[Count, Field(description="channels of the first two convolutions")]
    groups: Annotated[Count, Field(description="groups of the 3 x 3 convolution")] = 1

    def convolutions(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """Narrow, convolve, widen."""
        x = net.conv(f"{name}.conv1", x, self.width, Window(), activation=self.activation)
        middle = Window((3, 3), stride)
        x = net.conv(f"{name}.conv2", x, self.width, middle, groups=self.groups, activation=self.activation)
        return net.conv(f"{name}.conv3", x, self.channels, Window(), activation=Activation.NONE)


class Inverted(Repeated):
    """MobileNet's block: widen, convolve each channel by itself, squeeze and excite, narrow.

    The shortcut is there where shapes allow it. Sandler et al., arXiv 1801.04381; Howard et al., arXiv
    1905.02244, figure 4.
    """

    block: Literal["inverted"]
    expanded: Annotated[Count, Field(description="channels inside the block")]
    kernel: Annotated[Sizes, Field(description="size of the channel-wise convolution")] = (3, 3)
    squeeze: Annotated[
        Count | None, Field(description="channels between squeeze and excitation (default: there is none)")
    ] = None
    squeeze_activation: Annotated[Activation, Field(description="function between both")] = Activation.RELU
    gate: Annotated[Activation, Field(description="function of the excitation")] = Activation.HARD_SIGMOID

    def body(self, net: FeatureMaps, name: str, x: str, stride: Sizes) -> str:
        """Up to five convolutions and a sum."""
        y = x
        if self.expanded != net.space(name, x)[0]:
            y = net.conv(f"{name}.expand", y, self.expanded, Window(), activation=self.activation)
        window = Window(self.kernel, stride)
        y = net.conv(
            f"{name}.depthwise", y, self.expanded, window, groups=self.expanded, activation=self.activation
        )
        if self.squeeze is not None:
            y = self._excited(net, name, y, self.squeeze)
        y = net.conv(f"{name}.project", y, self.channels, Window(), activation=Activation.NONE)
        same = net.g.shape(x) == net.g.shape(y)
        return net.pointwise(f"{name}.residual", "add", y, x) if same else y

    def _excited(self, net: FeatureMaps, name: str, x: str, squeeze: int) -> str:
        """Each channel times a factor that two products make of all channels' means."""
        means = net.global_pool(f"{name}.squeeze", x)
        few = net.conv(
            f"{name}.reduce", means, squeeze, Window(), norm=False, activation=self.squeeze_activation
        )
        factors = net.conv(f"{name}.excite", few, self.expanded, Window(), norm=False, activation=self.gate)
        return net.pointwise(f"{name}.scale", "mul", x, factors)


class Fire(NetworkBlock):
    """SqueezeNet's module: a narrow 1 x 1, then 1 x 1 and 3 x 3 side by side (arXiv 1602.07360)."""

    block: Literal["fire"]
    squeeze: Annotated[Count, Field(description="filters of the narrow convolution")]
    expand: Annotated[Count, Field(description="filters of each of the two behind it")]

    def grow(self, net: FeatureMaps, x: str, inside: str = "") -> str:
        """Three convolutions and a concatenation."""
        name = net.fresh(self.block, inside)
        x = net.conv(f"{name}.squeeze", x, self.squeeze, Window())
        parts = [net.conv(f"{name}.expand{size}", x, self.expand, Window((size, size))) for size in (1, 3)]
        return net.concatenate(f"{name}.join", parts)


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
