"""Compute cycles of operators on cores: matrix products on systolic arrays, streams on vector cores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.workload.work import Gemm, Traffic, Work

_PARTIAL_BYTES = 2 * 4  # an fp32 partial sum goes to the global buffer and comes back


def splits(cores: ArrayLike) -> tuple[Floats, Floats]:
    """Ways to deal a product to cores: `streams` pieces of the streamed side times `jobs` lists of tiles.

    Returns two (cores.size, K) arrays with streams * jobs <= cores in every entry and every undominated
    pair present, for any number of cores (not only powers of two). Short lists are padded with (1, cores).
    """
    counts, of = np.unique(np.asarray(cores, dtype=np.int64), return_inverse=True)
    lists = [sorted({int(n) // q for q in range(1, int(n) + 1)}) for n in counts]
    longest = max(len(s) for s in lists)
    streams = np.array([s + [1] * (longest - len(s)) for s in lists], dtype=np.int64)
    jobs = counts[:, None] // streams
    where = of.ravel()
    return streams[where].astype(np.float64), jobs[where].astype(np.float64)


@dataclass(frozen=True)
class Deal:
    """Ways to deal a product whose contraction is cut into `cuts` pieces, each on cores // cuts cores.

    `usable`: chips with at least as many cores as cuts, (T,); `split`: see `splits`.
    """

    cuts: int
    usable: NDArray[np.bool_]
    split: tuple[Floats, Floats]


def deals(cores: ArrayLike) -> tuple[Deal, ...]:
    """Deals with 1, 2, 4, ... cuts for chips of (T,) cores."""
    counts = np.asarray(cores, dtype=np.int64).ravel()
    powers = (1 << e for e in range(int(counts.max()).bit_length()))
    return tuple(Deal(c, counts >= c, splits(np.maximum(counts // c, 1))) for c in powers)


def gemm_cycles(gemm: Gemm, rows: ArrayLike, columns: ArrayLike, speed: ArrayLike = 1.0) -> Floats:
    """Cycles of a product on one systolic array, filled and fed without stalls: ceil(k/R) g ceil(n/C) max(m, R).

    Weight-stationary with double-buffered weights: while a rows x columns tile works on the streamed
    extent, the next one is shifted in, one row per cycle; so each tile takes max(streamed extent, rows)
    cycles. Edge tiles are as long as whole ones. Each group has its own stationary operand. Either
    operand can be the stationary one; the faster orientation counts. `speed`: products that one element of
    the array adds to its sum in a cycle, so that a tile reaches as many times further along the contraction.
    """
    return split_gemm_cycles(gemm, rows, columns, splits(1), speed)


def split_gemm_cycles(
    gemm: Gemm,
    rows: ArrayLike,
    columns: ArrayLike,
    split: tuple[Floats, Floats],
    speed: ArrayLike = 1.0,
) -> Floats:
    """Cycles of a product dealt to many arrays in the best of the given ways (see `splits`).

    s streams times j jobs: ceil(k/R) ceil(g ceil(n/C) / j) max(ceil(m/s), R); derived in
    docs/reference/formulas/operators.md.

    `rows` and `columns` have the length of the split's first axis (or broadcast against it). The
    stationary column tiles of all groups are dealt evenly to `jobs` lists, the streamed side is cut into
    `streams` pieces; the contraction is not cut here (see `dealt_gemm_cycles`).
    """
    height = np.asarray(rows, dtype=np.float64).reshape(-1, 1)
    width = np.asarray(columns, dtype=np.float64).reshape(-1, 1)
    streams, jobs = split
    passes = np.ceil(gemm.k / (height * np.asarray(speed, dtype=np.float64).reshape(-1, 1)))

    def oriented(streamed: int, stationary: int) -> Floats:
        lists = np.ceil(gemm.groups * np.ceil(stationary / width) / jobs)
        cycles: Floats = (lists * np.maximum(np.ceil(streamed / streams), height)).min(axis=1)
        return cycles

    best: Floats = passes[:, 0] * np.minimum(oriented(gemm.m, gemm.n), oriented(gemm.n, gemm.m))
    return best


def dealt_gemm_cycles(
    gemm: Gemm,
    rows: Floats,
    columns: Floats,
    deals_: tuple[Deal, ...],
    buffer_bytes_per_cycle: Floats,
    speed: ArrayLike = 1.0,
) -> Floats:
    """Cycles of a product on all cores of (T,) chips, the contraction cut where that pays.

    A weight gradient has few outputs and a long contraction: uncut, most cores would idle. The pieces'
    partial sums meet in the global buffer; what that takes comes after the product and hides behind
    nothing.
    """
    times = np.broadcast_to(np.asarray(speed, dtype=np.float64), rows.shape)
    best = split_gemm_cycles(gemm, rows, columns, deals_[0].split, times)
    outputs = gemm.groups * gemm.m * gemm.n
    for deal in deals_[1:]:
        merge = _PARTIAL_BYTES * deal.cuts * outputs / buffer_bytes_per_cycle
        # Cores work through at least their share of the multiply-accumulates: mostly there is nothing to win.
        share = gemm.macs / (rows * columns * deals_[0].split[0].max(axis=1) * times)
        where = np.flatnonzero(deal.usable & (share + merge < best))
        if not len(where):
            break  # more cuts merge more
        piece = replace(gemm, k=math.ceil(gemm.k / deal.cuts))
        split = (deal.split[0][where], deal.split[1][where])
        cycles = split_gemm_cycles(piece, rows[where], columns[where], split, times[where]) + merge[where]
        best[where] = np.minimum(best[where], cycles)
    return best


def fill_cycles(rows: ArrayLike, columns: ArrayLike) -> Floats:
    """Fill and drain of an array, 2 R + C - 2 cycles: those before the first and after the last useful one.

    `rows` to shift the first weights in, then the skew of the wave: the last row starts rows - 1 cycles
    after the first, the last column columns - 1 after the first. Together 2 rows + columns - 2, which is
    what SCALE-Sim's weight-stationary form charges for every tile; with double-buffered weights it is
    paid once.
    """
    height = np.asarray(rows, dtype=np.float64)
    return 2 * height + np.asarray(columns, dtype=np.float64) - 2


def vector_cycles(work: Work, alus: ArrayLike, cores: ArrayLike = 1) -> Floats:
    """Cycles on `cores` vector cores of `alus` fp32 ALUs each; elements are dealt evenly to all ALUs."""
    lanes = np.asarray(alus, dtype=np.float64) * np.asarray(cores, dtype=np.float64)
    cycles: Floats = np.ceil(work.vector_cycles / lanes)
    return cycles


def stream_bytes(work: Work, global_buffer_bytes: ArrayLike) -> Floats:
    """HBM bytes beside those of tiled products.

    A flash kernel re-reads the tensors that stream past the block it holds, once per further block. Half
    of the global buffer holds the block; the other half takes what streams past it. A buffer below two
    bytes holds one byte at a time.
    """
    held = np.maximum(np.asarray(global_buffer_bytes, dtype=np.float64) / 2, 1.0)
    blocks = np.ceil(work.reread_rows_bytes / held)
    bytes_: Floats = work.stream_bytes + work.reread_bytes * np.maximum(blocks - 1, 0)
    return bytes_


def passing_bytes(work: Work) -> float:
    """Bytes between the global buffer and vector cores.

    Operands of products inside a fused kernel are streamed tensors too; they are counted with the
    products and not twice.
    """
    fused = any(gemm.traffic is Traffic.FUSED for gemm in work.gemms)
    return 0.0 if fused else work.stream_bytes
