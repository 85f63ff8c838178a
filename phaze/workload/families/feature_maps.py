"""Building blocks of convolutional networks over maps (batch, channels, height, width)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze.workload.operators.operator_graph import GraphBuilder, OpKind

Pair = tuple[int, int]
ACTIVATION_BYTES = 2  # bf16 or fp16


class Activation(StrEnum):
    """Function after a convolution or a product."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    LEAKY_RELU = "leaky_relu"
    SILU = "silu"
    HARD_SWISH = "hard_swish"
    SIGMOID = "sigmoid"
    HARD_SIGMOID = "hard_sigmoid"

    @property
    def function(self) -> str:
        """Name among the element-wise functions."""
        return "clip" if self is Activation.RELU6 else self.value


@dataclass(frozen=True, slots=True)
class Window:
    """Window that slides over a map; `padding` on both sides of each axis, None for half the kernel."""

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair | None = None

    @property
    def pads(self) -> Pair:
        """Padding per axis."""
        return self.padding or (self.kernel[0] // 2, self.kernel[1] // 2)

    def over(self, name: str, space: Sequence[int]) -> Pair:
        """Height and width of the result. ValueError where the window is larger than the padded map."""
        padded = [size + 2 * pad for size, pad in zip(space, self.pads, strict=True)]
        if any(size < kernel for size, kernel in zip(padded, self.kernel, strict=True)):
            (high, wide), (k, w) = space, self.kernel
            msg = f"{name}: a window of {k} x {w} does not fit a map of {high} x {wide}"
            raise ValueError(msg)
        high, wide = ((p - k) // s + 1 for p, k, s in zip(padded, self.kernel, self.stride, strict=True))
        return high, wide


class FeatureMaps:
    """Grows the graph of a convolutional network; each method appends operators and returns a tensor name.

    `norm`: a batch norm follows every convolution and takes the place of its bias. `activation`: follows
    where nothing else is said. All methods raise ValueError, with the operator's name, for what does not fit.
    """

    def __init__(self, name: str, *, norm: bool, activation: Activation) -> None:
        """Start an empty graph."""
        self.g = GraphBuilder(name)
        self.norm = norm
        self.activation = activation
        self._named: Counter[str] = Counter()

    def fresh(self, kind: str, inside: str = "") -> str:
        """The next name of that kind of block: conv1, conv2, ...; within a block, `inside.conv1`, ..."""
        path = f"{inside}.{kind}" if inside else kind
        self._named[path] += 1
        return f"{path}{self._named[path]}"

    def space(self, name: str, x: str) -> tuple[int, int, int]:
        """Channels, height and width of a map."""
        shape = self.g.shape(x)
        if len(shape) != 4:
            msg = f"{name}: needs maps, but a linear block came before it"
            raise ValueError(msg)
        return shape[1], shape[2], shape[3]

    def conv(
        self,
        name: str,
        x: str,
        channels: int,
        window: Window,
        *,
        groups: int = 1,
        norm: bool | None = None,
        activation: Activation | None = None,
    ) -> str:
        """Convolution, batch norm or else bias, activation."""
        width = self.space(name, x)[0]
        if width % groups or channels % groups:
            msg = f"{name}: {groups} groups do not divide {width} channels in and {channels} out"
            raise ValueError(msg)
        weight = self.g.parameter(f"{name}.weight", (channels, width // groups, *window.kernel))
        y = self._slide(name, OpKind.CONV, (x, weight), channels, window, groups=groups)
        if self.norm if norm is None else norm:
            y = self.batch_norm(f"{name}.norm", y)
        else:
            y = self._bias(f"{name}.add_bias", y, (channels, 1, 1))
        return self.activate(name, y, activation)

    def batch_norm(self, name: str, x: str) -> str:
        """Normalisation per channel, with stored statistics."""
        width = self.g.shape(x)[1]
        parts = ("scale", "shift", "mean", "variance")
        parameters = [self.g.parameter(f"{name}.{part}", (width,)) for part in parts]
        return self.g.add(
            name, OpKind.NORM, (x, *parameters), self.g.shape(x), function="batch", statistics=2
        )

    def activate(self, name: str, x: str, activation: Activation | None = None) -> str:
        """The given activation, or else the network's."""
        chosen = self.activation if activation is None else activation
        if chosen is Activation.NONE:
            return x
        return self.pointwise(f"{name}.{chosen}", chosen.function, x)

    def pointwise(self, name: str, function: str, *inputs: str) -> str:
        """Element-wise operator with the shape of its first input."""
        return self.g.add(name, OpKind.ELEMENTWISE, inputs, self.g.shape(inputs[0]), function=function)

    def pool(self, name: str, x: str, function: str, window: Window) -> str:
        """Maximum or average of every window."""
        return self._slide(name, OpKind.POOL, (x,), self.space(name, x)[0], window, function=function)

    def global_pool(self, name: str, x: str) -> str:
        """Average of each channel: maps of one point."""
        _, high, wide = self.space(name, x)
        return self.pool(name, x, "average", Window((high, wide), padding=(0, 0)))

    def linear(self, name: str, x: str, features: int, activation: Activation = Activation.NONE) -> str:
        """Product with bias over everything a sample has, and activation."""
        batch, *rest = self.g.shape(x)
        width = rest[0]
        if len(rest) > 1:
            width = rest[0] * rest[1] * rest[2]
            x = self.g.add(f"{name}.flat", OpKind.VIEW, (x,), (batch, width))
        weight = self.g.parameter(f"{name}.weight", (width, features))
        y = self.g.add(name, OpKind.MATMUL, (x, weight), (batch, features))
        return self.activate(name, self._bias(f"{name}.add_bias", y, (features,)), activation)

    def concatenate(self, name: str, parts: Sequence[str]) -> str:
        """Maps of equal size joined along the channels."""
        shapes = [self.g.shape(part) for part in parts]
        if len({shape[2:] for shape in shapes}) > 1 or len(shapes[0]) != 4:
            msg = f"{name}: branches end in maps of different sizes, {', '.join(map(str, shapes))}"
            raise ValueError(msg)
        batch, _, *space = shapes[0]
        return self.g.add(name, OpKind.VIEW, parts, (batch, sum(shape[1] for shape in shapes), *space))

    def _bias(self, name: str, x: str, shape: tuple[int, ...]) -> str:
        return self.pointwise(name, "add", x, self.g.parameter(name.replace("add_bias", "bias"), shape))

    def _slide(
        self,
        name: str,
        kind: OpKind,
        inputs: tuple[str, ...],
        channels: int,
        window: Window,
        **attributes: object,
    ) -> str:
        """Operator whose window goes over the map `inputs[0]`."""
        shape = (self.g.shape(inputs[0])[0], channels, *window.over(name, self.space(name, inputs[0])[1:]))
        sliding = {"kernel": window.kernel, "strides": window.stride, "pads": window.pads * 2}
        return self.g.add(name, kind, inputs, shape, ACTIVATION_BYTES, **sliding, **attributes)
