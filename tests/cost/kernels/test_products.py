"""The tile law: physical limits, monotonicity, and hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.kernels.fitted_constants import Constants
from phaze.cost.kernels.simt_products import (
    Products,
    SimtLaw,
    products_s,
    simt_chip,
    simt_law,
    simt_products_s,
    sustained_clock,
)
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import product_flops_per_s
from phaze.validation.measured.single_operators import product
from phaze.workload.work import Format

TABLE = to_table([load_architecture("a100-80gb")])
A100 = simt_chip(TABLE)
PEAK = 312e12
EXTENT = st.integers(1, 20_000)
LAWS = st.sampled_from(
    [simt_law(Format.BF16, Constants("ampere")), simt_law(Format.FP32, Constants("pascal"))]
)
# one multiprocessor's worth of everything, nothing lost: what is left are tiles and waves
IDEAL = SimtLaw(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1e30, 0.0, 0.0, 0.0)
FAST_MEMORY = replace(A100, memory_bytes_per_s=1e30)


def several(rows):
    """Products of (m, k, n, groups) in 16 bits at the peak of the A100."""
    m, k, n, groups = np.array(rows, dtype=np.float64).T
    moved = 2.0 * groups * (m * k + k * n + m * n)
    whole = np.ones(len(m))
    return Products(groups, m, k, n, moved, PEAK * whole, whole)


def seconds(m, k, n, groups=1, law=IDEAL, chip=A100):
    return float(products_s(several([(m, k, n, groups)]), chip, law)[0])


def test_fields_of_the_a100():
    assert (A100.multiprocessors, A100.cache_bytes) == (108, 40 * 2**20)
    assert sustained_clock(TABLE, None) == sustained_clock(TABLE, Format.TF32) == pytest.approx(1.29 / 1.41)
    assert product_flops_per_s(TABLE, "bf16")[0] == pytest.approx(PEAK, rel=1e-3)
    assert product_flops_per_s(TABLE, None)[0] == product_flops_per_s(TABLE, "fp16")[0]
    assert product_flops_per_s(TABLE, "fp32")[0] == pytest.approx(19.5e12, rel=1e-2)


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 64), LAWS)
def test_never_above_the_peak(m, k, n, groups, law):
    assert seconds(m, k, n, groups, law) > 2.0 * m * k * n * groups / PEAK


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 3), LAWS)
def test_a_longer_side_never_takes_less(m, k, n, side, law):
    longer = [m, k, n]
    longer[side - 1] += 97
    assert seconds(*longer, law=law) >= seconds(m, k, n, law=law) * (1 - 1e-12)


def test_one_block_more_than_multiprocessors_costs_a_second_wave():
    law = replace(IDEAL, split_s=1.0)
    whole = seconds(16 * 108, 1 << 20, 64, law=law, chip=FAST_MEMORY)
    # 109 of the smallest blocks: two waves of them, half of the multiprocessors idle in the second
    assert seconds(16 * 109, 1 << 20, 64, law=law, chip=FAST_MEMORY) == pytest.approx(2 * whole)


def test_a_cold_stream_takes_its_bytes_over_the_bandwidth():
    bytes_ = 2.0 * (64 + 64 * 10**6 + 10**6)
    assert seconds(1, 64, 10**6) == pytest.approx(bytes_ / A100.memory_bytes_per_s)


def test_groups_have_kernels_of_their_own():
    law = replace(IDEAL, tiles=((64, 64),), group_tiles=((128, 128),), cuts=(1,))
    one, two = (seconds(64, 4096, 64, groups, law, FAST_MEMORY) for groups in (1, 2))
    assert two == pytest.approx(4 * one)  # each of the two on a multiprocessor, a quarter of its tile in use


def test_a_library_may_choose_as_for_one_group():
    law = replace(IDEAL, tiles=((64, 64), (64, 96)), cuts=(1,))
    # alone, two narrow blocks beat one wide block; 216 groups take four waves of 64 columns or two of 96
    best, picked = (
        seconds(64, 4096, 96, 216, replace(law, tile_of_one_group=alone), FAST_MEMORY)
        for alone in (False, True)
    )
    assert picked == pytest.approx(best * 4 / 3)


def test_what_blocks_load_again_comes_from_memory_where_the_cache_is_small():
    tiny = replace(A100, cache_bytes=1.0, memory_bytes_per_s=1e9)
    law = replace(IDEAL, tiles=((128, 128),), cuts=(1,), reread=1.0)
    loaded = 2.0 * 64 * 1024 * 256  # 64 blocks of 128 + 128 rows and columns
    operands = 2.0 * 3 * 1024**2
    moved = seconds(1024, 1024, 1024, law=law, chip=tiny) * 1e9
    assert moved == pytest.approx(operands + loaded)
    # rows of the operands as long as those that share pages: half of it
    half = seconds(1024, 1024, 1024, law=replace(law, long_row_bytes=2048.0), chip=tiny)
    assert half * 1e9 == pytest.approx(operands + loaded / 2)


def test_operands_of_8_bits_sustain_a_share_of_the_rate():
    chip = to_table([load_architecture("h200")])
    law = replace(IDEAL, sustained=1.0, narrow_sustained=0.5)
    wide, narrow = (product(1, *[16896] * 3, operands=f).gemms[0] for f in (Format.BF16, Format.FP8))
    # each at the clock that the power limit leaves it; twice the peak, half of it sustained
    seconds_at_peak = 2 * 16896**3 / 989.4e12
    clocks = [sustained_clock(chip, f) for f in (Format.BF16, Format.FP8)]
    assert clocks[1] < 0.87 * clocks[0]
    assert simt_products_s([wide, narrow], chip, law) == pytest.approx(
        [seconds_at_peak / clock for clock in clocks], rel=1e-3
    )


def test_many_products_are_costed_as_each_alone():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 3000, (300, 3)).tolist()
    rows = [(*size, groups) for size, groups in zip(sizes, rng.integers(1, 4, 300).tolist(), strict=True)]
    law = simt_law(Format.FP32, Constants("cdna"))
    alone = [seconds(*row, law=law) for row in rows]
    assert products_s(several(rows), A100, law) == pytest.approx(alone)


def test_sums_at_half_rate_hold_back_long_products_only():
    table = to_table([load_architecture("rtx-3090")])
    law = simt_law(Format.FP16, Constants("ampere"))
    assert table["fp32_sum_share"][0] == 0.5
    gemms = [product(1, 8192, k, 8192, operands=Format.FP16).gemms[0] for k in (64, 16384)]
    short, long = simt_products_s(gemms, table, law)
    assert long >= 2 * gemms[1].macs / product_flops_per_s(table, "fp16")[0]
    as_drawn = simt_products_s(gemms, table.replace(fp32_sum_share=np.ones(1)), law)
    assert short < as_drawn[0]
