"""Tiled traffic against an exhaustive search that knows no closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.tiling import compulsory_bytes, traffic_bytes
from phaze.workload.work import Gemm

small = st.integers(1, 20)
sides = st.integers(1, 5000)


def product(m, k, n, groups=1, bytes_=(2.0, 2.0, 2.0)):
    a, b, c = bytes_
    return Gemm(groups, m, k, n, a * groups * m * k, b * groups * k * n, c * groups * m * n)


def fetches(operand, order, counts):
    """Tiles of an operand brought in: loops inside its innermost moving index reuse what is there."""
    moving = [i for i, axis in enumerate(order) if axis in operand and counts[axis] > 1]
    return math.prod(counts[axis] for axis in order[: moving[-1] + 1]) if moving else 1


def tiled_bytes(gemm, tile, order):
    """(traffic, footprint) of one tiling by the plain reuse rule, operand by operand."""
    extent = {"m": gemm.m, "k": gemm.k, "n": gemm.n}
    counts = {axis: math.ceil(extent[axis] / tile[axis]) for axis in "mkn"}
    traffic = footprint = 0.0
    for operand, size in (("mk", gemm.a_bytes), ("kn", gemm.b_bytes)):
        tiles = math.prod(counts[axis] for axis in operand)
        element = size / math.prod(extent[axis] for axis in operand)
        traffic += size * fetches(operand, order, counts) / tiles
        footprint += (2 if tiles > 1 else 1) * element * math.prod(tile[axis] for axis in operand)
    visits = fetches("mn", order, counts) / (counts["m"] * counts["n"])
    traffic += gemm.c_bytes + 2 * 4 * gemm.m * gemm.n * (visits - 1)
    footprint += (2 if visits > 1 else 1) * 4 * tile["m"] * tile["n"]
    return traffic, footprint


def exhaustive(gemm, capacity):
    """Least traffic over all tile sides and all six loop orders that fit."""
    best = math.inf
    for tm, tk, tn in itertools.product(*(range(1, e + 1) for e in (gemm.m, gemm.k, gemm.n))):
        for order in itertools.permutations("mkn"):
            traffic, footprint = tiled_bytes(gemm, {"m": tm, "k": tk, "n": tn}, order)
            if footprint <= capacity:
                best = min(best, traffic)
    return best


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.floats(0.05, 1.2))
def test_within_two_percent_of_exhaustive_search(m, k, n, share):
    gemm = product(m, k, n)
    capacity = max(16.0, share * (compulsory_bytes(gemm) + 4 * m * n))
    best = exhaustive(gemm, capacity)
    assert best * (1 - 1e-12) <= traffic_bytes(gemm, capacity) <= best * 1.02


def exhaustive_wide(gemm, capacity):
    """The same search over all tiles with NumPy, for sides beyond the exact counts."""
    best = math.inf
    tm, tn = np.meshgrid(np.arange(1, gemm.m + 1), np.arange(1, gemm.n + 1), indexing="ij")
    nm, nn = np.ceil(gemm.m / tm), np.ceil(gemm.n / tn)
    ea, eb = gemm.a_bytes / gemm.m / gemm.k, gemm.b_bytes / gemm.k / gemm.n
    for tk in range(1, gemm.k + 1):
        nk = math.ceil(gemm.k / tk)
        operands = (2 - (nm * nk == 1)) * ea * tm * tk + (2 - (nn * nk == 1)) * eb * tk * tn
        partial = 8 * gemm.m * gemm.n * (nk - 1)
        for copies, bytes_ in (
            (1, gemm.a_bytes * (nn if nk > 1 else np.minimum(nn, 1)) + gemm.b_bytes * nm),
            (1, gemm.b_bytes * (nm if nk > 1 else np.minimum(nm, 1)) + gemm.a_bytes * nn),
            (2, gemm.a_bytes + gemm.b_bytes * nm + partial),
            (2, gemm.b_bytes + gemm.a_bytes * nn + partial),
        ):
            fits = operands + copies * 4 * tm * tn <= capacity
            if fits.any():
                best = min(best, bytes_[fits].min() + gemm.c_bytes)
    return best


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 150), st.integers(1, 40), st.integers(1, 150), st.floats(0.002, 0.9))
def test_within_two_percent_where_many_tiles_are_needed(m, k, n, share):
    gemm = product(m, k, n)
    capacity = max(16.0, share * (compulsory_bytes(gemm) + 4 * m * n))
    assert traffic_bytes(gemm, capacity) <= exhaustive_wide(gemm, capacity) * 1.02


@given(sides, sides, sides, st.integers(1, 4), st.lists(st.floats(1.0, 1e9), min_size=2, max_size=6))
def test_never_below_compulsory_and_monotone_in_the_buffer(m, k, n, groups, sizes):
    gemm = product(m, k, n, groups)
    bytes_ = traffic_bytes(gemm, np.sort(sizes))
    assert (bytes_ >= compulsory_bytes(gemm)).all()
    assert (np.diff(bytes_) <= 0).all()


@given(sides, sides, sides)
def test_what_fits_moves_once(m, k, n):
    gemm = product(m, k, n)
    assert traffic_bytes(gemm, 1e12) == compulsory_bytes(gemm)


def test_hand_example_output_stationary():
    # 4096^3 in 16 MiB: neither operand fits (32 MiB each). Square output tiles of 4 t^2 + 8 t <= 2^24
    # bytes would be t = 2047, three to a side; 1366 x 3068 gives 3 rows and 2 columns of tiles.
    gemm = product(4096, 4096, 4096)
    assert traffic_bytes(gemm, 2.0**24) == (2 + 3 + 1) * 2 * 4096**2


def test_deeper_tiles_never_help():
    gemm = product(4096, 4096, 4096)
    bytes_ = traffic_bytes(gemm, 2.0**18, np.array([1, 32, 128, 256]))
    assert (np.diff(bytes_) >= 0).all()
