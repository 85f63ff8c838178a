"""Floors on throughput prune, and what is left is what brute force leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.explore.request.search_progress import Clock
from phaze.scheduling.passes import SolveLimits


@pytest.fixture(scope="module")
def request_(tiny, small_space, network):
    return ExploreRequest(Task(tiny, 16, network), small_space, Budgets(power_w=300.0), time_limit_s=600.0)


@pytest.fixture(scope="module")
def truth(request_):
    """(TDP, best throughput) of every architecture within the budget, (A, 2), found without any bound of the search."""
    (block,) = Candidates(request_.space, request_.budgets).blocks()
    evaluator = Evaluator(request_.task, block.table)
    found = best_points(evaluator, np.arange(len(block)), SolveLimits(lambda: np.inf))
    return np.stack([block.tdp_w, request_.task.cluster.global_batch / found.upper_s], axis=1)


def frontier(points):
    """Rising steps of (TDP, throughput)."""
    steps, best = [], 0.0
    for tdp, throughput in sorted(points.tolist(), key=lambda p: (p[0], -p[1])):
        if throughput > best:
            best = throughput
            steps.append((tdp, throughput))
    return steps


@pytest.mark.parametrize(("share", "objective"), [(0.3, Objective.THROUGHPUT_PER_TDP), (0.97, Objective.TDP)])
def test_answer_and_frontier_above_a_floor_equal_brute_force(request_, truth, share, objective, resources):
    floor = share * float(truth[:, 1].max())
    kept = truth[truth[:, 1] >= floor]
    value = 1 / kept[:, 0] if objective is Objective.TDP else kept[:, 1] / kept[:, 0]
    document = explore(
        replace(request_, objective=objective, min_throughput=floor), resources=resources
    ).document
    certificate = document.certificate
    assert certificate.optimal
    assert certificate.frontier_complete
    assert certificate.objective_value == pytest.approx(value.max(), rel=1e-9)
    steps = [(p.tdp_w, p.throughput_samples_per_s) for p in document.frontier]
    np.testing.assert_allclose(steps, frontier(kept), rtol=1e-9)
    assert sum(certificate.pruned_by.values()) == certificate.pruned


def test_what_falls_to_the_floor_is_counted_and_saves_work(request_, truth, resources):
    free = explore(request_, resources=resources).document.certificate
    floor = explore(
        replace(request_, min_throughput=0.97 * float(truth[:, 1].max())), resources=resources
    ).document.certificate
    assert "floor" not in free.pruned_by
    assert floor.pruned_by["floor"] > 0
    assert floor.evaluated < free.evaluated
    assert floor.objective_value == free.objective_value


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_a_floor_just_met_is_met_and_one_just_missed_names_the_best(request_, truth, gap, resources):
    best = float(truth[:, 1].max())
    met = explore(replace(request_, min_throughput=best * (1 - 1e-9), gap=gap), resources=resources).document
    assert met.certificate.objective_value == pytest.approx(best, rel=1e-9)
    with pytest.raises(InfeasibleError) as caught:
        explore(replace(request_, min_throughput=best * (1 + 1e-6), gap=gap), resources=resources)
    (short,) = caught.value.shortfalls
    assert short.demand == pytest.approx(best, rel=1e-9)


def test_runners_up_keep_the_floor(request_, truth, monkeypatch, resources):
    monkeypatch.setattr("phaze.explore.answers.exploration.NEXT_BEST", 5)
    floor = float(np.sort(truth[:, 1])[-3])
    document = explore(
        replace(request_, objective=Objective.TDP, min_throughput=floor), resources=resources
    ).document
    reached = [d.workloads["tiny"].throughput_samples_per_s for d in (document.best, *document.next_best)]
    assert all(value >= floor * (1 - 1e-9) for value in reached)


def test_without_time_nothing_is_said_to_be_infeasible(request_, truth):
    clock = Clock(0.0)
    with pytest.raises(OutOfTimeError, match="fast enough"):
        explore(replace(request_, min_throughput=float(truth[:, 1].max())), clock=clock)
