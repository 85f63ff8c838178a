"""Tiled traffic against an exhaustive search that knows no closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.tiling import compulsory_bytes, traffic_bytes
from phaze.workload.work import Gemm

small = st.integers(1, 20)
sides = st.integers(1, 5000)


def product(m, k, n, groups=1, bytes_=(2.0, 2.0, 2.0)):
    a, b, c = bytes_
    return Gemm(groups, m, k, n, a * groups * m * k, b * groups * k * n, c * groups * m * n)


def exhaustive(gemm, capacities, depth=1):
    """Least traffic per capacity over all integer tile sides and all six loop orders that fit, (sizes,).

    The plain reuse rule, operand by operand: loops inside the innermost one that moves an operand find its tile
    in the buffer. A tile that is replaced is there twice; partial results travel in fp32 both ways.
    """
    extent = {"m": gemm.m, "k": gemm.k, "n": gemm.n}
    sides_ = np.meshgrid(*(np.arange(1, extent[axis] + 1) for axis in "mkn"), indexing="ij")
    deep = sides_[1].ravel() >= min(depth, gemm.k)
    tile = {axis: side.ravel()[deep] for axis, side in zip("mkn", sides_, strict=True)}
    count = {axis: -(-extent[axis] // tile[axis]) for axis in "mkn"}
    best = np.full(len(capacities), np.inf)
    for order in itertools.permutations("mkn"):
        traffic = footprint = 0.0
        for operand, size in (("mk", gemm.a_bytes), ("kn", gemm.b_bytes)):
            tiles = math.prod(count[axis] for axis in operand)
            element = size / math.prod(extent[axis] for axis in operand)
            traffic = traffic + size * fetches(operand, order, count) / tiles
            footprint = footprint + np.where(tiles > 1, 2, 1) * element * tile[operand[0]] * tile[operand[1]]
        visits = fetches("mn", order, count) / (count["m"] * count["n"])
        traffic = traffic + gemm.c_bytes + 2 * 4 * gemm.m * gemm.n * (visits - 1)
        footprint = footprint + np.where(visits > 1, 2, 1) * 4 * tile["m"] * tile["n"]
        for size, capacity in enumerate(capacities):
            best[size] = min(best[size], traffic[footprint <= capacity].min(initial=np.inf))
    return best


def fetches(operand, order, count):
    """Tiles of an operand brought in, per tiling: all turns of the loops down to its innermost moving one."""
    turns = brought = np.ones(len(count["m"]))
    for axis in order:
        turns = turns * count[axis]
        if axis in operand:
            brought = np.where(count[axis] > 1, turns, brought)
    return brought


def shares(gemm, parts):
    """Buffers from next to nothing to more than all operands, where at least single elements fit."""
    whole = 2 * (gemm.a_bytes + gemm.b_bytes) + gemm.c_bytes + 4 * gemm.m * gemm.n
    return np.maximum(16.0, np.array(parts) * whole)


elements = st.sampled_from([1.0, 2.0, 4.0])
parts = st.lists(st.floats(0.003, 1.1), min_size=4, max_size=4)
depths = st.sampled_from([1, 1, 2, 5])


@settings(max_examples=150, deadline=None)
@given(small, small, small, st.tuples(elements, elements, elements), parts, depths)
def test_within_two_percent_of_exhaustive_search(m, k, n, bytes_, share, depth):
    gemm = product(m, k, n, bytes_=bytes_)
    capacities = shares(gemm, share)
    best, found = exhaustive(gemm, capacities, depth), traffic_bytes(gemm, capacities, depth)
    possible = np.isfinite(best)
    assert (found >= best * (1 - 1e-12))[possible].all()
    assert (found <= best * 1.02)[possible].all()


@settings(max_examples=8, deadline=None)
@given(st.integers(60, 150), st.integers(1, 12), st.integers(60, 150), parts, depths)
def test_within_two_percent_where_many_tiles_are_needed(m, k, n, share, depth):
    gemm = product(m, k, n)
    capacities = shares(gemm, np.array(share) / 20)
    best = exhaustive(gemm, capacities, depth)
    assert (traffic_bytes(gemm, capacities, depth) <= best * 1.02).all()


@given(small, small, small, st.integers(2, 5), st.floats(16.0, 1e4))
def test_every_group_moves_its_own_operands(m, k, n, groups, capacity):
    alone, together = (traffic_bytes(product(m, k, n, g), capacity) for g in (1, groups))
    assert together == pytest.approx(groups * alone, rel=1e-12)


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
