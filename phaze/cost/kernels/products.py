"""Matrix products on chips of many small multiprocessors: tiles, waves, a shared cache and a launch.

A library cuts a product into output tiles, one block of threads each, and may cut the contraction too
(split-k). Blocks are dealt to the multiprocessors in waves; a multiprocessor reaches its full rate only
with enough output elements in flight; every block pays for filling its pipeline; a launch is paid once.
The law takes the fastest of a menu of tiles and splits, as a library's heuristic does.

The constants of a `SimtLaw` are fitted per chip family (`products.yaml`); everything else comes from
the hardware fields. Sizes are arrays over products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, peak_clock_hz, product_flops_per_s
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Gemm

Floats = NDArray[np.float64]

# Output tiles (rows, columns) that vendor libraries ship kernels for, and the cuts of the contraction.
_TILES = np.array(
    [
        *((16, 64), (16, 128), (32, 64), (64, 32), (32, 128), (128, 32), (64, 64)),
        *((64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128)),
    ],
    dtype=np.float64,
)
_SPLITS = np.array([1, 2, 4, 8, 16, 32], dtype=np.float64)
_PARTIAL_BYTES = 2 * 4  # an fp32 partial sum is written and read


@dataclass(frozen=True, slots=True)
class SimtChip:
    """What the law needs of a chip, at its boost clock."""

    multiprocessors: float
    clock_hz: float
    memory_bytes_per_s: float
    cache_bytes: float


@dataclass(frozen=True, slots=True)
class SimtLaw:
    """Constants of one chip family.

    `efficiency`: share of the peak of a multiprocessor with `full_elements` output elements in flight or
    more; with fewer it falls with the power `occupancy_power`. `sustained`: share of the peak of the whole
    chip that its power limit allows during products. `fill_k`: contraction steps that a block
    waits before its first product. `memory_efficiency`: share of the memory bandwidth that streams get,
    after `memory_latency_s`. `cache_share`: operands smaller than this share of the cache are found
    there. `cache_bytes_per_cycle`: cache bandwidth per multiprocessor. `overlap`: share of the shorter
    of compute and traffic times that does not hide behind the longest. `launch_s`, `split_s`: one kernel
    and the second one that adds partial sums.
    """

    efficiency: float
    full_elements: float
    occupancy_power: float
    sustained: float
    fill_k: float
    memory_efficiency: float
    memory_latency_s: float
    cache_share: float
    cache_bytes_per_cycle: float
    overlap: float
    launch_s: float
    split_s: float


@dataclass(frozen=True, slots=True)
class Products:
    """Products (m x k) (k x n), `groups` of each, arrays of one length.

    `operand_bytes`: all operands and results; `peak_flop_per_s`: of the chip for these operands' format.
    """

    groups: Floats
    m: Floats
    k: Floats
    n: Floats
    operand_bytes: Floats
    peak_flop_per_s: Floats

    @property
    def element_bytes(self) -> Floats:
        """Mean size of an operand element."""
        elements = self.groups * (self.m * self.k + self.k * self.n + self.m * self.n)
        return self.operand_bytes / elements


def products_s(products: Products, chip: SimtChip, law: SimtLaw) -> Floats:
    """Seconds of each product on an otherwise idle chip, launch included."""
    rows, columns = _TILES[:, 0][:, None, None], _TILES[:, 1][:, None, None]
    cuts = _SPLITS[None, :, None]
    blocks = products.groups * np.ceil(products.m / rows) * np.ceil(products.n / columns) * cuts
    depth = np.ceil(products.k / cuts)
    compute = _compute_s(blocks, depth, rows * columns, products.peak_flop_per_s, chip, law)
    cache = blocks * depth * (rows + columns) * products.element_bytes
    cache = cache + _PARTIAL_BYTES * products.groups * products.m * products.n * (cuts - 1)
    cache = cache / (chip.multiprocessors * chip.clock_hz * law.cache_bytes_per_cycle)
    memory = memory_s(products.operand_bytes, chip, law)
    longest = np.maximum(np.maximum(compute, cache), memory)
    seconds = longest + law.overlap * (compute + cache + memory - longest) + law.split_s * (cuts > 1)
    best: Floats = seconds.reshape(-1, len(products.m)).min(axis=0)
    return law.launch_s + best


def memory_s(moved_bytes: Floats, chip: SimtChip, law: SimtLaw) -> Floats:
    """Seconds to stream tensors from memory; nothing for those that stay in the cache between kernels."""
    streamed = moved_bytes / (law.memory_efficiency * chip.memory_bytes_per_s) + law.memory_latency_s
    return np.where(moved_bytes < law.cache_share * chip.cache_bytes, 0.0, streamed)


def _compute_s(
    blocks: Floats, depth: Floats, area: Floats, peak_flop_per_s: Floats, chip: SimtChip, law: SimtLaw
) -> Floats:
    """Seconds of the busiest multiprocessor, or of all at the rate that the power limit sustains."""
    waves = np.ceil(blocks / chip.multiprocessors)
    together = np.minimum(waves, np.maximum(1.0, np.floor(2.0 * law.full_elements / area)))
    occupancy = np.minimum(1.0, together * area / law.full_elements) ** law.occupancy_power
    one = peak_flop_per_s / chip.multiprocessors * law.efficiency * occupancy
    busiest = waves * (depth + law.fill_k) * area * 2.0 / one
    sustained = blocks * depth * area * 2.0 / (law.sustained * peak_flop_per_s)
    return np.maximum(busiest, sustained)


def simt_chip(chip: ArchitectureTable) -> SimtChip:
    """The fields of a chip, a table of one, that the law needs."""
    return SimtChip(
        multiprocessors=float(chip["vector_cores"][0]),
        clock_hz=float(peak_clock_hz(chip)[0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
        cache_bytes=float(chip["global_buffer_bytes"][0]),
    )


def simt_products_s(gemms: Sequence[Gemm], chip: ArchitectureTable, law: SimtLaw) -> Floats:
    """Seconds of each product on a chip, a table of one, (G,)."""
    groups, m, k, n = np.array([(g.groups, g.m, g.k, g.n) for g in gemms], dtype=np.float64).T
    operands = np.array([g.a_bytes + g.b_bytes + g.c_bytes for g in gemms])
    peak = {f: float(product_flops_per_s(chip, f)[0]) for f in {g.operands for g in gemms}}
    rates = np.array([peak[g.operands] for g in gemms])
    return products_s(Products(groups, m, k, n, operands, rates), simt_chip(chip), law)
