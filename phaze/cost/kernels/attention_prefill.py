"""Flash attention over whole sequences, forward and backward (FlashAttention-2, arXiv 2307.08691).

A block of threads takes a tile of queries of one head and walks over the keys that the mask leaves, tile by
tile; tiles that are masked as a whole are skipped. Blocks are dealt to the multiprocessors in waves. Per score,
the products and a share of the softmax follow each other (the rest of the softmax hides behind the products);
a block also pays for starting and for every row of queries. Where a kernel before rearranges queries, keys and
values, that comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.cost.kernels.attention_sizes import AttentionChip, AttentionSizes

_TILE = 128.0  # queries of a block, and the step in which masked keys are skipped
_STEP = 16.0  # rows of the smallest matrix instruction: shorter tiles are padded to it
_BACKWARD = (
    0.86  # efficiency beside forward's: 63 % of the A100's peak where forward reaches 73 % (arXiv 2307.08691)
)


@dataclass(frozen=True, slots=True)
class PrefillLaw:
    """Constants of one chip family.

    `efficiency`: share of the peak that the products reach while they run. `softmax`: share of the
    element-wise cycles that does not hide behind them. `block_cycles`, `row_cycles`: start of a block and
    every query row of it. `memory_efficiency`: share of the memory bandwidth that streams get.
    `cache_bytes_per_cycle`: bandwidth of the chip's cache per multiprocessor, for tensors that stay there.
    `launch_s`: launching it all.
    """

    efficiency: float
    softmax: float
    block_cycles: float
    row_cycles: float
    memory_efficiency: float
    cache_bytes_per_cycle: float
    launch_s: float


def prefill_s(sizes: AttentionSizes, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Seconds of each attention on an otherwise idle chip."""
    blocks = sizes.heads * np.ceil(sizes.queries / _TILE)
    compute = _compute_s(sizes, blocks, chip, law)
    rows = np.minimum(sizes.queries, _TILE)
    start = (law.block_cycles + law.row_cycles * rows) / chip.clock_hz
    compute = compute + np.maximum(blocks / chip.multiprocessors, 1.0) * start
    second_per_byte = _seconds_per_byte(sizes, chip, law)
    memory = sizes.moved_bytes * second_per_byte
    return law.launch_s + np.maximum(compute, memory) + sizes.staged_bytes * second_per_byte


def _compute_s(sizes: AttentionSizes, blocks: Floats, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Seconds of the busiest multiprocessor for the scores of its blocks."""
    rows = np.minimum(_padded(sizes.queries), _TILE)
    # of the tiles that the mask cuts, the hidden scores are computed too
    diagonal = np.where(sizes.visible < 1.0, (_TILE - 1.0) / 2, 0.0)
    keys = _padded(np.minimum(sizes.keys, sizes.visible * sizes.keys + diagonal))
    efficiency = law.efficiency * np.where(sizes.backward, _BACKWARD, 1.0)
    products = sizes.flop * chip.multiprocessors / (efficiency * chip.product_flop_per_s)
    softmax = law.softmax * sizes.cycles / (chip.alus * chip.clock_hz)
    waves = np.ceil(blocks / chip.multiprocessors)
    seconds: Floats = waves * rows * keys * (products + softmax)
    return seconds


def _seconds_per_byte(sizes: AttentionSizes, chip: AttentionChip, law: PrefillLaw) -> Floats:
    """Of the cache where all tensors are there, of the memory otherwise."""
    rate: Floats = np.where(sizes.cached, chip.cache_bytes_per_s(law), chip.stream_bytes_per_s(law))
    return 1.0 / rate


def _padded(rows: Floats) -> Floats:
    padded: Floats = _STEP * np.ceil(rows / _STEP)
    return padded
