"""Traffic of a tiled matrix product between a large memory and a buffer, at the best tiling.

The product is cut into tiles; the buffer holds one tile of each operand plus the next one on its way
(double buffering), and fp32 accumulators for the output tile. Which operand is re-read how often
depends on the tile sides and on the loop order. The search is one-dimensional: for every number of
tiles along one side the capacity gives the best length of the other in closed form, so that all
buffer sizes are searched at once. What is left out of the numbers of tiles costs at most 1 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats, Rows
from phaze.workload.work import Gemm

ACCUMULATOR_BYTES = 4  # fp32 partial sums, as in every bf16 matrix unit (definitions: bf16 compute)
_NO_ROOM = 1e-9  # stands for a tile side of nothing: so many tiles that no such tiling is the best
_STEP = 1.01  # between numbers of tiles that are tried: at most that much of one term is lost


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


Search = Callable[[_Side, Floats, Floats], Floats]
"""(side, capacities (S, 1), least contraction lengths (S, 1)) -> bytes (S,)."""


def compulsory_bytes(gemm: Gemm) -> float:
    """Every operand moved once: what no tiling can go below."""
    return gemm.a_bytes + gemm.b_bytes + gemm.c_bytes


def traffic_bytes(gemm: Gemm, capacity_bytes: ArrayLike, depth: ArrayLike = 1) -> Floats:
    """Traffic of a tiled product: bytes between memory and a buffer of a given size, at the best tiling and loop order.

    A tile of h x w outputs that stays reads a m k ceil(n / w) + b k n ceil(m / h), rows that stay a m k + b k n
    ceil(m / h), and both c m n for the result: a, b, c are bytes per element (derived in
    docs/reference/formulas/operators.md).

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
    sizes, shallow = capacity.ravel(), np.minimum(least.ravel(), gemm.k)
    again = _least_reads(one, sizes, shallow)
    result: Floats = gemm.groups * (again + one.c * one.m * one.n)
    return np.maximum(result, compulsory_bytes(gemm)).reshape(capacity.shape)


def _least_reads(side: _Side, capacity: Floats, depth: Floats) -> Floats:
    """Bytes beside the result's own, at the best tiling and loop order, per buffer size."""
    once = side.k * (side.a * side.m + side.b * side.n)
    sides = side, side.swapped()
    fits = min(_resident_bytes(s) for s in sides) <= capacity
    best = np.where(fits, once, (side.a + side.b) * side.m * side.k * side.n)
    _improve(best, np.flatnonzero(~fits), capacity, depth, _output_stationary, min(sides, key=lambda s: s.m))
    for left in sides:
        best = np.minimum(best, _left_stationary(left, capacity))
    worth = np.flatnonzero(best > _least_cut_bytes(side, capacity))
    for left in sides:
        _improve(best, worth, capacity, depth, _left_stationary_cut, left)
    return best


def _improve(best: Floats, where: Rows, capacity: Floats, depth: Floats, search: Search, side: _Side) -> None:
    """Lower `best` in place where a search over tiles, made for these buffer sizes only, finds less."""
    if len(where):
        best[where] = np.minimum(best[where], search(side, capacity[where, None], depth[where, None]))


@lru_cache(maxsize=1024)
def _counts(extent: int) -> Floats:
    """Numbers of tiles along a side worth trying: those that some tile length gives, in steps of at most 1 %."""
    lengths = np.arange(1, int(np.sqrt(extent)) + 1)
    many = -(-extent // lengths)  # of tiles of each short length
    few = np.arange(1, many[-1] + 1)
    possible = np.unique(np.concatenate([-(-extent // -(-extent // few)), many])).astype(np.float64)
    tried, last = [], 0
    while last < len(possible):
        # The largest within a step stands for those before it: more tiles of less height fit as well.
        last = max(int(np.searchsorted(possible, _STEP * possible[last], side="right")), last + 1)
        tried.append(possible[last - 1])
    return np.array(tried)


def _output_stationary(side: _Side, capacity: Floats, depth: Floats) -> Floats:
    """Re-reads where an output tile stays until it is complete: a for every column of tiles, b for every row.

    Both operand tiles are as shallow as allowed. Returns (sizes,) bytes without the result's own.
    """
    tiles = _counts(side.m)
    height = np.ceil(side.m / tiles)
    room = capacity - 2 * side.a * height * depth
    width = np.floor(room / (2 * side.b * depth + ACCUMULATOR_BYTES * height))
    columns = np.ceil(side.n / np.maximum(width, _NO_ROOM))
    best: Floats = (side.a * side.m * side.k * columns + side.b * side.k * side.n * tiles).min(axis=1)
    return best


def _left_stationary(side: _Side, capacity: Floats) -> Floats:
    """Re-reads where rows of a, as deep as the contraction, stay while all of b's columns pass them one at a time.

    a is read once, b once per block of rows. Returns (sizes,) bytes.
    """
    room = capacity - 2 * side.b * side.k
    height = np.floor(room / (2 * side.a * side.k + ACCUMULATOR_BYTES))
    tiles = np.ceil(side.m / np.clip(height, 1, side.m))
    return np.where(height >= 1, side.k * (side.a * side.m + side.b * side.n * tiles), np.inf)


def _left_stationary_cut(side: _Side, capacity: Floats, depth: Floats) -> Floats:
    """Re-reads where rows of a stay while b's columns pass, with the contraction cut.

    Partial sums travel in fp32 both ways for every cut but the last, and are double-buffered like the operands.
    """
    tiles = _counts(side.m)
    height = np.ceil(side.m / tiles)
    room = capacity - 2 * ACCUMULATOR_BYTES * height
    length = np.floor(room / (2 * (side.a * height + side.b)))
    cuts = np.ceil(side.k / np.clip(length, 1, side.k))
    partial = 2 * ACCUMULATOR_BYTES * side.m * side.n * (cuts - 1)
    bytes_ = side.a * side.m * side.k + side.b * side.k * side.n * tiles + partial
    best: Floats = np.where(length >= depth, bytes_, np.inf).min(axis=1)
    return best


def _least_cut_bytes(side: _Side, capacity: Floats) -> Floats:
    """Lower bound of `_left_stationary_cut` for either operand, in bytes: mostly more than without cuts.

    A tile of height x length fills at most half of the buffer. Of the re-reads, which go with 1 / height, and
    the partial sums, which go with 1 / length, the sum is least where both are equal. Two cuts are the fewest.
    """
    a, b, outputs = side.a * side.m * side.k, side.b * side.k * side.n, side.m * side.n
    travel = 2 * ACCUMULATOR_BYTES
    equal = 2 * side.k * np.sqrt(2 * travel * side.a * side.b / np.maximum(capacity, 1.0)) - travel
    floor: Floats = np.maximum(min(a, b) + outputs * equal, a + b + travel * outputs)
    return floor


def _resident_bytes(side: _Side) -> float:
    """Buffer that all of a, without a second copy, needs while b's columns pass it once."""
    return side.k * (side.a * side.m + 2 * side.b) + ACCUMULATOR_BYTES * side.m
