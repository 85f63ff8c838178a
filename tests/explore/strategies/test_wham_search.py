"""WHAM's search as a whole, on a small space: against every design, the certified optimum and every pipeline."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from mixed_cases import every_pipeline
from phaze.solvers.placement.mixed import Goal

from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers.main_job import explore
from phaze.explore.documents.strategy_report import Stop
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Oracle
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, Designs, ExploreRequest, Objective, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.wham.mixed_designs import MixedDesigns
from phaze.explore.strategies.wham.wham_axes import SearchAxes
from phaze.explore.strategies.wham.wham_search import WhamSearch
from phaze.explore.strategies.wham.wham_target import WhamTarget
from phaze.hardware.spaces.space_file import load_space, parse_space
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.mixed_pipelines import Architectures
from phaze.parallel.plan_search.mixed_plan_search import Cutting, MixedSearch
from phaze.scheduling.passes import SolveLimits

POWER_W = 400.0


@pytest.fixture(scope="module")
def candidates(small_space):
    return Candidates(small_space, Budgets(POWER_W))


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 4, network, held={"microbatches": (2,)})


def search(candidates, tasks, strategy, evaluations=1000):
    oracle = Oracle(candidates, tasks, strategy.target.merit, Clock(60.0))
    report, told = strategy.search(oracle, SearchBudget(evaluations), 0, SilentProgress())
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
    oracle, report, told = search(candidates, [task], WhamSearch(target=WhamTarget(objective)))
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
    held = sorted(layer for stage in told.per_stage.stages for layer in stage.layers)
    assert held == sorted(task.workload.chain(1, 1).names)
    for floor in (0.0, 0.8 * told.one.throughputs[0]):
        target = WhamTarget(Objective.THROUGHPUT_PER_TDP, floor)
        _, _, watt = search(candidates, [task], WhamSearch(Designs.PER_STAGE, target, configs=2))
        assert watt.per_stage.value >= watt.one.value * (1 - 1e-9)
        assert watt.per_stage.throughput_samples_per_s >= floor
        assert watt.one.throughputs[0] >= floor


def test_a_floor_that_nothing_reaches_leaves_nothing(candidates, task):
    target = WhamTarget(Objective.THROUGHPUT_PER_TDP, 1e9)
    _, report, told = search(candidates, [task], WhamSearch(Designs.PER_STAGE, target, configs=1))
    assert (report.best_value, told.one, told.per_stage) == (None, None, None)


SMALL_PLANS = """
schema_version: 1
name: small
source: a test
microbatches: [2]
tensor: [1]
chunks: [1, 2]
zero: [0, 1]
"""


@pytest.mark.parametrize("roomy", [True, False])
@pytest.mark.parametrize("numbers", [(10, 60, 94), (80, 82, 92)])
def test_a_mixed_pipeline_is_the_best_of_all(candidates, tiny, network, tmp_path, roomy, numbers):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL_PLANS + ("pipeline: [2, 3]\n" if roomy else "stages: whole-blocks\n"))
    software = {} if roomy else {"reserved_bytes": 31.5e9, "hides_reduction": True}
    framework = load_framework().model_copy(update=software)
    task = Task(tiny, 3, network, plans=load_plans(file), framework=framework)
    block, mixed = candidates.within(np.array(numbers)), set()
    evaluator = Evaluator(task, block.table)
    batch = task.cluster.global_batch
    for setting in evaluator.configs:
        every = list(every_pipeline(evaluator, block, setting))
        fast = sorted(seconds for _, seconds, _ in every)
        floors = 0.0, batch / fast[len(fast) // 50] if every else 1.0
        for objective, floor in product((Objective.THROUGHPUT, Objective.THROUGHPUT_PER_TDP), floors):
            target = WhamTarget(objective, floor)
            designs = MixedDesigns(evaluator, block, setting, SolveLimits(lambda: 600.0))
            found = designs.best(target, None, np.inf)
            kept = [(s, w) for _, s, w in every if s <= target.longest_s(batch)]
            if found is None:
                assert not kept
                continue
            by_time = target.goal is Goal.TIME
            assert found.value <= min(s if by_time else s * w for s, w in kept) * (1 + 1e-9)
            own = found.planned.iteration.iteration_s
            assert found.value == pytest.approx(own if by_time else own * found.mean_tdp_w, rel=1e-9)
            mixed.add(objective)
    assert len(mixed) == 2


def test_no_pipeline_is_better_than_its_bounds(candidates, tiny, network, tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL_PLANS)
    task = Task(tiny, 3, network, plans=load_plans(file))
    block = candidates.within(np.array([10, 60, 94]))
    evaluator, rows = Evaluator(task, block.table), np.arange(len(block))
    for setting in evaluator.configs:
        options, timed = evaluator.options(setting), evaluator.timed(setting)
        times = evaluator.times(setting, rows, timed.exact(rows, SolveLimits(lambda: 600.0))[1])
        links = evaluator.link_bytes_per_s
        chips = Architectures(times, evaluator.capacity_bytes, links, block.tdp_w)
        tiers = evaluator.across(setting, np.inf, float(links.max())).tiers
        every = list(every_pipeline(evaluator, block, setting))
        for goal in Goal:
            bound = MixedSearch(options, tiers, chips, goal).lower_bound()
            lines = Cutting(options, chips).lines(goal)
            known = {(one.pipeline.pipeline_parallel, one.pipeline.data_parallel): one.bound for one in lines}
            for strategy, seconds, power_w in every:
                value = seconds if goal is Goal.TIME else seconds * power_w
                assert bound <= value
                held = strategy.chunks * strategy.schedule.weight_copies
                if held == 1 and strategy.pipeline_parallel in (2, 3):
                    assert known[strategy.pipeline_parallel, strategy.data_parallel] <= value


def test_one_design_for_several_workloads(candidates, task, tiny):
    tasks = [task, replace(task, devices=2)]
    oracle, _, told = search(candidates, tasks, WhamSearch(Designs.ONE, configs=2))
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
        WhamTarget(Objective.TDP)


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
