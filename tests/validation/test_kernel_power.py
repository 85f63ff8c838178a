"""Board power of kernels: rows that are judged, the law by hand, and the limit of the board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.package_power import energy_constants
from phaze.validation.measurement_columns import read_columns
from phaze.validation.measurement_schemas import TABLES
from phaze.validation.sets.kernels.power_measurements import short_watts, watts

HEAD = (
    "device,op,dtype,kv_cache_dtype,m,n,k,batch,isl,step,heads,kv_heads,head_dim,window_size,"
    "latency_ms,power_w,power_limit_w,loop_s_at_least"
)
GEMM = "NVIDIA H200,gemm,bfloat16,,8192,8192,8192,,,,,,,,{ms},600,700,{loop}"
PREFILL = "NVIDIA H200,context_attention,bfloat16,{cache},,,,8,4096,0,32,8,128,{window},{ms},500,700,0.5"


@pytest.fixture
def read(tmp_path: Path):
    def columns(*rows: str):
        path = tmp_path / "kernel_power_aiconfigurator.csv"
        path.write_text("\n".join([HEAD, *rows]) + "\n")
        return read_columns(path, TABLES[path.stem])

    return columns


def test_a_product_draws_what_the_law_says(read):
    judged = watts(read(GEMM.format(ms=4.0, loop=1.0)))
    table = to_table([load_architecture("h200")])
    e = energy_constants(table)
    standing = e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w + e.kernel_w
    products = 8192.0**3 * (e.mac_j + e.operand_j_per_mac) / 4e-3
    memory = 3 * 2 * 8192.0**2 * e.hbm_j_per_byte / 4e-3
    at_least, found = (standing + products + memory)[0], judged.predicted[Fidelity.ANALYTIC][0]
    assert at_least < found < 1.2 * at_least  # and reads of the second-level cache
    assert judged.measured.tolist() == [600]


def test_a_board_draws_no_more_than_its_limit(read):
    judged = watts(read(GEMM.format(ms=0.5, loop=1.0)))
    assert judged.predicted[Fidelity.ANALYTIC].tolist() == [700]


def test_short_loops_are_a_comparison_of_their_own(read):
    columns = read(GEMM.format(ms=4.0, loop=1.0), GEMM.format(ms=4.0, loop=0.1))
    assert (len(watts(columns).measured), len(short_watts(columns).measured)) == (1, 1)


def test_kernels_that_the_model_lacks_are_left_out(read):
    judged = watts(
        read(
            PREFILL.format(cache="bfloat16", window=0, ms=2.0),
            PREFILL.format(cache="fp8", window=0, ms=2.0),
            PREFILL.format(cache="bfloat16", window=128, ms=2.0),
            GEMM.format(ms=4.0, loop=1.0).replace("gemm", "moe"),
            GEMM.format(ms=4.0, loop=1.0).replace("H200", "Wonder 1"),
        )
    )
    assert (len(judged.measured), sum(judged.excluded.values())) == (1, 4)


def test_what_a_mask_hides_takes_no_power(read):
    """Twice the time for the same kernel is half the power beside what flows as long as a kernel runs."""
    fast, slow = (
        watts(read(PREFILL.format(cache="bfloat16", window=0, ms=ms))).predicted[Fidelity.ANALYTIC][0]
        for ms in (8.0, 16.0)
    )
    e = energy_constants(to_table([load_architecture("h200")]))
    standing = float((e.background_w * e.idle_background + e.leakage_w + e.hbm_background_w + e.kernel_w)[0])
    macs = 2 * 8 * 32 * 4096.0**2 * 128 / 2  # two products, half of the scores
    least = float((macs * (e.mac_j + e.operand_j_per_mac))[0])
    assert slow - standing == pytest.approx((fast - standing) / 2, rel=0.35)
    assert (slow - standing) * 16e-3 > least
    assert (slow - standing) * 16e-3 < 2 * least + 8.0
    assert np.isfinite([fast, slow]).all()
