"""Systolic arrays against hand counts and an independent brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.core_cycles import (
    deals,
    dealt_gemm_cycles,
    fill_cycles,
    gemm_cycles,
    split_gemm_cycles,
    splits,
)
from phaze.workload.work import Gemm

sides = st.integers(1, 700)
arrays = st.sampled_from([(8, 8), (16, 128), (128, 16), (128, 128), (100, 36)])


def product(m, k, n, groups=1):
    return Gemm(groups, m, k, n, 2.0 * groups * m * k, 2.0 * groups * k * n, 2.0 * groups * m * n)


gemms = st.builds(product, sides, sides, sides, st.integers(1, 5))


def test_4096_cube_on_one_128_array():
    assert gemm_cycles(product(4096, 4096, 4096), 128, 128) == [32 * 32 * 4096]
    assert fill_cycles(128, 128) == 128 + 127 + 127


def test_edge_tiles_count_whole_and_short_streams_wait_for_weights():
    assert gemm_cycles(product(1000, 129, 1000), 128, 128) == [2 * 8 * 1000]
    assert gemm_cycles(product(1000, 129, 129), 128, 128) == [2 * 8 * 129]  # streaming the short side
    # one row against 128-row tiles: loading weights takes longer than using them, so the other operand
    # is better kept in the array while 1000 columns stream past it
    assert gemm_cycles(product(1, 128, 1000), 128, 128) == [1000]
    assert gemm_cycles(product(1, 512, 64), 128, 128) == [4 * 128]


def test_groups_have_their_own_weights():
    assert gemm_cycles(product(512, 64, 512, groups=16), 128, 128) == [16 * 4 * 512]


def brute_force(gemm, rows, columns, cores):
    """Every integer split of the streamed side and of the list of stationary tiles."""
    best = math.inf
    for streamed, stationary in ((gemm.m, gemm.n), (gemm.n, gemm.m)):
        tiles = gemm.groups * math.ceil(stationary / columns)
        for pieces, lists in itertools.product(range(1, cores + 1), repeat=2):
            if pieces * lists <= cores:
                longest = math.ceil(tiles / lists) * max(math.ceil(streamed / pieces), rows)
                best = min(best, longest * math.ceil(gemm.k / rows))
    return best


@given(gemms, arrays, st.integers(1, 24))
def test_split_is_the_best_of_all_splits(gemm, array, cores):
    assert split_gemm_cycles(gemm, *array, splits(cores)) == [brute_force(gemm, *array, cores)]


@given(gemms, arrays, st.integers(1, 300))
def test_many_cores_are_never_slower_than_one_nor_better_than_ideal(gemm, array, cores):
    one = gemm_cycles(gemm, *array)[0]
    many = split_gemm_cycles(gemm, *array, splits(cores))[0]
    assert one / cores <= many * (1 + 1e-12)
    assert many <= one
    assert many * cores * array[0] * array[1] >= gemm.macs  # utilisation at most one


def test_all_architectures_at_once_equals_one_by_one():
    gemm = product(777, 1600, 6400, 3)
    cores, rows, columns = (
        np.array(c) for c in zip(*itertools.product((1, 3, 8, 256), (16, 128), (32, 256)), strict=True)
    )
    together = split_gemm_cycles(gemm, rows, columns, splits(cores))
    alone = [
        split_gemm_cycles(gemm, r, c, splits(n))[0] for n, r, c in zip(cores, rows, columns, strict=True)
    ]
    np.testing.assert_array_equal(together, alone)


def dealt(gemm, rows, columns, cores, bytes_per_cycle):
    chips = [np.atleast_1d(np.asarray(c, dtype=float)) for c in (rows, columns, bytes_per_cycle)]
    return dealt_gemm_cycles(gemm, chips[0], chips[1], deals(cores), chips[2])


def brute_force_with_cuts(gemm, rows, columns, cores, bytes_per_cycle):
    """Every power of two of cuts; each piece writes its fp32 outputs and they are read again."""
    best = brute_force(gemm, rows, columns, cores)
    for cuts in (2, 4, 8, 16):
        if cuts <= cores:
            piece = product(gemm.m, math.ceil(gemm.k / cuts), gemm.n, gemm.groups)
            meeting = 8 * cuts * gemm.groups * gemm.m * gemm.n / bytes_per_cycle
            best = min(best, brute_force(piece, rows, columns, cores // cuts) + meeting)
    return best


@given(gemms, arrays, st.integers(1, 24), st.sampled_from([64.0, 4096.0, 1e9]))
def test_the_contraction_is_cut_where_that_pays(gemm, array, cores, bytes_per_cycle):
    expected = brute_force_with_cuts(gemm, *array, cores, bytes_per_cycle)
    assert dealt(gemm, *array, cores, bytes_per_cycle) == pytest.approx([expected], rel=1e-12)


@given(gemms, arrays, st.integers(1, 300))
def test_more_cores_are_never_slower_with_cuts(gemm, array, cores):
    fewer, more = (dealt(gemm, *array, n, 4096.0)[0] for n in (cores, cores + 1))
    assert more <= fewer * (1 + 1e-12)
    assert more * (cores + 1) * array[0] * array[1] >= gemm.macs


@given(gemms, arrays, st.integers(2, 64), st.sampled_from([16.0, 256.0, 4096.0]))
def test_cores_share_the_buffer_that_partial_sums_meet_in(gemm, array, cores, bytes_per_cycle):
    """Cores are neither free nor useless: between an even share of one core's time and all of it."""
    one, slow, fast = (
        dealt(gemm, *array, n, rate)[0]
        for n, rate in ((1, bytes_per_cycle), (cores, bytes_per_cycle), (cores, 1e12))
    )
    assert gemm.macs / (cores * array[0] * array[1]) <= fast * (1 + 1e-12)
    assert fast <= slow * (1 + 1e-12)
    assert slow <= one
    uncut = split_gemm_cycles(gemm, *array, splits(cores))[0]
    merge = 8 * 2 * gemm.groups * gemm.m * gemm.n / bytes_per_cycle  # what the fewest cuts bring together
    assert slow == pytest.approx(uncut, rel=1e-12) or slow >= merge


def test_a_weight_gradient_uses_many_small_arrays():
    """ResNet-50's 64 x 256 kernel over 32 images: 16 column tiles would keep 32 of an H100's 528 arrays busy."""
    gradient = product(64, 100352, 256)
    uncut = split_gemm_cycles(gradient, 32, 16, splits(528))[0]
    assert uncut == 3136 * 32
    assert dealt(gradient, 32, 16, 528, 5120.0)[0] < uncut / 10


def test_all_chips_at_once_equals_one_by_one_with_cuts():
    gemm = product(64, 9000, 96, 3)
    chips = np.array(list(itertools.product((1, 3, 8, 200), (16, 128), (32, 256), (64.0, 4096.0)))).T
    cores, rows, columns, rate = chips
    together = dealt(gemm, rows, columns, cores, rate)
    alone = [dealt(gemm, r, c, n, b)[0] for n, r, c, b in chips.T]
    np.testing.assert_array_equal(together, alone)
    assert (together < split_gemm_cycles(gemm, rows, columns, splits(cores))).any()
