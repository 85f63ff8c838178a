"""Exact methods against exhaustion; the checker against corrupted schedules."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from phaze.solvers.scheduling import (
    Method,
    Mode,
    Operator,
    ProblemError,
    ScheduleError,
    ScheduleProblem,
    Status,
    check_schedule,
    critical_path,
    schedule,
)
from schedule_oracle import optimum, problems


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems(most=7, pairing=False))
def test_exact_agrees_with_exhaustion(problem):
    result = schedule(problem)
    assert result.optimal
    assert result.makespan_s == pytest.approx(optimum(problem), rel=1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problems(most=7, pairing=True, link=False))
def test_exact_agrees_with_exhaustion_where_cores_are_paired(problem):
    assert schedule(problem).makespan_s == pytest.approx(optimum(problem), rel=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems(most=8))
def test_ilp_agrees_with_exact(problem):
    exact, ilp = schedule(problem), schedule(problem, Method.ILP)
    assert ilp.status is Status.OPTIMAL
    assert ilp.makespan_s == pytest.approx(exact.makespan_s, rel=2e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems(most=8))
def test_heuristic_brackets_exact(problem):
    exact, quick = schedule(problem), schedule(problem, Method.CRITICAL_PATH)
    assert quick.lower_bound_s <= exact.makespan_s * (1 + 1e-9)
    assert quick.makespan_s >= exact.makespan_s * (1 - 1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(problems(most=7))
def test_same_problem_same_schedule(problem):
    first, second = schedule(problem), schedule(problem)
    assert (first.starts_s, first.parallel, first.cores) == (second.starts_s, second.parallel, second.cores)


def _overlap_problem():
    """A long collective beside two operators of which the fast mode takes the whole chip."""
    operators = (
        Operator("send", ("LINK",), 10.0),
        Operator("a", ("TC",), 8.0, 4.0),
        Operator("b", ("VC",), 8.0, 5.0),
    )
    return ScheduleProblem(operators, (), {"TC": 2, "VC": 2, "LINK": 1}, unblocked=frozenset({"LINK"}))


def test_the_link_runs_beside_core_parallel_operators():
    assert schedule(_overlap_problem()).makespan_s == 10.0


def test_without_unblocked_units_core_parallel_operators_stop_the_link():
    problem = _overlap_problem()
    strict = ScheduleProblem(problem.operators, problem.edges, problem.capacity)
    result = schedule(strict)
    assert result.makespan_s == 10.0
    assert result.parallel == ()


def test_empty_problem():
    assert schedule(ScheduleProblem((), (), {"TC": 1})).makespan_s == 0.0


def test_operators_without_duration_hold_nothing():
    operators = (
        Operator("a", ("TC",), 3.0, 3.0),
        Operator("b", ("TC",), 0.0, 0.0),
        Operator("c", ("VC",), 3.0, 3.0),
    )
    result = schedule(ScheduleProblem(operators, (("b", "c"),), {"TC": 1, "VC": 1}))
    assert result.makespan_s == 3.0


def test_critical_path_reports_slack_and_conflicts():
    operators = tuple(
        Operator(name, ("TC",), latency) for name, latency in [("a", 1.0), ("b", 4.0), ("c", 2.0)]
    )
    report = critical_path(ScheduleProblem(operators, (("a", "b"),), {"TC": 1}))
    assert report.length_s == 5.0
    assert report.slack_s == {"a": 0.0, "b": 0.0, "c": 3.0}
    assert report.conflicts == {"TC": 2}


@pytest.fixture
def checked():
    operators = (
        Operator("a", ("TC",), 2.0, 1.5),
        Operator("b", ("TC", "VC"), 2.0, 1.5),
        Operator("c", ("VC",), 2.0, None),
    )
    problem = ScheduleProblem(operators, (("a", "c"),), {"TC": 2, "VC": 2}, pairing=True)
    result = schedule(problem)
    check_schedule(problem, result)
    return problem, result


def at(**starts_s):
    """Changed starts, every operator for two seconds."""
    starts_s = {"a": 0.0, "b": 0.0, "c": 2.0} | starts_s
    return {"starts_s": starts_s, "ends_s": {name: start + 2.0 for name, start in starts_s.items()}}


def corrupt(result, **changes):
    return replace(result, lower_bound_s=0.0, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "starts_s": {"a": 0.0, "b": 0.0, "c": 1.0},
                "ends_s": {"a": 2.0, "b": 2.0, "c": 3.0},
                "makespan_s": 3.0,
            },
            "before its predecessor",
        ),
        (
            at(a=-1.0),
            "before time zero",
        ),
        (
            at(c=3.0),
            "makespan is",
        ),
        ({"starts_s": {"a": 0.0, "b": 0.0}}, "exactly the operators"),
        ({"modes": {"a": 0, "b": 0, "c": 1}}, "'c' has no mode 1"),
        ({"parallel": ("b",)}, "does not list exactly"),
        ({"modes": {"a": 0, "b": 1, "c": 0}}, "does not list exactly"),
        (
            {
                "modes": {"a": 0, "b": 1, "c": 0},
                "parallel": ("b",),
                "ends_s": {"a": 2.0, "b": 1.5, "c": 4.0},
            },
            "one of them is core-parallel",
        ),
        ({"ends_s": {"a": 2.0, "b": 2.5, "c": 4.0}}, "reported as 2.5"),
        ({"cores": {"a": ("TC0",), "b": ("TC1", "VC0"), "c": ("VC1",)}}, "not one pair"),
        ({"cores": {"a": ("TC1",), "b": ("TC1", "VC1"), "c": ("VC0",)}}, "same core"),
        ({"cores": {"a": ("TC2",), "b": ("TC1", "VC1"), "c": ("VC0",)}}, "no core of its units"),
        ({"cores": {"a": (), "b": ("TC1", "VC1"), "c": ("VC0",)}}, "not 1 of each unit"),
    ],
)
def test_checker_rejects(checked, changes, message):
    problem, result = checked
    base = {
        **at(),
        "modes": {"a": 0, "b": 0, "c": 0},
        "parallel": (),
        "cores": {"a": ("TC0",), "b": ("TC1", "VC1"), "c": ("VC0",)},
        "makespan_s": 4.0,
    }
    check_schedule(problem, corrupt(result, **base))
    with pytest.raises(ScheduleError, match=message):
        check_schedule(problem, corrupt(result, **{**base, **changes}))


def test_checker_rejects_a_bound_above_the_makespan(checked):
    problem, result = checked
    with pytest.raises(ScheduleError, match="lower bound"):
        check_schedule(problem, replace(result, lower_bound_s=result.makespan_s * 1.1))


def _moldable(*modes):
    return Operator("a", ("TC",), 1.0, None, modes)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"operators": (Operator("a", (), 1.0),)}, "operators[0].units"),
        ({"operators": (Operator("a", ("GPU",), 1.0),)}, "operators[0].units"),
        ({"operators": (Operator("a", ("TC",), float("nan")),)}, "operators[0].latency_s"),
        ({"operators": (Operator("a", ("LINK",), 1.0, 1.0),)}, "operators[0].parallel_latency_s"),
        ({"operators": (Operator("a", ("TC",), 1.0),) * 2}, "operators[1].id"),
        ({"edges": (("a", "a"),)}, "edges"),
        ({"edges": (("a", "z"),)}, "edges[0][1]"),
        ({"capacity": {"TC": 0, "LINK": 1}}, "capacity.TC"),
        ({"capacity": {}}, "capacity"),
        ({"capacity": {"TC": 1, "LINK": 1, "TC1": 1}}, "capacity.TC1"),
        ({"operators": (Operator("a", ("TC",), None),)}, "operators[0]"),
        ({"operators": (_moldable(Mode(2, 1.0)),)}, "operators[0].moldable[0].cores"),
        ({"operators": (_moldable(Mode(0, 1.0)),)}, "operators[0].moldable[0].cores"),
        ({"operators": (_moldable(Mode(1, -1.0)),)}, "operators[0].moldable[0].latency_s"),
        ({"operators": (_moldable(Mode(1, 1.0), Mode(1, 1.0, 2.0)),)}, "operators[0].moldable[1].bandwidth"),
        ({"operators": (_moldable(Mode(1, 1.0)),), "pairing": True}, "operators[0].moldable"),
        ({"bandwidth": float("nan")}, "bandwidth"),
    ],
)
def test_problem_names_the_fault(fields, path):
    base = {
        "operators": (Operator("a", ("TC",), 1.0),),
        "edges": (),
        "capacity": {"TC": 1, "LINK": 1},
        "unblocked": frozenset({"LINK"}),
    }
    with pytest.raises(ProblemError) as caught:
        ScheduleProblem(**{**base, **fields})
    assert caught.value.path == path


def hard_problem(tensor_cores=1):
    """Towers of tensor and vector operators on too few cores: neither list schedules nor phases settle it."""
    rng = random.Random(7)
    operators, edges = [], []
    for i in range(14):
        latency = rng.uniform(1.0, 4.0)
        operators.append(
            Operator(str(i), (("TC",), ("VC",))[i % 2], latency, latency * rng.uniform(0.5, 0.8))
        )
        if i >= 3:
            edges.append((str(i - 3), str(i)))
    return ScheduleProblem(tuple(operators), tuple(edges), {"TC": tensor_cores, "VC": 2})


def test_state_limit_is_reproducible_and_proves_less():
    problem = hard_problem()
    best = schedule(problem)
    assert best.optimal
    assert best.work["states"] > 5
    some = [schedule(problem, state_limit=5) for _ in range(2)]
    assert some[0].work["states"] == 5
    assert not some[0].optimal
    assert some[0].lower_bound_s < best.makespan_s <= some[0].makespan_s
    assert (some[0].makespan_s, some[0].lower_bound_s) == (some[1].makespan_s, some[1].lower_bound_s)
    none = schedule(problem, state_limit=0)
    assert none.work["states"] == 0
    assert none.lower_bound_s <= some[0].lower_bound_s


def test_cutoff_stops_at_the_bound():
    problem = hard_problem()
    best, least = schedule(problem), schedule(problem, state_limit=0).lower_bound_s
    cutoff = (least + best.makespan_s) / 2
    cut = schedule(problem, cutoff_s=cutoff)
    assert not cut.optimal
    assert cutoff <= cut.lower_bound_s <= best.makespan_s <= cut.makespan_s
    assert cut.work["states"] < best.work["states"]
    beyond = schedule(problem, cutoff_s=best.makespan_s * 2)
    assert beyond.optimal
    assert beyond.makespan_s == best.makespan_s
