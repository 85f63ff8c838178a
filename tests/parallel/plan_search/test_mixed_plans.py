"""Plans on pipelines of different architectures: those of one where all are alike, checked, and between their own."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from random_plans import costs, plans

from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.timeline.plan_pieces import pieces_of_devices
from phaze.parallel.timeline.plan_runs import runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.mixed_estimate import MixedEstimator
from phaze.report.trace.iteration_trace import plan_trace

CHIPS = to_table([load_architecture(name) for name in ("a100", "h100", "gh200")])
KNOWN: dict[tuple[int, int], Estimator] = {}


def several(e):
    """The same workload and software on all chips."""
    key = id(e.workload), id(e.framework)
    if key not in KNOWN:
        KNOWN[key] = Estimator(e.workload, CHIPS, e.cluster, e.framework)
    return KNOWN[key]


def cases(seed, count):
    return [(several(e), s) for e, s in plans(seed, count) if not s.offload]


def spread(random, strategy):
    """A chip for every device; devices with the same layers have the same."""
    p = strategy.pipeline_parallel
    rows = [random.randrange(len(CHIPS)) for _ in range(p)]
    if strategy.schedule is Schedule.DUALPIPE:
        rows = [rows[min(d, p - 1 - d)] for d in range(p)]
    return rows


def test_devices_that_are_alike_are_those_of_one_architecture():
    for e, strategy in cases(1, 60):
        for row, one in enumerate(e.each()):
            alike = MixedEstimator.of(e, [row] * strategy.pipeline_parallel)
            assert alike.iteration(strategy) == one.iteration(strategy)
            for found, alone in zip(
                alike.timeline(strategy).ends_s, one.timeline(strategy).ends_s, strict=True
            ):
                assert (found == alone).all()


def test_mixed_plans_of_all_kinds_pass_the_check():
    random = Random(3)
    for e, strategy in cases(2, 120):
        mixed = MixedEstimator.of(e, spread(random, strategy))
        check_plan(mixed, strategy, mixed.iteration(strategy))


def test_no_mixed_plan_is_faster_or_slower_than_all_of_its_chips():
    random = Random(4)
    for e, strategy in cases(5, 60):
        if e.framework.interference or e.framework.waits:
            continue  # what runs beside something longer may then take longer
        rows = spread(random, strategy)
        alone = [one.iteration(strategy).iteration_s for one in e.each()]
        found = MixedEstimator.of(e, rows).iteration(strategy).iteration_s
        some = [alone[row] for row in rows]
        assert min(alone) * (1 - 1e-9) <= found
        assert found <= sum(some) * (1 + 1e-9)


@pytest.fixture(scope="module")
def told():
    """A plan on two a100 and two gh200, and its devices' memory."""
    e = several(costs("tied", "hides"))
    rows, strategy = (0, 0, 2, 2), ParallelPlan(1, 4, 4, zero=Zero.OPTIMIZER)
    mixed = MixedEstimator.of(e, rows)
    return mixed, strategy, mixed.iteration(strategy), hbm_capacity_bytes(CHIPS)[list(rows)]


def test_each_device_keeps_its_own_memory(told):
    mixed, strategy, right, capacity = told
    check_plan(mixed, strategy, right, capacity_bytes=capacity.tolist())
    need = np.array([one.total_bytes for one in right.memory])
    assert need[0] > need[1]
    check_plan(mixed, strategy, right, capacity_bytes=need.tolist())
    with pytest.raises(PlanError, match="device 0 needs"):
        check_plan(mixed, strategy, right, capacity_bytes=need[::-1].tolist())


def test_a_plan_that_is_told_otherwise_does_not_pass(told):
    mixed, strategy, right, _ = told
    check_plan(mixed, strategy, right)
    with pytest.raises(PlanError, match="iteration"):
        check_plan(mixed, strategy, replace(right, iteration_s=right.iteration_s * (1 + 1e-6)))
    other = MixedEstimator.of(mixed, (0, 2, 2, 2))
    with pytest.raises(PlanError):
        check_plan(other, strategy, right)
    moved = right.memory[:2] + right.memory[3:] + right.memory[2:3]
    with pytest.raises(PlanError, match="device 2"):
        check_plan(mixed, strategy, replace(right, memory=moved))


def test_the_slower_end_holds_up_what_both_ends_sum():
    table = CHIPS.take(np.array([0, 0])).replace(link_bandwidth_bytes_per_s=np.array([50e9, 300e9]))
    e = costs("tied", "ideal")
    cluster = replace(e.cluster, network=load_network())
    both, strategy = Estimator(e.workload, table, cluster, e.framework), ParallelPlan(1, 1, 4)
    slow, fast = (
        MixedEstimator.of(both, rows).gradient_sync(strategy) for rows in ((0, 0, 0, 0), (1, 1, 1, 1))
    )
    mixed = MixedEstimator.of(both, (0, 1, 1, 1))
    found = mixed.gradient_sync(strategy).reduction_s[0]
    assert found[0] == slow.reduction_s[0, 0]
    assert fast.reduction_s[0, 3] < found[3] == found[0]
    check_plan(mixed, strategy, mixed.iteration(strategy))


def test_what_devices_cannot_do_is_told():
    e = several(costs("dense", "ideal"))
    with pytest.raises(InputError, match="2 devices of a pipeline of 4"):
        MixedEstimator.of(e, (0, 1)).iteration(ParallelPlan(1, 4, 4))
    with pytest.raises(InputError, match="have to be alike"):
        MixedEstimator.of(e, (0, 0, 1, 1)).iteration(ParallelPlan(1, 2, 4, schedule=Schedule.DUALPIPE))
    mixed = MixedEstimator.of(e, (0, 0, 1, 1))
    with pytest.raises(InputError, match="one architecture"):
        mixed.energy_j(ParallelPlan(1, 4, 4), mixed.iteration(ParallelPlan(1, 4, 4)))


def test_pieces_of_passes_are_those_of_the_device(told):
    mixed, strategy, right, _ = told
    played = ReplayedPlan.of(mixed, strategy, right)
    pieces = pieces_of_devices(played)
    assert pieces[0] is pieces[1]
    assert pieces[1] is not pieces[2]
    for run in runs(played):
        seconds = sum(pieces[run.device].duration_s(one.kind, one.chunk) for one in run.actions)
        assert seconds == pytest.approx(run.end_s - run.start_s, rel=1e-9)
    slices = list(plan_trace(played, "", "").slices)
    assert max(one.end_s for one in slices) == pytest.approx(right.iteration_s, rel=1e-12)
