"""Convolutions on chips of many small multiprocessors: the fastest of the algorithms that libraries choose from.

*Implicit product*: output tiles of pixels by filters, the columns of the feature map gathered on the fly; the
gradient of the input runs over all its pixels, so that steps between windows waste products. *Explicit
product*: the columns are written to memory (those of the gradient are added up from there). *Winograd* (Lavin
& Gray, CVPR 2016) for windows of 3 x 3 without steps on vector ALUs: 2.25 times fewer multiplications inside
one kernel whose blocks are patches of one image, or 4 times fewer as 36 products between transforms through
memory. *Direct*: no tiles, for maps of few channels and for groups. The gradient of the weights contracts
over pixels, which libraries cut among blocks.

The constants of a `ConvolutionLaw` are fitted per chip family (`convolution.yaml`); everything else comes
from the hardware fields. Sizes are arrays over convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.cost.kernels.windows import Convolutions, Products
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, product_flops_per_s
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Format

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
    """What the law needs of a chip beside the rates of its products."""

    multiprocessors: float
    memory_bytes_per_s: float
    vector_flop_per_s: float


def convolution_chip(chip: ArchitectureTable) -> ConvolutionChip:
    """The fields of a chip, a table of one, that the law needs."""
    memory, vector = hbm_bandwidth_bytes_per_s(chip), product_flops_per_s(chip, Format.FP32)
    return ConvolutionChip(float(chip["vector_cores"][0]), float(memory[0]), float(vector[0]))


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
