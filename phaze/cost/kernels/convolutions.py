"""Convolutions on chips of many small multiprocessors: sizes as arrays, and the fastest of a library's algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, multiprocessors, product_flops_per_s
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


def held_by_tensor_cores(works: Sequence[Work], chip: ArchitectureTable) -> Flags:
    """Products that the tensor cores of a chip, a table of one, have, but its vector ALUs are as fast at, (O,)."""
    vector = float(product_flops_per_s(chip, Format.FP32)[0])
    lacking = {Format.FP32} | ({Format.TF32} if np.isnan(chip["tf32_rate"][0]) else set())
    formats = {w.gemms[0].operands for w in works} - lacking
    held = {f for f in formats if float(product_flops_per_s(chip, f)[0]) <= vector}
    return np.array([w.gemms[0].operands in held for w in works]) & ~np.bool_(chip["vector_products"][0])


def convolutions(works: Sequence[Work], chip: ArchitectureTable, matrix: bool = False) -> Convolutions:
    """Arrays of convolutions on a chip, a table of one, on its faster units. Raises ValueError for others.

    `matrix`: on its tensor cores even where the vector ALUs are faster.
    """
    gemms = [work.gemms[0] for work in works]
    windows = [_window(gemm) for gemm in gemms]
    maps = Maps(*np.array([_sizes(g, w) for g, w in zip(gemms, windows, strict=True)], dtype=np.float64).T)
    into, weights = (
        np.array([w.role is role for w in windows]) for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
    )
    vector = float(product_flops_per_s(chip, Format.FP32)[0])
    peak = {f: float(product_flops_per_s(chip, f)[0]) for f in {g.operands for g in gemms}}
    rate = np.array([peak[g.operands] for g in gemms])
    fast = (rate > vector) | matrix
    channels, filters = maps.aligned(np.where(fast, float(_ALIGNED), 1.0))
    tensor = fast & (channels == maps.channels) & (filters == maps.filters)
    square = np.array([w.kernel == (3, 3) and w.strides == (1, 1) for w in windows])
    before = np.where(into, [g.c_bytes for g in gemms], [g.a_bytes for g in gemms])
    unread = np.where(into, 0.0, before * np.maximum(0.0, 1.0 - maps.taps / maps.steps))
    return Convolutions(
        maps=maps,
        input_gradient=into,
        weight_gradient=weights,
        winograd=square & ~fast,
        tensor_cores=tensor,
        on_tensor_cores=fast,
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


# Tiles (pixels, filters) of the kernels that cuDNN reports, the cuts of a contraction over pixels, and the
# patches of one image that a block of the Winograd kernel computes.
_TILES = ((128, 32), (128, 64), (128, 128))
_TRANSFORMED_TILES = ((32, 128), (64, 64), (128, 32))
_PATCH_TILES = ((128, 64), (128, 128))
_CUTS = (1, 4, 16, 64)
_PATCH = (8, 16)
_PARTIAL_BYTES = 2 * 4  # an fp32 partial sum is written and read
_SMALL, _LARGE = 2, 4  # outputs of a Winograd tile along each axis, inside one kernel and through memory


@dataclass(frozen=True, slots=True)
class ConvolutionLaw:
    """Constants of one chip family.

    `efficiency`, `patch_efficiency`, `transformed_efficiency`, `direct_efficiency`: share of the peak that
    implicit and explicit products, Winograd inside one kernel and through memory, and direct convolutions
    reach; `input_gradient`, `weight_gradient`: of that, the share of those kernels; `tensor_share`: of tensor
    cores. `step_waste`: share of the products with pixels between windows that kernels do not skip.
    `full_elements`: output elements that a multiprocessor needs in flight; with fewer its rate falls with the
    power `occupancy_power`. `fill_k`, `patch_fill_k`: steps of the contraction that a block waits before its
    first product. `memory_efficiency`: share of the memory bandwidth; `transform_share`: part of the
    transforms' traffic that the cache does not serve. `overlap`: share of the shorter of compute and traffic
    times that does not hide behind the longer. `launch_s`: the operator, `kernel_s`: each further kernel.
    `as_products`: on tensor cores the library also has the kernels of products, channels padded.
    """

    efficiency: float
    patch_efficiency: float
    transformed_efficiency: float
    direct_efficiency: float
    input_gradient: float
    weight_gradient: float
    tensor_share: float
    step_waste: float
    full_elements: float
    occupancy_power: float
    fill_k: float
    patch_fill_k: float
    memory_efficiency: float
    transform_share: float
    overlap: float
    launch_s: float
    kernel_s: float
    as_products: bool = False


@dataclass(frozen=True, slots=True)
class ConvolutionChip:
    """Figures of a chip that the law needs, beside the rates of its products."""

    multiprocessors: float
    memory_bytes_per_s: float
    vector_flop_per_s: float


def convolution_chip(chip: ArchitectureTable) -> ConvolutionChip:
    """The fields of a chip, a table of one, that the law needs."""
    memory, vector = hbm_bandwidth_bytes_per_s(chip), product_flops_per_s(chip, Format.FP32)
    return ConvolutionChip(float(multiprocessors(chip)[0]), float(memory[0]), float(vector[0]))


def convolutions_s(rows: Convolutions, chip: ConvolutionChip, law: ConvolutionLaw) -> Floats:
    """Seconds of each convolution on an otherwise idle chip, launch included."""
    menu = _Menu(rows, chip, law)
    products = (menu.implicit_s(), menu.explicit_s(), menu.direct_s())
    best: Floats = np.minimum.reduce((*products, menu.patches_s(), menu.transformed_s()))
    return law.launch_s + best


@dataclass(frozen=True, slots=True)
class _Menu:
    """The algorithms, seconds (rows,) each without the launch; infinite where one is not to be had."""

    rows: Convolutions
    chip: ConvolutionChip
    law: ConvolutionLaw

    def implicit_s(self) -> Floats:
        """Tiles of pixels by filters."""
        share = self.law.efficiency * self._role()
        compute = self._tiled_s(self.rows.gathered(self.law.step_waste), share, self.law.fill_k, _TILES)
        return self._together(compute, self._stream_s(self.rows.moved_bytes))

    def explicit_s(self) -> Floats:
        """The same on columns in memory; a gradient of columns is added to a map set to zero."""
        share = self.law.efficiency * self._role()
        compute = self._tiled_s(self.rows.scattered(), share, self.law.fill_k, _TILES)
        columns = self._stream_s(self.rows.column_bytes)
        zeros = self._stream_s(np.where(self.rows.input_gradient, self.rows.map_bytes, 0.0))
        product = self._together(compute, self._stream_s(self.rows.moved_bytes) + columns)
        return product + columns + zeros + self.law.kernel_s

    def direct_s(self) -> Floats:
        """Every multiplication for itself on the vector ALUs."""
        rate = self.law.direct_efficiency * self.chip.vector_flop_per_s
        compute = 2.0 * self.rows.direct_macs / rate
        return self._together(compute, self._stream_s(self.rows.moved_bytes))

    def patches_s(self) -> Floats:
        """Winograd inside one kernel: blocks of one patch by filters."""
        rows, maps, (patch_high, patch_wide) = self.rows, self.rows.maps, _PATCH
        high, wide, read, written = rows.winograd_sides
        patches = maps.groups * maps.batch * np.ceil(high / patch_high) * np.ceil(wide / patch_wide)
        pixels = np.full_like(patches, patch_high * patch_wide)
        product = Products(patches, pixels, read * ((_SMALL + 2) / _SMALL) ** 2, written)
        compute = self._tiled_s(product, self.law.patch_efficiency, self.law.patch_fill_k, _PATCH_TILES)
        seconds = self._together(compute, self._stream_s(rows.moved_bytes))
        return np.where(rows.winograd & ~rows.weight_gradient, seconds, np.inf)

    def transformed_s(self) -> Floats:
        """Winograd through memory: transforms of map, weights and result around one product per element."""
        rows, maps, points = self.rows, self.rows.maps, (_LARGE + 2) ** 2
        high, wide, read, written = rows.winograd_sides
        tiles = maps.batch * np.ceil(high / _LARGE) * np.ceil(wide / _LARGE)
        m, k = np.where(rows.weight_gradient, (read, tiles), (tiles, read))
        product = Products(maps.groups * points, m, k, written)
        compute = self._tiled_s(product, self.law.transformed_efficiency, self.law.fill_k, _TRANSFORMED_TILES)
        domain = rows.element_bytes * points * maps.groups * (tiles * (read + written) + read * written)
        transforms = self.law.transform_share * self._stream_s(rows.moved_bytes + domain)
        seconds = self._together(compute, self._stream_s(domain)) + transforms + 2.0 * self.law.kernel_s
        return np.where(rows.winograd, seconds, np.inf)

    def _tiled_s(
        self, p: Products, share: Floats | float, fill_k: float, tiles: tuple[tuple[int, int], ...]
    ) -> Floats:
        """Seconds of products in waves of blocks, the fastest tile and cut of each."""
        law, sizes = self.law, np.array(tiles, dtype=np.float64)
        high, wide = sizes[:, 0][:, None, None], sizes[:, 1][:, None, None]
        cuts = np.where(self.rows.weight_gradient, np.array(_CUTS, dtype=np.float64)[:, None], 1.0)
        waves = np.ceil(
            p.groups * np.ceil(p.m / high) * np.ceil(p.n / wide) * cuts / self.chip.multiprocessors
        )
        area = high * wide
        together = np.minimum(waves, np.maximum(1.0, np.floor(law.full_elements / area)))
        occupancy = np.minimum(1.0, together * area / law.full_elements) ** law.occupancy_power
        rate = share * self.rows.peak_flop_per_s / self.chip.multiprocessors * occupancy
        seconds = 2.0 * waves * (np.ceil(p.k / cuts) + fill_k) * area / rate
        partial = self._stream_s(_PARTIAL_BYTES * p.groups * p.m * p.n) + law.kernel_s
        best: Floats = (seconds + np.where(cuts > 1, partial, 0.0)).reshape(-1, len(p.m)).min(axis=0)
        return best

    def _role(self) -> Floats:
        """Share of their rate that kernels of the two gradients and of tensor cores reach."""
        rows, law = self.rows, self.law
        role = np.where(rows.input_gradient, law.input_gradient, 1.0)
        role = np.where(rows.weight_gradient, law.weight_gradient, role)
        return np.where(rows.tensor_cores, law.tensor_share * role, role)

    def _stream_s(self, moved_bytes: Floats) -> Floats:
        return moved_bytes / (self.law.memory_efficiency * self.chip.memory_bytes_per_s)

    def _together(self, compute: Floats, memory: Floats) -> Floats:
        return np.maximum(compute, memory) + self.law.overlap * np.minimum(compute, memory)
