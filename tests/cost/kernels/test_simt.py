"""Operators of whole models on SIMT chips: one kernel after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cost_cases import NETWORK, exchange, product, tensor, vector

from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity, check_fidelity
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.roofline_model import roofline_s
from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.scheduling.passes import SolveLimits, TimedPass
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Format, Pass

WORKS = (
    tensor("wide", product(4096, 512, 8192)),
    tensor("small", product(64, 64, 64)),
    vector("gelu", 1 << 22, 4.0),
    exchange(Collective.ALL_REDUCE, 1e8, Group(Parallel.TENSOR, 8)),
)
PASS = Pass(WORKS, ((0, 1), (1, 3), (0, 2)))  # gelu runs while the link is busy
NAMES = ("h200", "tpuv4", "a100-80gb", "h200")
TABLE = to_table([load_architecture(name) for name in NAMES])
ROWS = np.arange(len(NAMES))
SIMT = np.array([0, 2, 3])


@pytest.fixture(scope="module", params=[Fidelity.ANALYTIC, Fidelity.CALIBRATED])
def model(request):
    return CostModel(TABLE, NETWORK, request.param)


def test_an_operator_takes_its_kernel_and_never_less_than_the_roofline(model):
    found = model.costs(PASS).latencies(ROWS).parallel_s
    least = roofline_s(PASS, TABLE, NETWORK)
    kernels = kernels_s(WORKS, TABLE, model.rung)
    expected = np.fmax(kernels, least)
    assert found[SIMT, :3] == pytest.approx(expected[SIMT, :3])
    assert np.isinf(found[:, 3]).all()


def test_other_chips_do_not_change_with_gpus_beside_them(model):
    alone = CostModel(TABLE.take([1]), NETWORK, model.rung).costs(PASS)
    beside = model.costs(PASS)
    for mode in ("single_s", "parallel_s"):
        here, there = (getattr(c.latencies(r), mode) for c, r in ((alone, [0]), (beside, [1])))
        assert np.array_equal(here, there)


def test_kernels_run_one_after_the_other_and_beside_the_link(model):
    timed = TimedPass.of(model.costs(PASS), TABLE)
    latencies = timed.costs.latencies(ROWS)
    wide, small, gelu = latencies.parallel_s[:, :3].T
    link = latencies.single_s[:, 3]
    expected = wide + small + np.maximum(link, gelu)
    band = timed.exact(ROWS, timed.bounds(ROWS), SolveLimits(lambda: 10.0))
    assert band.upper_s[SIMT] == pytest.approx(expected[SIMT])
    assert (timed.costs.lower_s(ROWS) <= band.lower_s * (1 + 1e-12)).all()


def test_costs_at_other_positions_are_shared(model):
    turned = TABLE.take([2, 1, 0])
    other = model.on(turned)
    assert other is not None
    there = model.costs(PASS).on(other).latencies(np.arange(3)).parallel_s
    assert np.array_equal(there, model.costs(PASS).latencies(np.array([2, 1, 0])).parallel_s)
    assert model.on(to_table([load_architecture("v100")])) is None


def test_attribution_sums_to_the_latency(model):
    costs = model.costs(PASS)
    a, latencies = costs.attribution(ROWS), costs.latencies(ROWS)
    slowest = np.maximum.reduce([a.compute_s, a.buffer_s, a.hbm_s, a.link_s]) + a.fill_s
    best = np.minimum(latencies.single_s, latencies.parallel_s)
    assert slowest[SIMT] == pytest.approx(best[SIMT])


def test_rungs_for_whole_models():
    check_fidelity(Fidelity.ANALYTIC, load_architecture("tpuv4"))
    check_fidelity(Fidelity.CALIBRATED, load_architecture("h100"))
    check_fidelity(Fidelity.CALIBRATED, load_architecture("tpuv4"))
    with pytest.raises(InputError, match="bounds operators"):
        check_fidelity(Fidelity.ROOFLINE, load_architecture("h100"))
    with pytest.raises(InputError, match="measured family"):
        check_fidelity(Fidelity.CALIBRATED, load_architecture("trainium1"))


def in_format(operands):
    gemm = replace(product(4096, 4096, 4096), operands=operands)
    return Pass((tensor("formatted", gemm),), ())


def test_products_bound_and_run_at_the_rate_of_their_format():
    """On GPUs 67 TFLOP/s in fp32 and 494 in tf32 (H200); a TPU's arrays take both at their own rate."""
    flop = 2.0 * 4096**3
    least = {f: roofline_s(in_format(f), TABLE, NETWORK)[:, 0] for f in (None, Format.TF32, Format.FP32)}
    assert least[Format.FP32][0] == pytest.approx(flop / 66.9e12, rel=0.01)
    assert least[Format.TF32][0] == pytest.approx(flop / 494e12, rel=0.01)
    assert least[Format.FP32][1] == least[None][1]
    times = {f: CostModel(TABLE, NETWORK).costs(in_format(f)).latencies(ROWS).parallel_s[:, 0] for f in least}
    assert (times[Format.FP32][SIMT] > 5 * times[None][SIMT]).all()
    assert (times[None][SIMT] < times[Format.TF32][SIMT]).all()
    assert (times[Format.TF32][SIMT] < times[Format.FP32][SIMT]).all()
    assert times[Format.FP32][1] == times[None][1]
