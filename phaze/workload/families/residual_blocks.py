"""Blocks with a shortcut around them, and fire modules."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from phaze.workload.families.family import Count
from phaze.workload.families.feature_maps import Activation, FeatureMaps, Window
from phaze.workload.families.layer_blocks import NetworkBlock, Sizes


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
        few = net.conv(f"{name}.reduce", means, squeeze, Window(), norm=False, activation=Activation.RELU)
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
