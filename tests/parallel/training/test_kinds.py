"""Computation by kind of operator: it sums to the breakdown, and memory holds up what has little arithmetic."""

from __future__ import annotations

import pytest
from strategy_cases import estimator, framework
from test_iteration import BUSY, SOME

from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.kind_times import kind_times


@pytest.mark.parametrize("chip", ["a100", "tpuv4"])
@pytest.mark.parametrize("software", [framework(), BUSY])
@pytest.mark.parametrize("strategy", SOME)
def test_kinds_sum_to_products_and_vector_kernels(chip, software, strategy):
    costs = estimator(chip=chip, software=software)
    time = costs.iteration(strategy).time
    found = kind_times(costs, strategy)
    assert sum(kind.time_s for kind in found) == pytest.approx((time.product_s + time.vector_s), rel=1e-9)
    assert all(
        0 <= kind.stall_s <= kind.stall_s + kind.global_buffer_s <= kind.time_s * (1 + 1e-12)
        for kind in found
    )
    assert [kind.time_s for kind in found] == sorted((kind.time_s for kind in found), reverse=True)


@pytest.mark.parametrize("chip", ["a100", "tpuv4"])
def test_norms_wait_for_memory_and_large_products_do_not(chip):
    def found(microbatch):
        costs = estimator(chip=chip, batch=64, devices=1)
        return {kind.kind: kind for kind in kind_times(costs, ParallelPlan(microbatch))}

    small, large = found(1), found(64)
    # Small ones take little longer than their launch.
    for kinds, least in ((small, 0.2), (large, 0.5)):
        assert kinds["norm"].stall_s > least * kinds["norm"].time_s
    share = {
        name: kinds["matmul"].stall_s / kinds["matmul"].time_s
        for name, kinds in (("small", small), ("large", large))
    }
    assert share["large"] < share["small"]


def test_a_slower_global_buffer_is_waited_for_and_hbm_is_not(tmp_path):
    """The two memories are told apart: products wait for the one whose rate falls."""
    slow = tmp_path / "slow.yaml"
    slow.write_text(
        "schema_version: 1\nname: slow\ndescription: S.\nbase: tpuv4\nfields: {global_buffer_bytes_per_cycle: 256}\n",
        encoding="utf-8",
    )

    def products(chip):
        found = kind_times(estimator(chip=chip, batch=64, devices=1), ParallelPlan(8))
        return next(kind for kind in found if kind.kind == "matmul")

    before, after = products("tpuv4"), products(str(slow))
    assert after.global_buffer_s > max(before.global_buffer_s, 0.5 * after.time_s)
    assert after.stall_s <= before.stall_s
