"""Convolutions as arrays: the sizes that a law of convolutions needs, read from the work of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.hardware.derived import product_flops_per_s
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Format, Gemm, Role, Window, Work

_ALIGNED = 8  # channels that kernels on tensor cores take together


@dataclass(frozen=True, slots=True)
class Products:
    """Products (m x k) (k x n), `groups` of each, arrays of one length."""

    groups: Floats
    m: Floats
    k: Floats
    n: Floats


@dataclass(frozen=True, slots=True)
class Maps:
    """The tensors of convolutions forward, arrays of one length; channels and filters of one group.

    `taps`: positions of the window; `steps`: pixels from one window to the next; `inputs`, `outputs`: pixels
    of one map before and after; `high_in` to `wide_out`: extents along the last two axes.
    """

    groups: Floats
    batch: Floats
    channels: Floats
    filters: Floats
    taps: Floats
    steps: Floats
    inputs: Floats
    outputs: Floats
    high_in: Floats
    wide_in: Floats
    high_out: Floats
    wide_out: Floats

    def aligned(self, unit: Floats) -> tuple[Floats, Floats]:
        """Channels and filters, each a multiple of `unit`."""
        return np.ceil(self.channels / unit) * unit, np.ceil(self.filters / unit) * unit


@dataclass(frozen=True, slots=True)
class Convolutions:
    """Convolutions and their gradients on a chip, arrays of one length.

    `input_gradient`, `weight_gradient`: which pass one is; `winograd`: a 3 x 3 window without steps on vector
    ALUs; `on_tensor_cores`: whether the chip has some for its format, `tensor_cores`: whether its channels fit
    them as they are. `peak_flop_per_s`: of the units that it runs on.
    `element_bytes`: of the feature map; `moved_bytes`: every tensor once. `channels`, `filters`: of one
    group, as kernels pad them.
    """

    maps: Maps
    input_gradient: Flags
    weight_gradient: Flags
    winograd: Flags
    tensor_cores: Flags
    on_tensor_cores: Flags
    element_bytes: Floats
    moved_bytes: Floats
    peak_flop_per_s: Floats
    channels: Floats
    filters: Floats

    @property
    def direct_macs(self) -> Floats:
        """Multiply-accumulates without padding or pixels that no window reaches."""
        m = self.maps
        return m.groups * m.batch * m.outputs * m.taps * m.channels * m.filters

    @property
    def map_bytes(self) -> Floats:
        """The feature map before the convolution."""
        m = self.maps
        return self.element_bytes * m.groups * m.batch * m.channels * m.inputs

    @property
    def column_bytes(self) -> Floats:
        """The columns of that map, one per window; none where they are the map itself."""
        m = self.maps
        columns = m.groups * m.batch * m.channels * m.outputs * m.taps
        return np.where(m.taps > 1, self.element_bytes * columns, 0.0)

    def gathered(self, step_waste: float) -> Products:
        """Pixels that are written by channels that are written, over what reaches a pixel.

        Steps between windows leave most of what could reach a pixel of the map before empty; `step_waste` of
        that is multiplied all the same.
        """
        m = self.maps
        reached = step_waste + (1.0 - step_waste) / m.steps
        return self._product(m.batch * m.inputs, self.filters * m.taps * reached, self.channels)

    def scattered(self) -> Products:
        """The same with a column of the map before for each pixel of the map after."""
        m = self.maps
        return self._product(m.batch * m.outputs, self.filters, self.channels * m.taps)

    def _product(self, pixels: Floats, depth: Floats, written: Floats) -> Products:
        """A product whose sides are these for the gradient of the input; that of the weights contracts pixels."""
        window, after = self.channels * self.maps.taps, self.maps.batch * self.maps.outputs
        into, weights, filters = self.input_gradient, self.weight_gradient, self.filters
        return Products(
            self.maps.groups,
            m=np.select([into, weights], [pixels, window], after),
            k=np.select([into, weights], [depth, after], window),
            n=np.where(into, written, filters),
        )

    @property
    def winograd_sides(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Height and width of the map whose tiles are transformed, channels read and channels written."""
        m, back = self.maps, self.input_gradient
        read, written = np.where(back, (self.filters, self.channels), (self.channels, self.filters))
        return np.where(back, m.high_in, m.high_out), np.where(back, m.wide_in, m.wide_out), read, written


def convolutions(works: Sequence[Work], chip: ArchitectureTable) -> Convolutions:
    """Arrays of convolutions on a chip, a table of one. Raises ValueError for a product that is none."""
    gemms = [work.gemms[0] for work in works]
    windows = [_window(gemm) for gemm in gemms]
    maps = Maps(*np.array([_sizes(g, w) for g, w in zip(gemms, windows, strict=True)], dtype=np.float64).T)
    into, weights = (
        np.array([w.role is role for w in windows]) for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
    )
    vector = float(product_flops_per_s(chip, Format.FP32)[0])
    peak = {f: float(product_flops_per_s(chip, f)[0]) for f in {g.operands for g in gemms}}
    rate = np.array([peak[g.operands] for g in gemms])
    channels, filters = maps.aligned(np.where(rate > vector, float(_ALIGNED), 1.0))
    tensor = (rate > vector) & (channels == maps.channels) & (filters == maps.filters)
    square = np.array([w.kernel == (3, 3) and w.strides == (1, 1) for w in windows])
    before = np.where(into, [g.c_bytes for g in gemms], [g.a_bytes for g in gemms])
    unread = np.where(into, 0.0, before * np.maximum(0.0, 1.0 - maps.taps / maps.steps))
    return Convolutions(
        maps=maps,
        input_gradient=into,
        weight_gradient=weights,
        winograd=square & (rate <= vector),
        tensor_cores=tensor,
        on_tensor_cores=rate > vector,
        element_bytes=before / (maps.groups * maps.batch * maps.channels * maps.inputs),
        moved_bytes=np.array([work.moved_bytes for work in works]) - unread,
        peak_flop_per_s=np.where(tensor, rate, np.minimum(rate, vector)),
        channels=channels,
        filters=filters,
    )


def padded_product(gemm: Gemm) -> Gemm:
    """The implicit product of a convolution on tensor cores: channels and filters of a group padded."""
    window = _window(gemm)
    taps = prod(window.kernel)

    def padded(side: int, unit: int) -> int:
        return -(-side // (unit * _ALIGNED)) * unit * _ALIGNED

    if window.role is Role.WEIGHT_GRADIENT:
        return replace(gemm, m=padded(gemm.m, taps), n=padded(gemm.n, 1))
    if window.role is Role.INPUT_GRADIENT:
        return replace(gemm, k=padded(gemm.k, 1), n=padded(gemm.n, taps))
    return replace(gemm, k=padded(gemm.k, taps), n=padded(gemm.n, 1))


def _window(gemm: Gemm) -> Window:
    if gemm.window is None:
        msg = f"the product ({gemm.m} x {gemm.k}) ({gemm.k} x {gemm.n}) is no convolution"
        raise ValueError(msg)
    return gemm.window


def _sizes(gemm: Gemm, window: Window) -> tuple[float, ...]:
    """Fields of `Maps` of one convolution; a product's sides say what they are by its pass."""
    taps, outputs = prod(window.kernel), prod(window.outputs)
    pixels, channels, filters = {
        Role.FORWARD: (gemm.m, gemm.k // taps, gemm.n),
        Role.INPUT_GRADIENT: (gemm.m, gemm.n // taps, gemm.k),
        Role.WEIGHT_GRADIENT: (gemm.k, gemm.m // taps, gemm.n),
    }[window.role]
    before, after = ((1, 1, *extents)[-2:] for extents in (window.inputs, window.outputs))
    sizes = (gemm.groups, pixels / outputs, channels, filters, taps, prod(window.strides))
    return *sizes, prod(window.inputs), outputs, *before, *after
