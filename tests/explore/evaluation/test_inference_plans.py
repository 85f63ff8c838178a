"""Plans of prefill and decode: against every strategy, every architecture alone, and the planner of 1F1B."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from small_cases import small_decoder, varied_architectures

from phaze.errors import InputError
from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.request.explore_request import ExploreRequest, Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import two_tiers
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.chunk_division import blocks
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s
from phaze.parallel.plan_batches.plan_batch import IterationBatch
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.recount.plan_checker import check_plan
from phaze.parallel.timeline.plan_runs import runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report.trace.iteration_trace import plan_trace
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload import Mode

EFFORT = SolveLimits(lambda: inf, states=1e5)
NETWORK = two_tiers(2, None, 1e-6, 10e9, 5e-6)
MODES = (Mode.PREFILL, Mode.DECODE)
SOFTWARE = {
    "exposed": load_framework("exposed"),
    "ideal": load_framework("ideal"),
    "megatron": load_framework("megatron-core-2024"),
    "launches": Framework(name="l", source="l", dispatch_s=2e-4, dispatch_backward_s=3e-4, microbatch_s=1e-3),
}


SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 6]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The small decoder by mode."""
    return {mode: small_decoder(tmp_path_factory.mktemp(mode), mode) for mode in MODES}


def task_of(models, mode, software="exposed", devices=4, batch=8, **changes):
    framework = SOFTWARE[software]
    return Task(models[mode], devices, NETWORK, batch, framework=framework, **changes)


def estimator(task, chip="tpuv4", **fields):
    return estimator_of(task, to_table([load_architecture(chip).replace("chip", **fields)]))


def every(e, space: PlanSpace):
    """All strategies of a space without uneven stages."""
    for shape in space.shapes(e.workload, e.cluster):
        for deep in space.pipelines(shape, e.cluster, blocks(e.chain(shape))):
            for s in space.schedules_of(deep, e.microbatches(deep)):
                yield from space.variants(s)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", SOFTWARE)
def test_plans_have_forward_passes_alone_and_every_figure_is_counted_again(models, mode, software):
    task = task_of(models, mode, software)
    e, seen = estimator(task), 0
    for s in every(e, task.plan_space):
        found = e.iteration(s)
        check_plan(e, s, found)
        time, memory = found.time, found.memory
        assert not (time.recompute_s or time.reduction_s or time.gather_s or time.optimizer_s)
        assert not any(one.gradients_bytes or one.optimizer_bytes for one in memory)
        timeline = e.timeline(s)
        assert all((order.kind == 0).all() for order in timeline.orders)
        assert found.iteration_s == pytest.approx(timeline.makespan_s + e.framework.iteration_s)
        seen += 1
    assert seen > 20


@pytest.mark.parametrize("mode", MODES)
def test_caches_stay_in_memory_in_decode_and_are_handed_on_in_prefill(models, mode):
    task = task_of(models, mode, devices=2)
    e = estimator(task)
    shape = ParallelPlan(2, schedule=task.plan_space.schedules[0])
    chain = e.chain(shape)
    cache = sum(chain.layers[i].cache_bytes for i in chain.index)
    (alone,) = e.iteration(shape).memory
    held = 4 if mode is Mode.DECODE else 1
    assert alone.activations_bytes == pytest.approx(held * cache)
    assert alone.weights_bytes == pytest.approx(2 * chain.joined.parameters)
    deep = e.iteration(replace(shape, pipeline_parallel=2)).memory
    assert sum(one.activations_bytes for one in deep) == pytest.approx(held * cache)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("share", [1.0, 0.6, 0.4])
def test_the_best_plan_is_that_of_trying_all(models, mode, software, share):
    task = task_of(models, mode, software)
    e, space = estimator(task), replace(task.plan_space, balances=False)
    each = [e.iteration(s) for s in every(e, space)]
    capacity = share * max(one.memory_bytes for one in each)
    expected = min((one.iteration_s for one in each if one.memory_bytes <= capacity), default=inf)
    answer = best_plans(e, space, capacity)
    found = answer.best[0].iteration.iteration_s if answer.best else inf
    assert found == pytest.approx(expected, rel=1e-12)
    assert answer.account.total == len(each)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("capacity", [None, 0.03e9])
def test_plans_of_many_architectures_are_those_of_each_alone(models, mode, software, capacity):
    task = task_of(models, mode, software)
    table = varied_architectures().take(np.arange(0, 48, 13))
    if capacity is not None:
        table = table.replace(hbm_capacity_bytes=np.full(len(table), capacity))
    rows, evaluator = np.arange(len(table)), Evaluator(task, table)
    found = best_points(evaluator, rows, EFFORT)
    for row in rows.tolist():
        e = estimator_of(task, table.take(np.array([row])))
        expected = best_plans(e, task.plan_space, evaluator.capacity_bytes[row])
        if not expected.best:
            assert found.configs[row] is None
            continue
        assert found.upper_s[row] == pytest.approx(expected.best[0].iteration.iteration_s, rel=1e-12)
        (plan,) = evaluator.plans(found.configs[row], np.array([row]), found.upper_s[[row]], EFFORT)
        told = e.iteration(plan.strategy)
        assert told.iteration_s == pytest.approx(plan.iteration_s, rel=1e-12)
        assert told.memory_bytes <= evaluator.capacity_bytes[row]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", SOFTWARE)
def test_bounds_never_exceed_what_they_bound(models, mode, software):
    task = task_of(models, mode, software)
    table = varied_architectures().take(np.arange(0, 48, 11))
    evaluator, rows = Evaluator(task, table), np.arange(len(table))
    never, compared = np.full(len(rows), np.inf), 0
    for setting in evaluator.configs:
        exact = evaluator.exact(setting, rows, never, EFFORT).lower_s
        fits = np.isfinite(exact)
        ladder = [
            evaluator.roofline_s(setting),
            evaluator.work_bound(setting, rows),
            evaluator.path_bound(setting, rows, np.full(len(rows), np.inf)),
            evaluator.iteration_bound(setting, rows),
            evaluator.iteration_bound(setting, rows, never),
            evaluator.bounds(setting, rows, never).lower_s,
        ]
        for bound in ladder:
            assert (bound[fits] <= exact[fits] * (1 + 1e-9)).all()
        compared += int(fits.sum())
    assert compared > 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", SOFTWARE)
def test_bounds_of_pipelines(models, mode, software):
    """Exact where transfers hide."""
    e = estimator(task_of(models, mode, software))
    for s in every(e, task_of(models, mode, software).plan_space):
        chunks, m = e.chunks(s), e.microbatches(s)
        whole_s = pipeline_s(s.schedule, m, s.pipeline_parallel, chunks)
        bound_s = float(pipeline_bound_s(s.schedule, m, s.pipeline_parallel, chunks))
        assert bound_s <= whole_s * (1 + 1e-12)
        if not chunks.blocking:
            assert bound_s == pytest.approx(whole_s, rel=1e-12)
        assert IterationBatch(e, (s,)).bounds_s()[0] <= e.iteration(s).iteration_s * (1 + 1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("software", ["exposed", "ideal"])
def test_winner_and_frontier_are_those_of_searching_every_chip_alone(models, mode, software, tmp_path):
    (tmp_path / "few.yaml").write_text(SPACE)
    task, space = task_of(models, mode, software), load_space(tmp_path / "few.yaml")
    document = explore(ExploreRequest(task, space)).document
    each = []
    for number in range(space.size):
        table = to_table([space.architecture(number)])
        usable = task.framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
        best = best_plans(estimator_of(task, table), task.plan_space, usable).best[0]
        each.append((8 / best.iteration.iteration_s, float(tdp_w(table, 1.0)[0])))
    assert document.certificate.optimal
    assert document.certificate.frontier_complete
    assert document.certificate.objective_value == pytest.approx(max(each)[0], rel=1e-9)
    edge = sorted(p for p in each if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in each))
    found = sorted((p.throughput_samples_per_s, p.tdp_w) for p in document.frontier)
    assert np.array(found) == pytest.approx(np.array(edge), rel=1e-9)


# -- the rest ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_backward_passes_need_is_refused(models, mode):
    e = estimator(task_of(models, mode))
    good = ParallelPlan(1, schedule=task_of(models, mode).plan_space.schedules[0])
    e.iteration(good)
    for wrong in (
        replace(good, schedule=Schedule.ONE_F_ONE_B),
        replace(good, schedule={Mode.PREFILL: Schedule.CACHED, Mode.DECODE: Schedule.FORWARD}[mode]),
        replace(good, recompute=Recompute.FULL),
        replace(good, zero=Zero.WEIGHTS),
    ):
        with pytest.raises(InputError):
            e.iteration(wrong)
    for held in (
        {"schedules": (Schedule.GPIPE,)},
        {"zeros": (Zero.WEIGHTS,)},
        {"recomputes": (Recompute.FULL,)},
        {"chunks": (2,)},
    ):
        with pytest.raises(InputError, match=str(mode)):
            _ = task_of(models, mode, held=held).plan_space


def test_training_has_no_schedule_without_backward_passes(tiny):
    task = Task(tiny, 4, NETWORK, 8, held={"schedules": (Schedule.FORWARD,)})
    with pytest.raises(InputError, match="no schedule forward"):
        _ = task.plan_space
    e = estimator(task)
    with pytest.raises(InputError, match="forward is not for training"):
        e.iteration(ParallelPlan(1, schedule=Schedule.FORWARD))


@pytest.mark.parametrize("mode", MODES)
def test_a_trace_shows_it(models, mode):
    task = task_of(models, mode)
    e = estimator(task)
    s = ParallelPlan(2, pipeline_parallel=2, schedule=task.plan_space.schedules[0])
    played = ReplayedPlan.of(e, s, e.iteration(s))
    found = list(plan_trace(played, "", "").slices)
    assert max(one.end_s for one in found) == pytest.approx(played.iteration.iteration_s)
    assert {one.category for one in found if one.thread == "passes"} == {"forward"}
    assert len(runs(played)) == 2 * 4
