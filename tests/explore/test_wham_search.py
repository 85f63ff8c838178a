"""WHAM's search as a whole, on a small space: against every design, the certified optimum and every pipeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from phaze.errors import InfeasibleError, InputError
from phaze.explore.api import explore
from phaze.explore.candidates import Candidates
from phaze.explore.evaluator import Evaluator
from phaze.explore.progress import Clock, Silent
from phaze.explore.request import Budgets, ExploreRequest, Objective, Task
from phaze.explore.setting import Setting
from phaze.explore.strategies.oracle import Oracle
from phaze.explore.strategies.report import Stop
from phaze.explore.strategies.strategy import SearchBudget
from phaze.explore.wham.axes import SearchAxes
from phaze.explore.wham.metric import Target
from phaze.explore.wham.mixed import best_mixed_plan
from phaze.explore.wham.pipelines import Pipelines
from phaze.explore.wham.search import Designs, WhamSearch
from phaze.hardware.space_file import load_space, parse_space
from phaze.placement.cluster import FixedDegrees, Recompute
from phaze.placement.iterations import stage_plans
from phaze.scheduling.passes import Effort

POWER_W = 400.0


@pytest.fixture(scope="module")
def candidates(small_space):
    return Candidates(small_space, Budgets(POWER_W))


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 4, network, fixed=FixedDegrees(microbatch=2))


def search(candidates, tasks, strategy, evaluations=1000):
    oracle = Oracle(candidates, tasks, strategy.target.merit, Clock(60.0))
    report, told = strategy.search(oracle, SearchBudget(evaluations), 0, Silent())
    return oracle, report, told


@pytest.fixture(scope="module")
def per_stage(candidates, task):
    return search(candidates, [task], WhamSearch(Designs.PER_STAGE, top_k=5))


def test_designs_are_in_the_space_and_keep_the_budgets(candidates, per_stage):
    _, _, told = per_stage
    stages = [stage for setting in told.workloads[0].searched for stage in setting.stages]
    designs = [design for stage in stages for design in stage.designs]
    assert designs
    block = candidates.within(np.array([design.number for design in designs]))
    assert len(block) == len(designs)
    assert [design.tdp_w for design in designs] == pytest.approx(block.tdp_w.tolist())
    assert [design.area_mm2 for design in designs] == pytest.approx(block.area_mm2.tolist())
    assert all(design.id == candidates.architecture(design.number).name for design in designs)
    assert all(design.stage_s >= design.critical_path_s * (1 - 1e-12) for design in designs)


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP])
def test_finds_the_best_of_all_designs_here(candidates, task, objective):
    oracle, report, told = search(candidates, [task], WhamSearch(target=Target(objective)))
    evaluated, everything = len(oracle.history), candidates.all().numbers
    best = max(found.value for found in oracle.evaluate(everything))
    assert told.one.value == pytest.approx(best, rel=1e-9)
    assert report.evaluations == evaluated < len(everything) / 2
    assert report.stopped is Stop.CONVERGED


def test_the_certified_optimum_is_never_worse(task, small_space, per_stage):
    _, report, _ = per_stage
    answer = explore(ExploreRequest(task, small_space, Budgets(POWER_W)))
    assert answer.document.certificate.optimal
    assert report.best_value <= answer.document.certificate.objective_value * (1 + 1e-9)


def test_a_design_per_stage_is_never_worse_than_one_for_all(candidates, task, per_stage):
    _, _, told = per_stage
    assert told.per_stage.value >= told.one.value * (1 - 1e-9)
    assert [layer for stage in told.per_stage.stages for layer in stage.layers] == list(
        task.workload.chain(1, 1).names
    )
    for floor in (0.0, 0.8 * told.one.throughputs[0]):
        target = Target(Objective.THROUGHPUT_PER_TDP, floor)
        _, _, watt = search(candidates, [task], WhamSearch(Designs.PER_STAGE, target, settings=2))
        assert watt.per_stage.value >= watt.one.value * (1 - 1e-9)
        assert watt.per_stage.throughput_samples_per_s >= floor
        assert watt.one.throughputs[0] >= floor


def test_a_floor_that_nothing_reaches_leaves_nothing(candidates, task):
    target = Target(Objective.THROUGHPUT_PER_TDP, 1e9)
    _, report, told = search(candidates, [task], WhamSearch(Designs.PER_STAGE, target, settings=1))
    assert (report.best_value, told.one, told.per_stage) == (None, None, None)


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP])
@pytest.mark.parametrize("recompute", Recompute)
def test_a_mixed_pipeline_is_the_best_of_all(candidates, tiny, network, objective, recompute):
    task = Task(tiny, 3, network, fixed=FixedDegrees(tensor_parallel=1))
    block = candidates.within(np.array([10, 61, 94]))
    setting = Setting(2, 1, recompute)
    pipelines = Pipelines(Evaluator(task, block.table), block, setting, Effort(lambda: 60.0))
    target = Target(objective)
    found = best_mixed_plan(pipelines, target)
    batch = task.cluster.global_batch
    value = target.value(np.array(batch / found.plan.iteration_s), np.array(found.mean_tdp_w))
    assert value == pytest.approx(max(every_pipeline(pipelines, target, batch)), rel=1e-12)


def every_pipeline(pipelines, target, batch):
    """Values of all cuts, designs, data degrees and depths of a small chain; memory is no limit here."""
    o, layers = pipelines.options, len(pipelines.any_planner.index)
    for option in range(len(o.stages)):
        one = np.array([option])
        for cuts in combinations(range(1, layers), int(o.stages[option]) - 1):
            ranges = list(zip([0, *cuts], [cut - 1 for cut in [*cuts, layers]], strict=True))
            on = [stages_on(pipelines, row, ranges, o, option) for row in range(len(pipelines.block))]
            for rows in product(range(len(on)), repeat=len(ranges)):
                slowest = max(on[row][k].load_s for k, row in enumerate(rows))
                tails = []
                for k, row in enumerate(rows):
                    rate, latency = pipelines.planner(row).weight_rates(
                        pipelines.rates.take(np.array([row])), o.take(one)
                    )
                    tails.append(on[row][k].parameters * rate[0, 0] + latency[0])
                seconds = slowest * o.slots[option] + max(tails)
                power_w = pipelines.block.tdp_w[list(rows)].mean()
                yield float(target.value(np.array(batch / seconds), np.array(power_w)))


def stages_on(pipelines, row, ranges, o, option):
    at, planner = np.array([row]), pipelines.planner(row)
    transfers = planner.boundaries(pipelines.rates.take(at), int(o.pipeline_tier[option]))
    times = pipelines.times.take(at)
    return stage_plans(planner, ranges, times, transfers, int(o.microbatches[option]))


def test_one_design_for_several_workloads(candidates, task, tiny):
    tasks = [task, replace(task, devices=2)]
    oracle, _, told = search(candidates, tasks, WhamSearch(Designs.COMMON, settings=2))
    assert [w.workload for w in told.workloads] == [tiny.name, tiny.name]
    assert len(told.one.throughputs) == 2
    assert told.one.value == pytest.approx(np.mean(told.one.throughputs))
    assert oracle.best.number == told.one.number
    with pytest.raises(InputError, match="one workload"):
        search(candidates, tasks, WhamSearch(Designs.PER_STAGE))


def test_every_step_is_told(per_stage):
    _, report, told = per_stage
    assert {tuple(axis.fields): axis.treatment for axis in told.axes} == {
        ("tensor_cores",): "cores",
        ("tensor_core_rows",): "halved",
        ("tensor_core_columns",): "halved",
        ("vector_cores",): "cores",
        ("vector_core_alus",): "halved",
        ("global_buffer_bytes",): "halved",
        ("hbm_generation", "hbm_stacks"): "enumerated",
    }
    for stage in (stage for setting in told.workloads[0].searched for stage in setting.stages):
        assert stage.levels[0].tried == 2  # one search for each memory
        assert stage.path[-1].metric == stage.designs[0].metric == max(step.metric for step in stage.cores)
        assert [step.added == "" for step in stage.cores] == [k == 0 for k in range(len(stage.cores))]
        assert stage.ended in {"critical path", "budget", "space", "no gain"}
    assert report.figures["per_stage_value"] == told.per_stage.value


def test_the_same_twice_and_within_its_budget(candidates, task, per_stage):
    _, _, first = per_stage
    _, _, again = search(candidates, [task], WhamSearch(Designs.PER_STAGE, top_k=5))
    assert again == first
    _, report, _ = search(candidates, [task], WhamSearch(), evaluations=2)
    assert (report.evaluations, report.stopped) == (2, Stop.EVALUATIONS)


def test_an_impossible_budget_is_told(small_space, task):
    with pytest.raises(InfeasibleError, match="budget"):
        search(Candidates(small_space, Budgets(1.0)), [task], WhamSearch())
    with pytest.raises(InputError, match="not tdp"):
        Target(Objective.TDP)


def test_numbers_of_a_filtered_space(task):
    axes = SearchAxes(Candidates(load_space("phaze"), Budgets()))
    space, sizes = axes.space, len(axes.space.hbm_capacities_bytes)
    first = np.arange(0, space.size, 997)
    kept = np.flatnonzero(space.numbers(np.arange(space.grid_size)) >= 0)
    found = axes.numbers(kept[first])
    assert (found // sizes == first).all()
    assert (axes.candidates.table(found)["hbm_capacity_bytes"] == max(space.hbm_capacities_bytes)).all()
    absent = np.setdiff1d(np.arange(2000), kept)
    assert (axes.numbers(absent) == -1).all()
    for name in ("tensor_cores", "tensor_core_rows", "vector_core_alus", "global_buffer_bytes"):
        full = axes.tables(kept[first])[name]
        assert (full == space.table(first)[name]).all()


CONDITIONAL = """
schema_version: 1
name: conditional
axes:
  - {fields: [node], values: [N7, N5]}
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [vector_cores], values: [1, 2], when: {tensor_cores: [4]}, otherwise: 3}
  - {fields: [tensor_core_rows], values: [32, 128, 256], when: {node: [N5]}, otherwise: 64}
  - {fields: [tensor_core_columns], same_as: tensor_core_rows}
where: ["tensor_cores * tensor_core_rows <= 512"]
"""


def test_axes_that_vary_only_under_a_condition(task):
    candidates = Candidates(parse_space(CONDITIONAL, "conditional.yaml"), Budgets())
    axes, space = SearchAxes(candidates), candidates.space
    whole = np.arange(space.grid_size)
    numbers, stands = axes.numbers(whole), axes.numbers(space.collapsed(whole))
    assert set(stands.tolist()) == {-1, *range(space.size)}
    assert (stands[numbers >= 0] == numbers[numbers >= 0]).all()
    known = np.flatnonzero(stands >= 0)
    for name in space.fields_varied:
        held = axes.tables(space.collapsed(known))[name]
        assert (held == candidates.table(stands[known])[name]).all()
    oracle, _, told = search(candidates, [task], WhamSearch())
    best = max(found.value for found in oracle.evaluate(candidates.all().numbers))
    assert told.one.value == pytest.approx(best, rel=1e-9)
