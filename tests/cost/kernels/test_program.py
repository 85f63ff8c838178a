"""Operators of whole models on systolic chips: one compiled program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cost_cases import NETWORK, product, tensor, vector

from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import Constants, law_of
from phaze.cost.kernels.systolic_programs import FILE, ProgramLaw, is_measured, measured, program_s
from phaze.cost.roofline_model import roofline_s
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.scheduling.passes import SolveLimits, TimedPass
from phaze.workload.work import Flash, Pass, Traffic, Unit, Work

CHIP = to_table([load_architecture("tpuv5e")])
LAW = law_of(ProgramLaw, FILE, "tpu-v5")
PEAK, BANDWIDTH = float(peak_flops_per_s(CHIP)[0]), 819e9
ROW = np.array([0])


def seconds(*works: Work) -> np.ndarray:
    return program_s(works, CHIP, Constants("tpu-v5"))


def attention(queries: int, visible: float) -> Work:
    scores = product(queries, 128, queries, groups=64, traffic=Traffic.FUSED)
    mix = product(queries, queries, 128, groups=64, traffic=Traffic.FUSED)
    work = Work("flash", "attention", Unit.TENSOR_VECTOR, (scores, mix))
    return replace(work, flash=Flash(queries=queries, share=1, visible=visible))


def test_a_large_product_runs_at_its_share_of_the_peak_and_hides_its_loads():
    found = seconds(tensor("up", product(8192, 8192, 8192)))[0]
    assert found == pytest.approx(LAW.operator_s + 2 * 8192**3 / (LAW.efficiency * PEAK))


def test_edges_of_the_arrays_are_computed_as_whole_tiles():
    whole, less = seconds(
        tensor("a", product(8192, 8192, 8192)), tensor("b", product(8192, 8192 - 100, 8192))
    )
    assert whole == pytest.approx(less)


def test_element_wise_work_takes_its_bytes_and_hides_behind_a_product():
    alone, fused = seconds(
        vector("gelu", 1 << 26, 4.0),
        tensor(
            "up+gelu", product(8192, 8192, 8192), vector_cycles=4.0 * (1 << 26), stream_bytes=4.0 * (1 << 26)
        ),
    )
    assert alone == pytest.approx(LAW.operator_s + 4 * (1 << 26) / (LAW.memory_efficiency * BANDWIDTH))
    assert fused == seconds(tensor("up", product(8192, 8192, 8192)))[0]


def test_blocks_that_the_mask_hides_as_a_whole_cost_nothing():
    whole, causal = seconds(attention(4096, 1.0), attention(4096, 0.5)) - LAW.operator_s
    assert causal / whole == pytest.approx(0.5 + LAW.attention_block / (2 * 4096))
    short = seconds(attention(256, 1.0), attention(256, 0.5))
    assert short[0] == short[1]  # one block


@pytest.mark.parametrize("name", ["tpuv4", "tpuv5e", "tpuv5p", "tpuv6e", "tpuv7"])
def test_whole_models_run_operator_by_operator_and_never_beat_the_roofline(name):
    works = (tensor("up", product(4096, 4096, 4096)), vector("gelu", 1 << 22, 4.0), attention(1024, 0.5))
    pass_, table = Pass(works, ()), to_table([load_architecture(name)])
    costs = CostModel(table, NETWORK, Fidelity.CALIBRATED).costs(pass_)
    alone = costs.latencies(ROW).parallel_s[0]
    assert (alone >= roofline_s(pass_, table, NETWORK)[0]).all()
    timed = TimedPass.of(costs, table)
    band = timed.exact(ROW, timed.bounds(ROW), SolveLimits(lambda: 10.0))
    assert band.upper_s[0] == pytest.approx(alone.sum())


def test_searched_architectures_stay_what_they_are():
    table = to_table([load_architecture("tpuv4"), load_architecture("trainium1"), load_architecture("h100")])
    assert measured(table).tolist() == [True, False, False]
    assert CostModel(table, NETWORK).factors.simt_of.tolist() == [-1, -1, 0]
    assert (CostModel(table, NETWORK, Fidelity.CALIBRATED).factors.simt_of >= 0).tolist() == [
        True,
        False,
        True,
    ]
    assert not is_measured("generic")
