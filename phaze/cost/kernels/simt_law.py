"""Constants of the tile law of matrix products (`products.py`), one set per chip family and kind of arithmetic.

Tensor cores and vector ALUs run different kernels of the libraries, so each has a file of its own: 16 and
8 bits wide operands (`products.yaml`), and fp32 ones (`products_fp32.yaml`).
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze.cost.kernels.fitted import Constants
from phaze.workload.work import Format

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
    chip allows over the peak at its sustained clock, at most the peak; 8-bit operands, which fill it with more
    operations, reach `narrow_sustained` of that share. `fill_k`: contraction steps that a block waits before its
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
