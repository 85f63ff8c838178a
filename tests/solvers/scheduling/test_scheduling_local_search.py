"""Local search and the guide: valid schedules, valid bounds, the same compiled or not."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Method, check_schedule, schedule
from phaze.solvers.scheduling.improve import kernel_moves, local_search
from phaze.solvers.scheduling.improve.local_search import (
    LocalSearchLimits,
    Start,
    _graph,
    _work,
    improve,
    polish,
    suggest,
)
from phaze.solvers.scheduling.indexed_problem import index_problem
from phaze.solvers.scheduling.list_scheduling import incumbent
from phaze.solvers.scheduling.machine_code import compiled
from phaze.solvers.scheduling.schedule_bounds import critical_path_s
from phaze.solvers.scheduling.schedule_plan import Outcome, SearchLimits
from phaze.solvers.scheduling.schedule_solver import _result
from schedule_oracle import problems
from test_scheduling_methods import hard_problem
from test_scheduling_relaxation import moldable


def check(problem, outcome):
    """The plan passes the independent checker and is no shorter than the optimum."""
    ix = index_problem(problem)
    check_schedule(problem, _result(ix, outcome, Method.EXACT, 0.0))
    optimum = schedule(problem).makespan_s
    assert outcome.plan.makespan_s >= optimum * (1 - 1e-9)
    assert outcome.lower_s <= optimum * (1 + 1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.one_of(problems(most=7), moldable()), st.randoms(use_true_random=False))
def test_any_start_gives_a_valid_schedule(problem, rng):
    ix = index_problem(problem)
    start = Start([rng.randrange(len(row)) for row in ix.modes], [rng.random() for _ in ix.modes])
    check(problem, Outcome(improve(ix, start, LocalSearchLimits(20, inf)), 0.0))


def test_it_finds_the_optimum_and_stops_there():
    problem = hard_problem(2)
    ix, best = index_problem(problem), schedule(problem).makespan_s
    start = Start([0] * ix.size, [0.0] * ix.size)
    few, many = (improve(ix, start, LocalSearchLimits(tries, inf, best * (1 + 1e-9))) for tries in (0, 3_000))
    assert few.makespan_s > best * 1.01
    assert many.makespan_s == pytest.approx(best)


def test_compiled_moves_do_the_same():
    pytest.importorskip("numba")
    ix = index_problem(hard_problem(2))
    graph = _graph(ix)
    works = [_work(ix, graph, Start([0] * ix.size, [0.0] * ix.size)) for _ in range(2)]
    for work, names in zip(works, (vars(kernel_moves), compiled(kernel_moves)), strict=True):
        kernel_moves.judge(graph, work, 0.0)
        names["anneal"](graph, work, np.flatnonzero(graph.modes > 1), 200, 0.02)
    for plain, fast in zip(*works, strict=True):
        np.testing.assert_array_equal(plain, fast)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(problem=st.one_of(problems(most=7), moldable()))
def test_the_guide_keeps_bound_and_plan_valid(problem, monkeypatch):
    monkeypatch.setattr(local_search, "TRIES", 20)
    ix = index_problem(problem)
    plan, _ = incumbent(ix, 0.0, inf)
    outcome = Outcome(plan, critical_path_s(ix), {"states": 0})
    suggest(ix, outcome, SearchLimits(inf))
    polish(ix, outcome, SearchLimits(inf))
    check(problem, outcome)
    assert outcome.plan.makespan_s <= plan.makespan_s
