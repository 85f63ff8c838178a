"""What is told of points: the schedules that the search knows, and no other work, however hard layers are."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from phaze.solvers.scheduling import schedule
from small_cases import StopsSoon

from phaze.explore.answers.exploration import Exploration
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.planned_iteration import worked_out
from phaze.explore.recheck.rechecked_points import spend_as_searched
from phaze.explore.request.explore_request import ExploreRequest, Task
from phaze.explore.request.search_progress import SilentProgress
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.scheduling.effort import KNOWN, SolveLimits
from phaze.tolerances import FEW_STATES, POINT_STATES
from phaze.workload.workload_loader import load_workload

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [4, 8]}
  - {fields: [vector_cores], values: [2, 4]}
"""
ROW = np.arange(1)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(SPACE)
    return load_space(path)


@pytest.fixture(scope="module")
def wide(network):
    """Branches side by side: schedules of many of its layers are proven by none of the quick ways."""
    software, plans = load_framework("ideal"), load_plans("full")
    return Task(load_workload("inception-v3"), 4, network, 64, framework=software, plans=plans)


@pytest.fixture
def searched(monkeypatch):
    """States that searches for schedules of single layers were allowed, one after the other."""
    states = []

    def counted(problem, **limits):
        states.append(limits["state_limit"])
        return schedule(problem, **limits)

    monkeypatch.setattr("phaze.scheduling.solved.schedule", counted)
    return states


def test_plans_in_reach_are_told_without_a_schedule(wide, space, searched):
    evaluator = Evaluator(wide, space.table())
    config, rows = evaluator.configs[0], np.arange(space.size)
    bounds = evaluator.bounds(config, rows, np.full(space.size, inf))
    assert (bounds.lower_s < bounds.upper_s).all()
    effort = SolveLimits(lambda: inf, POINT_STATES)
    plans = evaluator.plans(config, rows, bounds.upper_s, effort)
    told = list(worked_out(evaluator, config, dict(enumerate(plans))))
    for one in told:
        one.check()
    assert not searched
    assert [one.iteration.iteration_s for one in told] == pytest.approx(bounds.upper_s.tolist(), rel=1e-12)


def test_what_another_process_reached_takes_no_more_states_than_it_took_there(wide, space, searched):
    there, here = (Evaluator(wide, space.table().take(ROW)) for _ in range(2))
    config, few = there.configs[0], SolveLimits(lambda: inf, FEW_STATES)
    reached = there.exact(config, ROW, np.array([inf]), few).upper_s
    assert searched
    searched.clear()
    (plan,) = here.plans(config, ROW, reached, SolveLimits(lambda: inf, POINT_STATES))
    assert plan.iteration_s == reached[0]
    assert set(searched) == {FEW_STATES}
    (told,) = worked_out(here, config, {0: plan})
    assert told.iteration.iteration_s == pytest.approx(plan.iteration_s, rel=1e-12)


def test_out_of_time_the_best_schedule_known_stands_with_its_bound(wide, space, searched):
    evaluator = Evaluator(wide, space.table().take(ROW))
    config = evaluator.configs[0]
    bounds, timed = evaluator.bounds(config, ROW, np.array([inf])), evaluator.timed(config)
    late = evaluator.exact(config, ROW, np.array([inf]), SolveLimits(lambda: 0.0))
    assert (late.lower_s, late.upper_s) == (bounds.lower_s, bounds.upper_s)
    assert not searched
    better = evaluator.exact(config, ROW, np.array([inf]), SolveLimits(lambda: inf, FEW_STATES))
    assert bounds.lower_s < better.lower_s < better.upper_s < bounds.upper_s
    lower, upper = timed.exact(ROW, KNOWN)  # what was found counts from then on
    assert not lower.differs(timed.exact(ROW, SolveLimits(lambda: inf, FEW_STATES))[0]).any()
    assert (lower.backward_s <= upper.backward_s).all()


def test_a_recheck_spends_what_a_search_does(wide, space, searched, monkeypatch):
    more = SolveLimits(lambda: inf, 2 * FEW_STATES)
    monkeypatch.setattr("phaze.explore.recheck.rechecked_points.WHOLE", more)
    evaluator = Evaluator(wide, space.table().take(ROW))
    effort = spend_as_searched(evaluator, evaluator.configs[0], ROW)
    assert set(searched) == {FEW_STATES, 2 * FEW_STATES}
    searched.clear()
    assert evaluator.plans(evaluator.configs[0], ROW, np.array([inf]), effort)[0] is not None
    assert not searched


@pytest.mark.parametrize("looks", [18, 25])
def test_a_stopped_search_is_told_by_what_it_knows(wide, space, searched, looks, monkeypatch):
    monkeypatch.setattr("phaze.explore.answers.exploration.NEXT_BEST", 2)
    exploration = Exploration(ExploreRequest(wide, space), SilentProgress(), StopsSoon(looks))
    outcome = exploration.search()
    searched.clear()
    document = exploration.describe(
        exploration.shown(outcome), exploration.proof(outcome), lambda: None
    ).document
    assert not searched
    assert not outcome.finished
    assert document.certificate.gap > 0
    assert document.certificate.upper_bound == pytest.approx(outcome.most, rel=1e-12)
    reached = max(outcome.frontier.throughput)
    assert document.certificate.objective_value == pytest.approx(reached, rel=1e-12)
    assert max(point.throughput_samples_per_s for point in document.frontier) == pytest.approx(
        reached, rel=1e-12
    )
