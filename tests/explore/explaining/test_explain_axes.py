"""The winner of a run over any axes is explained by its own objective, in its own setting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phaze.errors import InfeasibleError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.explaining.budget_steps import fastest, less_power
from phaze.explore.explaining.run_explanation import explain
from phaze.explore.explaining.winner_neighbours import FLOOR
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.explore.request.search_progress import SilentProgress
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.spaces.space_file import parse_space

SPACE = """
schema_version: 1
name: dozen
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [tensor_core_rows], values: [64, 128, 256]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""
FLOOR_PER_S = 4000.0


def asked(tiny, network, objective, axes=(), floor=FLOOR_PER_S):
    return ExploreRequest(
        Task(tiny, 4, network),
        parse_space(SPACE, "dozen.yaml"),
        Budgets(power_w=300.0),
        objective=objective,
        axes=axes,
        min_throughput=floor,
        time_limit_s=600.0,
    )


@pytest.fixture(scope="module")
def least_energy(tiny, network, resources):
    """A request for the least energy, and its answer."""
    request = asked(tiny, network, Objective.ENERGY_PER_SAMPLE, ("tdp",))
    return request, explore(request, resources=resources).document


@pytest.fixture(scope="module")
def explanation(least_energy):
    return explain(*least_energy)


def least_energy_of(request, architecture):
    """Joules per sample of the best of all settings that keep the floor, else of all; every one evaluated."""
    kept, all_ = [], []
    for setting in Evaluator(request.task, to_table([architecture])).configs:
        try:
            design = evaluate(replace(request.task, held=setting.choices), architecture)
        except InfeasibleError:
            continue
        result = design.workloads["tiny"]
        all_.append(result.energy_per_iteration_j / result.global_batch)
        if result.throughput_samples_per_s >= request.min_throughput:
            kept.append(all_[-1])
    return min(kept or all_)


def test_gains_of_neighbours_are_those_of_the_objective(least_energy, explanation):
    request, document = least_energy
    winner = Architecture(name="winner", fields=document.best.architecture)
    own = 1.0 / document.certificate.objective_value
    assert explanation.objective == "energy_per_sample"
    for neighbour in explanation.neighbours[::3]:
        best = least_energy_of(request, winner.replace("moved", **neighbour.values))
        assert neighbour.gain == pytest.approx(own / best - 1.0, rel=1e-6)
        slow = neighbour.throughput_samples_per_s < request.min_throughput
        assert (FLOOR in neighbour.forbidden_by) == slow
    assert all(n.gain <= 1e-9 for n in explanation.neighbours if not n.forbidden_by)


def test_layers_and_sensitivity_are_those_of_the_setting_the_winner_is_in(least_energy, explanation):
    result = least_energy[1].best.workloads["tiny"]
    assert explanation.throughput_samples_per_s == pytest.approx(result.throughput_samples_per_s, rel=1e-9)
    assert all(
        row.gain >= -1e-9 for row in explanation.sensitivity if not row.parameter.endswith("latency_s")
    )
    assert sum(explanation.breakdown.values()) == pytest.approx(1.0)


def test_budgets_need_a_frontier_of_throughput_and_power(least_energy, resources):
    request, document = least_energy
    plain = replace(request, objective=Objective.THROUGHPUT, axes=())
    known = explore(plain, resources=resources).document
    assert fastest(request, document, None, SilentProgress()) is None
    assert fastest(request, document, 60.0, SilentProgress()).frontier == known.frontier
    both = replace(plain, axes=("tdp", "energy_per_sample"))
    answer = explore(both, resources=resources).document
    assert fastest(both, answer, None, SilentProgress()) is answer
    for one, other in zip(less_power(both, answer), less_power(plain, known), strict=True):
        assert one.throughput_samples_per_s == pytest.approx(other.throughput_samples_per_s, rel=1e-9)
        assert (one.limit, one.proven_gap) == (other.limit, other.proven_gap)


def test_the_smallest_chip_is_told_and_explained_under_its_fastest_plan(tiny, network, resources):
    request = asked(tiny, network, Objective.AREA)
    document = explore(request, resources=resources).document
    winner = Architecture(name="winner", fields=document.best.architecture)
    most = evaluate(request.task, winner).workloads["tiny"].throughput_samples_per_s
    told = document.best.workloads["tiny"].throughput_samples_per_s
    assert told == pytest.approx(most, rel=1e-9)
    assert document.frontier[0].throughput_samples_per_s == told
    found = explain(request, document)
    assert any(FLOOR in n.forbidden_by and n.gain > 0 for n in found.neighbours)
    assert found.binding[0].limit == FLOOR
