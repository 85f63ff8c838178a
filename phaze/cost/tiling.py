"""Traffic of a tiled matrix product between a large memory and a buffer, at the best tiling.

The product is cut into tiles; the buffer holds one tile of each operand plus the next one on its way
(double buffering), and fp32 accumulators for the output tile. Which operand is re-read how often
depends on the tile sides and on the loop order. The search is one-dimensional: for every number of
tiles along one side the capacity gives the best length of the other in closed form, so that all
buffer sizes are searched at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.workload.work import Gemm

Floats = NDArray[np.float64]

ACCUMULATOR_BYTES = 4  # fp32 partial sums, as in every bf16 matrix unit (definitions: bf16 compute)
_EXACT_COUNTS = (
    32  # tile counts tried one by one; beyond, in steps of 4 %: at most that much of one term is lost
)
_STEP = 1.04


@dataclass(frozen=True, slots=True)
class _Side:
    """One group of a product as the search sees it: extents and bytes per element."""

    m: int
    k: int
    n: int
    a: float
    b: float
    c: float

    def swapped(self) -> _Side:
        """The transposed product: b^T a^T."""
        return _Side(self.n, self.k, self.m, self.b, self.a, self.c)


def compulsory_bytes(gemm: Gemm) -> float:
    """Every operand moved once: what no tiling can go below."""
    return gemm.a_bytes + gemm.b_bytes + gemm.c_bytes


def traffic_bytes(gemm: Gemm, capacity_bytes: ArrayLike, depth: ArrayLike = 1) -> Floats:
    """Bytes moved between memory and a buffer of the given size, at the best tiling and loop order.

    `capacity_bytes` and `depth` broadcast to the shape of the result; `depth` is the least contraction
    length of a tile (the rows of the array that it feeds). Never below `compulsory_bytes`, equal to it
    where the product fits, never larger for a larger buffer. A buffer too small for any tile streams
    single elements past each other.
    """
    capacity, least = np.broadcast_arrays(
        np.asarray(capacity_bytes, dtype=np.float64), np.asarray(depth, dtype=np.float64)
    )
    one = _Side(
        gemm.m,
        gemm.k,
        gemm.n,
        gemm.a_bytes / (gemm.groups * gemm.m * gemm.k),
        gemm.b_bytes / (gemm.groups * gemm.k * gemm.n),
        gemm.c_bytes / (gemm.groups * gemm.m * gemm.n),
    )
    column, shallow = capacity.reshape(-1, 1), np.minimum(least.reshape(-1, 1), gemm.k)
    best = np.full(capacity.size, one.a * one.m * one.k * one.n + one.b * one.m * one.k * one.n)
    for side in (one, one.swapped()):
        tiles = _counts(side.m)
        best = np.minimum(best, _output_stationary(side, column, shallow, tiles))
        best = np.minimum(best, _left_stationary(side, column, shallow, tiles))
        best = np.minimum(best, _left_resident(side, column[:, 0]))
    result: Floats = gemm.groups * (best + one.c * one.m * one.n)
    return np.maximum(result, compulsory_bytes(gemm)).reshape(capacity.shape)


@lru_cache(maxsize=1024)
def _counts(extent: int) -> Floats:
    """Numbers of tiles along a side worth trying: all small ones, then in geometric steps."""
    if extent <= _EXACT_COUNTS:
        return np.arange(1.0, extent + 1)
    steps = int(np.log(extent / _EXACT_COUNTS) / np.log(_STEP))
    far = np.ceil(_EXACT_COUNTS * _STEP ** np.arange(1, steps + 1))
    return np.unique(np.concatenate([np.arange(1.0, _EXACT_COUNTS + 1), far, [extent]]))


def _output_stationary(side: _Side, capacity: Floats, depth: Floats, tiles: Floats) -> Floats:
    """Re-reads where an output tile stays until it is complete: a for every column of tiles, b for every row.

    Both operand tiles are as shallow as allowed. Returns (sizes,) bytes without the result's own.
    """
    height = np.ceil(side.m / tiles)
    room = capacity - 2 * side.a * height * depth
    width = np.floor(room / (2 * side.b * depth + ACCUMULATOR_BYTES * height))
    columns = np.ceil(side.n / np.clip(width, 1, side.n))
    bytes_ = side.a * side.m * side.k * columns + side.b * side.k * side.n * tiles
    best: Floats = np.where(width >= 1, bytes_, np.inf).min(axis=1)
    return best


def _left_stationary(side: _Side, capacity: Floats, depth: Floats, tiles: Floats) -> Floats:
    """Re-reads where a tile of a stays while all of b's columns pass it, one at a time.

    a is read once, b once per row of tiles; where the contraction is cut, partial sums travel in fp32
    both ways for every cut but the last, and are double-buffered like the operands.
    """
    height = np.ceil(side.m / tiles)
    whole = 2 * (side.a * height + side.b) * side.k + ACCUMULATOR_BYTES * height <= capacity
    room = capacity - 2 * ACCUMULATOR_BYTES * height
    length = np.where(whole, side.k, np.floor(room / (2 * (side.a * height + side.b))))
    cuts = np.ceil(side.k / np.clip(length, 1, side.k))
    partial = 2 * ACCUMULATOR_BYTES * side.m * side.n * (cuts - 1)
    bytes_ = side.a * side.m * side.k + side.b * side.k * side.n * tiles + partial
    best: Floats = np.where(length >= depth, bytes_, np.inf).min(axis=1)
    return best


def _left_resident(side: _Side, capacity: Floats) -> Floats:
    """Re-reads where all of a stays in the buffer, without a second copy, while b's columns pass it once."""
    footprint = side.k * (side.a * side.m + 2 * side.b) + ACCUMULATOR_BYTES * side.m
    return np.where(footprint <= capacity, side.a * side.m * side.k + side.b * side.k * side.n, np.inf)
