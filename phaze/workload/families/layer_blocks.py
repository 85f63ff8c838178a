"""Blocks of a convolutional network's file that are one layer each: convolution, pooling, product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from phaze.workload.families.family import Count, CountOrNone, Probability, Strict
from phaze.workload.families.feature_maps import Activation, FeatureMaps, Window


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
        """How many blocks the entry stands for."""
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
