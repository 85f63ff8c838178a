"""Matrix products on chips of many small multiprocessors: tiles, waves, a shared cache, constants by chip family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.kernels.fitted_constants import Constants
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    peak_clock_hz,
    product_flops_per_s,
    tile_holders,
)
from phaze.hardware.silicon.dvfs import product_clock_hz
from phaze.workload.work import Format, Gemm

Tiles = tuple[tuple[int, int], ...]
"""Output tiles (rows, columns) of a library's kernels."""

TENSOR_TILES: Tiles = (
    *((16, 64), (16, 128), (32, 64), (64, 32), (32, 128), (128, 32), (64, 64)),
    *((64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128)),
)


@dataclass(frozen=True, slots=True)
class SimtLaw:
    """Constants of one chip family.

    `efficiency`: share of the peak of a multiprocessor with `full_elements` output elements in flight or
    more; with fewer it falls with the power `occupancy_power`. `sustained`: rate that the power limit of the
    chip allows over the peak at the clock that products of the format sustain, at most the peak; 8-bit operands reach
    `narrow_sustained` of that share, and 4-bit ones `fp4_sustained`, where it is told.
    `fill_k`: contraction steps that a block waits before its
    first product. `memory_efficiency`: share of the memory bandwidth that streams get, after `memory_latency_s`.
    `cache_share`: operands smaller than this share of the cache are found there. `reread`: share of what blocks
    load that comes from memory where the cache holds none of it and the rows of the operands, along the
    contraction, are longer than `long_row_bytes`, so that neighbours no longer share pages.
    `cache_bytes_per_flop`: what multiprocessors load per operation at their peak. `overlap`: share of the
    shorter of compute and traffic times that does not hide behind the longest. `launch_s`, `split_s`: one kernel
    and the second one that adds partial sums. `tiles`, `group_tiles`: the library's kernels for one product and
    for groups (none: the same); `cuts` of the contraction. `tile_of_one_group`: the library chooses for a group
    as if it were alone.
    """

    efficiency: float
    full_elements: float
    occupancy_power: float
    sustained: float
    fill_k: float
    memory_efficiency: float
    memory_latency_s: float
    cache_share: float
    cache_bytes_per_flop: float
    overlap: float
    launch_s: float
    split_s: float
    narrow_sustained: float = 1.0
    fp4_sustained: float | None = None
    reread: float = 0.0
    long_row_bytes: float = 0.0
    tiles: Tiles = TENSOR_TILES
    group_tiles: Tiles = ()
    cuts: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    tile_of_one_group: bool = False


def simt_law(operands: Format | None, constants: Constants) -> SimtLaw | None:
    """Constants for operands of a format; None: the tensor cores' own."""
    file = "products_fp32.yaml" if operands is Format.FP32 else "products.yaml"
    return constants.law(SimtLaw, file)


_PARTIAL_BYTES = 2 * 4  # an fp32 partial sum is written and read
_TOGETHER = 128  # products costed at once, so that the arrays of all choices stay small and are reused
_NARROW = (Format.FP4, Format.FP8, Format.INT8)
_SUMMED = (None, Format.FP4, Format.FP8, Format.FP16, Format.BF16, Format.TF32)  # in fp32, by tensor cores


@dataclass(frozen=True, slots=True)
class SimtChip:
    """Figures of a chip that the law needs."""

    multiprocessors: float
    memory_bytes_per_s: float
    cache_bytes: float


@dataclass(frozen=True, slots=True)
class Products:
    """Products (m x k) (k x n), `groups` of each, arrays of one length.

    `operand_bytes`: all operands and results; `peak_flop_per_s`: of the chip for these operands' format;
    `sustained`: share of that peak which its power limit allows.
    """

    groups: Floats
    m: Floats
    k: Floats
    n: Floats
    operand_bytes: Floats
    peak_flop_per_s: Floats
    sustained: Floats

    @property
    def element_bytes(self) -> Floats:
        """Mean size of an operand element."""
        elements = self.groups * (self.m * self.k + self.k * self.n + self.m * self.n)
        return self.operand_bytes / elements

    def take(self, rows: NDArray[np.intp]) -> Products:
        """The products at the given positions."""
        return Products(
            self.groups[rows],
            self.m[rows],
            self.k[rows],
            self.n[rows],
            self.operand_bytes[rows],
            self.peak_flop_per_s[rows],
            self.sustained[rows],
        )

    def alone(self) -> Products:
        """One group of each."""
        one = np.ones_like(self.groups)
        own = self.operand_bytes / self.groups
        return Products(one, self.m, self.k, self.n, own, self.peak_flop_per_s, self.sustained)


def products_s(products: Products, chip: SimtChip, law: SimtLaw) -> Floats:
    """Seconds of each product on an otherwise idle chip, launch included."""
    seconds = np.empty(len(products.m))
    several = products.groups > 1
    for batched, tiles in ((False, law.tiles), (True, law.group_tiles or law.tiles)):
        for rows in _portions(np.flatnonzero(several == batched)):
            seconds[rows] = law.launch_s + _fastest_s(products.take(rows), chip, law, tiles)
    return seconds


def _portions(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    for start in range(0, len(rows), _TOGETHER):
        yield rows[start : start + _TOGETHER]


def _fastest_s(products: Products, chip: SimtChip, law: SimtLaw, tiles: Tiles) -> Floats:
    """Seconds in the tile and cut that the library takes, (P,)."""
    seconds = _choices_s(products, chip, law, tiles)
    judged = _choices_s(products.alone(), chip, law, tiles) if law.tile_of_one_group else seconds
    taken: Floats = np.take_along_axis(seconds, judged.argmin(axis=0)[None], axis=0)[0]
    return taken


def _choices_s(products: Products, chip: SimtChip, law: SimtLaw, tiles: Tiles) -> Floats:
    """Seconds for every tile and cut, (tiles x cuts, P)."""
    sides = np.array(tiles, dtype=np.float64)
    rows, columns = sides[:, 0][:, None, None], sides[:, 1][:, None, None]
    cuts = np.array(law.cuts, dtype=np.float64)[None, :, None]
    blocks = products.groups * np.ceil(products.m / rows) * np.ceil(products.n / columns) * cuts
    depth = np.ceil(products.k / cuts)
    compute = _compute_s(products, chip, law, blocks, depth, rows * columns)
    loaded = blocks * depth * (rows + columns) * products.element_bytes
    partial = (_PARTIAL_BYTES * products.groups * products.m * products.n) * (cuts - 1)
    cache = (loaded + partial) / (law.cache_bytes_per_flop * products.peak_flop_per_s)
    memory = _memory_s(products, loaded, chip, law)
    longest = np.maximum(np.maximum(compute, cache), memory)
    seconds = longest + law.overlap * (compute + cache + memory - longest) + law.split_s * (cuts > 1)
    flat: Floats = seconds.reshape(-1, len(products.m))
    return flat


def _compute_s(
    products: Products, chip: SimtChip, law: SimtLaw, blocks: Floats, depth: Floats, area: Floats
) -> Floats:
    """Seconds of the busiest multiprocessor, or of all at the rate that the power limit sustains."""
    waves = np.ceil(blocks / chip.multiprocessors)
    peak = products.peak_flop_per_s
    one = peak / chip.multiprocessors * law.efficiency
    busiest = waves * (depth + law.fill_k) * (area * 2.0) / (one * _occupancy(waves, area, law))
    sustained = blocks * depth * (area * 2.0 / products.sustained / peak)
    return np.maximum(busiest, sustained)


def _occupancy(waves: Floats, area: Floats, law: SimtLaw) -> Floats:
    """Share of its rate that a multiprocessor reaches, by the blocks it holds at once; looked up, not raised."""
    room = np.maximum(1.0, np.floor(2.0 * law.full_elements / area))
    held = np.arange(1.0, room.max() + 1.0) * area[:, 0]
    shares = np.minimum(1.0, held / law.full_elements) ** law.occupancy_power
    first = np.arange(len(area), dtype=np.intp)[:, None, None] * shares.shape[1] - 1
    together = np.minimum(waves, room).astype(np.intp)
    found: Floats = shares.ravel()[first + together]
    return found


def _memory_s(products: Products, loaded: Floats, chip: SimtChip, law: SimtLaw) -> Floats:
    """Seconds to stream from memory; nothing for operands that stay in the cache between kernels.

    What blocks load again is missed by the cache the more, the less of the operands it holds.
    """
    operands = products.operand_bytes
    moved = operands
    if law.reread:
        row = (products.k * products.element_bytes) ** 2
        missed = operands / (operands + chip.cache_bytes) * row / (row + law.long_row_bytes**2)
        moved = operands + law.reread * missed * loaded
    cold = operands >= law.cache_share * chip.cache_bytes
    return cold * (moved / (law.memory_efficiency * chip.memory_bytes_per_s) + law.memory_latency_s)


def _limited(operands: Format | None, law: SimtLaw) -> float:
    """Share of the sustained rate that operands of a format reach."""
    if operands is Format.FP4 and law.fp4_sustained is not None:
        return law.fp4_sustained
    return law.narrow_sustained if operands in _NARROW else 1.0


def simt_chip(chip: ArchitectureTable) -> SimtChip:
    """The fields of a chip, a table of one, that the law needs."""
    return SimtChip(
        multiprocessors=float(tile_holders(chip)[0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
        cache_bytes=float(chip["global_buffer_bytes"][0]),
    )


def sustained_clock(chip: ArchitectureTable, operands: Format | None) -> float:
    """Clock that products of a format sustain on a chip, a table of one, over that of its peak rate."""
    return float(product_clock_hz(chip, operands)[0] / peak_clock_hz(chip)[0])


def simt_products_s(gemms: Sequence[Gemm], chip: ArchitectureTable, law: SimtLaw) -> Floats:
    """Seconds of each product on a chip, a table of one, (G,).

    Where fp32 sums keep only a share of the multipliers busy, kernels are those of the whole tensor cores, held
    back to that share as by a power limit.
    """
    groups, m, k, n = np.array([(g.groups, g.m, g.k, g.n) for g in gemms], dtype=np.float64).T
    operands = np.array([g.a_bytes + g.b_bytes + g.c_bytes for g in gemms])
    peak = {f: float(product_flops_per_s(chip, f)[0]) for f in {g.operands for g in gemms}}
    rates = np.array([peak[g.operands] for g in gemms])
    figures = simt_chip(chip)
    clocks = {f: sustained_clock(chip, f) for f in peak}
    shares = np.array([_limited(g.operands, law) for g in gemms])
    summed = np.array([chip["fp32_sum_share"][0] if g.operands in _SUMMED else 1.0 for g in gemms])
    held = np.array([law.sustained * clocks[g.operands] for g in gemms])
    sustained = np.minimum(np.minimum(1.0, held) * shares, summed)
    return products_s(Products(groups, m, k, n, operands, rates / summed, sustained), figures, law)
