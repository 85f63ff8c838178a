"""Runs over architectures and plans of a space: every answer against the plan search of each single chip."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
from small_cases import DECODER

from phaze.errors import InputError
from phaze.explore.answers.main_job import evaluate_document, explore
from phaze.explore.evaluation.energy_and_memory import time_energy_memory
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_of, strategy_of, worked_out
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.plans.replayed_plans import per_stage_plan
from phaze.explore.recheck.certify_run import certify
from phaze.explore.request.explore_request import (
    Budgets,
    ClusterBudget,
    Designs,
    ExploreRequest,
    Objective,
    StrategyChoice,
    Task,
)
from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.training.layer_costs import layer_costs
from phaze.parallel.training.stage_times import stage_times
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 6]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""
PLANS = """
schema_version: 1
name: some
source: a test
microbatches: [1, 2]
chunks: [1, 2]
schedules: [1f1b, interleaved, zb-h1]
"""
DEVICES, BATCH = 4, 8


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(SPACE)
    return load_space(path)


@pytest.fixture(scope="module")
def task(tiny, network, tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "some.yaml"
    path.write_text(PLANS)
    software, plans = load_framework("ideal"), load_plans(path)
    return Task(tiny, DEVICES, network, BATCH, framework=software, plans=plans)


@pytest.fixture(scope="module")
def chips(space):
    return [space.architecture(number) for number in range(space.size)]


@pytest.fixture(scope="module")
def answer(task, space, resources):
    return explore(ExploreRequest(task, space), resources=resources).document


@pytest.fixture(scope="module")
def points(task, chips):
    """(Samples per second, joules per sample) of the best plan of every setting on every chip."""
    evaluator, rows, points = Evaluator(task, to_table(chips)), np.arange(len(chips)), []
    for setting in evaluator.configs:
        found = evaluator.plans(setting, rows, np.full(len(rows), inf), SolveLimits(lambda: inf))
        plans = {row: one for row, one in enumerate(found) if one is not None}
        points += [
            (BATCH / s, joules / BATCH) for s, joules, _ in time_energy_memory(evaluator, setting, plans)
        ]
    return points


@pytest.fixture(scope="module")
def throughput():
    """Samples per second of a chip under its best plan, by the search of single chips; once for each question."""
    known = {}

    def searched(task, chip):
        table = to_table([chip])
        usable = task.framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
        found = best_plans(estimator_of(task, table), task.plan_space, usable).best
        return task.cluster.global_batch / found[0].iteration.iteration_s if found else 0.0

    def of(task, chip):
        key = task.workload.name, task.devices, task.framework.name, task.plans.name, chip.name
        if key not in known:
            known[key] = searched(task, chip)
        return known[key]

    return of


def power_w(chip):
    return float(tdp_w(to_table([chip]), 1.0)[0])


def nondominated(points):
    """Points (more is better, less is better) that no other one equals or beats on both."""
    return sorted(p for p in points if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in points))


@pytest.mark.parametrize(
    ("software", "plans"), [("ideal", "full"), ("exposed", "phaze"), ("megatron-core-2024", "megatron")]
)
def test_winner_and_frontier_are_those_of_searching_every_chip_alone(
    task, space, chips, software, plans, resources, throughput
):
    task = replace(task, framework=load_framework(software), plans=load_plans(plans))
    document = explore(ExploreRequest(task, space), resources=resources).document
    each = [(throughput(task, chip), power_w(chip)) for chip in chips]
    assert document.certificate.optimal
    assert document.certificate.frontier_complete
    assert document.certificate.objective_value == pytest.approx(max(each)[0], rel=1e-9)
    found = sorted((p.throughput_samples_per_s, p.tdp_w) for p in document.frontier)
    assert np.array(found) == pytest.approx(np.array(nondominated(each)), rel=1e-9)


def test_points_and_plans_are_counted(task, space, answer):
    certificate = answer.certificate
    settings = Evaluator(task, space.table()).configs
    assert certificate.space_size == space.size * len(settings) == space.size * task.points_per_architecture
    alone = find_best_plan(task, space.architecture(0)).certificate.space_size
    assert certificate.plans_per_architecture == alone
    assert certificate.space_size == certificate.over_budget + certificate.pruned + certificate.evaluated


def test_one_plan_has_one_answer_to_the_last_bit(task, answer):
    """The winner of a run, evaluated by itself, planned by itself, and its plan worked out again from the document."""
    told = answer.best.workloads[task.workload.name]
    chip = Architecture(name=answer.best.id, fields=answer.best.architecture)
    alone = evaluate_document(task, chip).best.workloads[task.workload.name]
    planned = find_best_plan(task, chip).best
    again = PlannedIteration.of(estimator_of(task, to_table([chip])), strategy_of(told.placement.plan))
    assert told == alone
    assert told.placement.plan == planned.strategy == again.record
    assert told.iteration_time_s == planned.iteration_time_s == again.iteration.iteration_s
    assert told.energy_per_iteration_j == planned.energy_per_iteration_j == again.energy_j
    assert told.memory_bytes == planned.memory_bytes == again.iteration.memory_bytes
    assert told.mfu == planned.mfu
    assert told.breakdown.parts == planned.breakdown
    assert told.memory == planned.memory
    assert told.kinds == planned.kinds


def test_parts_sum_to_the_iteration(task, answer):
    for design in (answer.best, *answer.next_best):
        result = design.workloads[task.workload.name]
        assert sum(result.breakdown.spent.values()) == pytest.approx(result.iteration_time_s)
        assert min(result.breakdown.spent.values()) >= 0
        names = [name for stage in result.placement.stages for name in stage.layers]
        assert sorted(names) == sorted(task.workload.chain(1, 1).names)
        assert max(stage.memory_bytes for stage in result.placement.stages) == result.memory_bytes


def test_fixing_a_choice_never_wins(task, space, answer, resources):
    for held in (
        {"tensor": (1,)},
        {"pipeline": (2,)},
        {"sequence": (False,)},
        {"zeros": task.plan_space.zeros[:1]},
    ):
        fixed = explore(ExploreRequest(replace(task, held=held), space), resources=resources).document
        assert fixed.certificate.objective_value <= answer.certificate.objective_value * (1 + 1e-12)


def test_energy_beside_throughput_against_all_points(task, space, points, resources):
    document = explore(
        ExploreRequest(task, space, axes=("throughput", "energy_per_sample")), resources=resources
    ).document
    found = sorted((p.throughput_samples_per_s, p.energy_per_sample_j) for p in document.frontier)
    assert np.array(found) == pytest.approx(np.array(nondominated(points)), rel=1e-9)


def test_the_least_energy_is_that_of_some_point(task, space, points, resources):
    least = min(joules for _, joules in points)
    document = explore(
        ExploreRequest(task, space, objective=Objective.ENERGY_PER_SAMPLE), resources=resources
    ).document
    assert 1 / document.certificate.objective_value == pytest.approx(least, rel=1e-9)


def test_the_least_memory_is_that_of_some_plan(task, space, chips, resources):
    least = {
        best_plans(estimator_of(task, to_table([chip])), task.plan_space, 0.0).least_memory_bytes
        for chip in chips
    }
    document = explore(ExploreRequest(task, space, objective=Objective.MEMORY), resources=resources).document
    assert 1 / document.certificate.objective_value == pytest.approx(min(least), rel=1e-9)
    assert len(least) == 1  # whatever the chip


def test_a_common_design_is_the_best_of_all_chips(task, space, chips, tmp_path, resources, throughput):
    path = tmp_path / "wider.yaml"
    path.write_text(DECODER.replace("name: tiny", "name: wider").replace("hidden: 512", "hidden: 1024"))
    other = replace(task, workload=load_workload(str(path)))
    document = explore(ExploreRequest(task, space, others=(other,)), resources=resources).document
    each = [(throughput(task, chip), throughput(other, chip)) for chip in chips]
    most = [max(values) for values in zip(*each, strict=True)]
    scores = [sqrt(a / most[0] * b / most[1]) for a, b in each]
    assert document.certificate.objective_value == pytest.approx(max(scores), rel=1e-9)


def test_a_budget_for_the_cluster_is_spent_best(task, space, chips, resources, throughput):
    budget = ClusterBudget(power_w=2000.0)
    document = explore(ExploreRequest(task, space, cluster=budget), resources=resources).document
    counted = {choice.devices for choice in document.cluster.choices}
    best = max(
        throughput(replace(task, devices=devices), chip)
        for devices in counted
        for chip in chips
        if devices * power_w(chip) <= budget.power_w
    )
    assert document.certificate.objective_value == pytest.approx(best, rel=1e-9)


def test_a_strategy_that_looks_at_all_finds_the_optimum(task, space, answer, resources):
    choice = StrategyChoice("random", evaluations=space.size)
    document = explore(ExploreRequest(task, space, strategy=choice), resources=resources).document
    assert document.certificate.objective_value == answer.certificate.objective_value
    assert document.best.workloads == answer.best.workloads


def test_a_power_budget_is_kept(task, space, chips, resources, throughput):
    limit = float(np.median([power_w(chip) for chip in chips]))
    document = explore(ExploreRequest(task, space, Budgets(power_w=limit)), resources=resources).document
    best = max(throughput(task, chip) for chip in chips if power_w(chip) <= limit)
    assert document.certificate.objective_value == pytest.approx(best, rel=1e-9)


def test_a_design_per_stage_is_held_against_the_best_single_one(task, space, resources):
    per_stage = StrategyChoice("wham", designs=Designs.PER_STAGE)
    request = ExploreRequest(task, space, strategy=per_stage)
    document = explore(request, resources=resources).document
    told = document.wham
    assert told.per_stage.value >= told.one.value * (1 - 1e-9)
    assert told.one.value <= document.certificate.upper_bound * (1 + 1e-9)
    assert told.per_stage.gain == pytest.approx(told.per_stage.value / told.one.value - 1)
    again = per_stage_plan(document, request)
    assert again.iteration.iteration_s == told.per_stage.iteration_time_s
    assert len(told.per_stage.stages) == told.per_stage.plan.pipeline_parallel
    needs = [memory.total_bytes for memory in again.iteration.memory]
    assert needs == [stage.memory_bytes for stage in told.per_stage.stages]
    assert {name for stage in told.per_stage.stages for name in stage.layers} == set(
        task.workload.chain(1, 1).names
    )


@pytest.mark.parametrize("axes", [(), ("throughput", "energy_per_sample")])
def test_a_run_holds_and_a_falsified_one_does_not(task, space, axes, resources):
    request = ExploreRequest(task, space, axes=axes)
    found = explore(request, resources=resources)
    rows = [dict(zip(found.designs, row, strict=True)) for row in zip(*found.designs.values(), strict=True)]
    assert certify("a run", request, found.document, rows, 3, 0).passed
    name, told = task.workload.name, found.document.best.workloads[task.workload.name]
    faster = told.model_copy(update={"throughput_samples_per_s": told.throughput_samples_per_s * 1.01})
    best = found.document.best.model_copy(update={"workloads": {name: faster}})
    assert not certify("a run", request, found.document.model_copy(update={"best": best}), rows, 3, 0).passed


def test_what_does_not_go_together_is_one_sentence(task, space, tmp_path, resources):
    file = tmp_path / "hosts.yaml"
    file.write_text(PLANS + "offloads: [[], [optimizer]]\n")
    with pytest.raises(InputError, match="leaves it open what stays whole or lies with hosts"):
        explore(ExploreRequest(replace(task, plans=load_plans(file)), space), resources=resources)


def test_a_found_plan_is_refused_where_it_takes_another_time(task, chips):
    evaluator = Evaluator(task, to_table(chips[:1]))
    setting, rows, none = evaluator.configs[0], np.arange(1), np.full(1, inf)
    (found,) = evaluator.plans(setting, rows, none, SolveLimits(lambda: inf))
    (planned,) = worked_out(evaluator, setting, {0: found})
    assert planned.iteration.iteration_s == pytest.approx(found.iteration_s, rel=1e-12)
    with pytest.raises(PlanError, match="as the search says"):
        list(worked_out(evaluator, setting, {0: replace(found, iteration_s=found.iteration_s * 1.0001)}))


def test_layers_of_a_frontier_are_worked_out_once_for_every_setting(task, space, chips, monkeypatch):
    """And what is told of each point is what it comes to alone, to the last bit."""
    others = [
        load_architecture(name) for name in ("h100", "tpuv4", "a100-80gb")
    ]  # other links, and kernels in a row
    chips, called = [*chips, *others], []
    evaluator = Evaluator(task, to_table(chips))
    monkeypatch.setattr(
        "phaze.parallel.training.iteration_estimate.layer_costs",
        lambda *given: called.append(len(given[2])) or layer_costs(*given),
    )
    rows = np.arange(len(chips))
    for setting in evaluator.configs[::5]:
        found = evaluator.plans(setting, rows, np.full(len(rows), inf), SolveLimits(lambda: inf))
        plans = {row: one for row, one in enumerate(found) if one is not None}
        called.clear()
        together = list(time_energy_memory(evaluator, setting, plans))
        assert called == [len(plans)]
        alone = [next(time_energy_memory(evaluator, setting, {row: plan})) for row, plan in plans.items()]
        assert together == alone


def test_loads_of_a_plan_are_worked_out_once_to_tell_and_to_check_it(task, chips, monkeypatch):
    evaluator, called = Evaluator(task, to_table(chips[:1])), []
    setting, rows, none = evaluator.configs[0], np.arange(1), np.full(1, inf)
    (found,) = evaluator.plans(setting, rows, none, SolveLimits(lambda: inf))
    monkeypatch.setattr(
        "phaze.parallel.training.iteration_estimate.stage_times",
        lambda *given: called.append(1) or stage_times(*given),
    )
    (planned,) = worked_out(evaluator, setting, {0: found})
    planned.check()
    assert planned.figures()["iteration_time_s"] == planned.iteration.iteration_s
    assert called == [1]


def test_every_plan_that_is_reported_passes_the_checker(task, space, monkeypatch):
    checked = []
    monkeypatch.setattr(
        "phaze.explore.evaluation.planned_iteration.check_plan",
        lambda costs, strategy, *rest: checked.append(strategy) or check_plan(costs, strategy, *rest),
    )
    monkeypatch.setattr("phaze.explore.answers.exploration.NEXT_BEST", 2)
    document = explore(ExploreRequest(task, space)).document
    assert len(checked) == len(document.frontier) + 1 + len(document.next_best) > 3
