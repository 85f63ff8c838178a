"""Operators that every transformer is made of, with their tensor-parallel roles (arXiv 1909.08053)."""

from __future__ import annotations

from collections.abc import Iterable

from phaze.workload.families.choices import Activation, NormKind
from phaze.workload.families.stack import StackDimensions
from phaze.workload.ir import GraphBuilder, OpKind
from phaze.workload.sharding import Shard

ACTIVATION_BYTES = 2  # bf16 or fp16

Parts = tuple[tuple[int, int], ...]
"""(units, unit size) that make up a divided axis."""


class Primitives:
    """Appends operators to a graph; activations are (batch, sequence, width), results tensor names."""

    def __init__(self, graph: GraphBuilder, dimensions: StackDimensions, *, eager: bool = False) -> None:
        """Append to `graph` what `dimensions` describe; `eager`: for a framework without fused gradients."""
        self.g = graph
        self.d = dimensions
        self.eager = eager

    def operator(
        self, name: str, kind: OpKind, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: object
    ) -> str:
        """Append an operator with a 16-bit result."""
        if self.eager:
            attributes["eager"] = True
        return self.g.add(name, kind, inputs, shape, ACTIVATION_BYTES, **attributes)

    def linear(
        self,
        name: str,
        x: str,
        width: int,
        shard: Shard,
        *,
        bias: bool | None = None,
        parts: Parts | None = None,
        exact: bool = False,
    ) -> str:
        """x W, plus a bias where the model has biases (after the sum of a row-parallel product).

        `exact`: not in fewer bits where other linear layers are.
        """
        shape = self.g.shape(x)
        weight = self.g.parameter(f"{name}.weight", (shape[-1], width))
        roles: dict[str, object] = {"shard": shard}
        if parts is not None:
            roles["shard_parts"] = parts
        if exact:
            roles["exact"] = True
        y = self.operator(name, OpKind.MATMUL, (x, weight), (*shape[:-1], width), **roles)
        if not (self.d.bias if bias is None else bias):
            return y
        offset = self.g.parameter(f"{name}.bias", (width,))
        after = {"shard": Shard.NONE} if shard is Shard.ROW else roles
        return self.pointwise(f"{name}.add_bias", "add", (y, offset), **after)

    def pointwise(self, name: str, function: str, inputs: tuple[str, ...], **attributes: object) -> str:
        """Element-wise operator with the shape of its first input."""
        shape = self.g.shape(inputs[0])
        return self.operator(name, OpKind.ELEMENTWISE, inputs, shape, function=function, **attributes)

    def norm(self, name: str, x: str, **attributes: object) -> str:
        """Layer or RMS normalisation over the last axis."""
        width = self.g.shape(x)[-1]
        parameters = [self.g.parameter(f"{name}.scale", (width,))]
        if self.d.norm is NormKind.LAYER and self.d.norm_shift:
            parameters.append(self.g.parameter(f"{name}.shift", (width,)))
        function = self.d.norm.value
        inputs = (x, *parameters)
        return self.operator(name, OpKind.NORM, inputs, self.g.shape(x), function=function, **attributes)

    def dropout(self, name: str, x: str, probability: float, **attributes: object) -> str:
        """Dropout where its probability is not zero."""
        return self.pointwise(name, "dropout", (x,), **attributes) if probability else x

    def split(self, name: str, x: str, parts: Parts, names: Iterable[str], shard: Shard) -> tuple[str, ...]:
        """Cut the last axis into parts, one tensor each."""
        before = self.g.shape(x)[:-1]
        widths = (units * size for units, size in parts)
        pieces = {piece: (*before, width) for piece, width in zip(names, widths, strict=True)}
        roles = {} if shard is Shard.NONE else {"shard": shard, "shard_parts": parts}
        return self.g.split_into(name, x, pieces, **roles)

    def activate(self, name: str, x: str, **attributes: object) -> str:
        """Activation function between the products of a feed-forward half; a gated one halves the width."""
        d = self.d
        if not d.gated and d.activation is Activation.GELU_NEW:
            return self._gelu_new(f"{name}.gelu_new", x, **attributes)
        if not d.gated:
            return self.pointwise(f"{name}.{d.activation}", d.activation.value, (x,), **attributes)
        gate, shape = d.activation.gate, self.g.shape(x)
        half = (*shape[:-1], shape[-1] // 2)
        return self.operator(f"{name}.{gate}", OpKind.ELEMENTWISE, (x,), half, function=gate, **attributes)

    def _gelu_new(self, name: str, x: str, **attributes: object) -> str:
        """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an operator each."""

        def step(function: str, *inputs: str, called: str) -> str:
            return self.pointwise(f"{name}.{called}", function, inputs, **attributes)

        cube = step("scale", step("pow", x, called="cube"), called="times_cube")
        argument = step("scale", step("add", x, cube, called="sum"), called="argument")
        curve = step("scale", step("tanh", argument, called="tanh"), called="plus_one")
        return step("mul", step("scale", x, called="half"), curve, called="product")

    def _gated_apart(self, name: str, x: str, ffn: int) -> str:
        """A gated half with a product of its own for the gate."""
        gate, up = (self.linear(f"{name}.{half}", x, ffn, Shard.COLUMN) for half in ("gate", "up"))
        function = self.d.activation.gate
        y = self.pointwise(f"{name}.{function}", function, (gate, up), shard=Shard.COLUMN)
        return self.linear(f"{name}.down", y, self.d.hidden, Shard.ROW)

    def feed_forward(self, name: str, x: str, width: int | None = None) -> str:
        """Product, activation, product; `width` between them is the model's unless given."""
        ffn = width or self.d.ffn
        if self.d.gated and not self.d.joint_products:
            return self._gated_apart(name, x, ffn)
        if self.d.gated:
            y = self.linear(f"{name}.gate_up", x, 2 * ffn, Shard.COLUMN, parts=((ffn, 1), (ffn, 1)))
        else:
            y = self.linear(f"{name}.up", x, ffn, Shard.COLUMN)
        y = self.activate(name, y, shard=Shard.COLUMN)
        return self.linear(f"{name}.down", y, self.d.hidden, Shard.ROW)
