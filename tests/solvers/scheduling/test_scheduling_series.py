"""Problems that fall apart in time: the parts add up to the whole."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Operator, ScheduleProblem, schedule
from phaze.solvers.scheduling.exact.exact_schedule import SearchLimits, solve_exact
from phaze.solvers.scheduling.indexed_problem import index_problem
from phaze.solvers.scheduling.schedule_solver import solve_series, split
from schedule_oracle import optimum, problems

NO_LIMITS = SearchLimits(inf)


def in_series(problem, times=2, spine=True):
    """The problem `times` over, each after the last, with an operator between them or every pair ordered."""
    operators, edges, ends = [], [], []
    for k in range(times):
        names = [f"{k}/{op.id}" for op in problem.operators]
        operators += [
            Operator(name, op.units, op.latency_s, op.parallel_latency_s)
            for name, op in zip(names, problem.operators, strict=True)
        ]
        edges += [(f"{k}/{a}", f"{k}/{b}") for a, b in problem.edges]
        edges += [(a, b) for a in ends for b in names]
        ends = names
        if spine:
            operators.append(Operator(f"{k}/spine", ("VC",), 1.0, 0.5))
            edges += [(name, f"{k}/spine") for name in names]
            ends = [f"{k}/spine"]
    return ScheduleProblem(
        tuple(operators), tuple(edges), problem.capacity, problem.pairing, problem.unblocked
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems(most=5), st.booleans(), st.integers(1, 3))
def test_parts_add_up_to_the_whole(problem, spine, times):
    whole = in_series(problem, times, spine=spine)
    assert len(split(index_problem(whole))) >= times
    expected = times * (optimum(problem) + (0.5 if spine else 0.0))
    assert schedule(whole).makespan_s == pytest.approx(expected, rel=1e-9)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problems(most=8))
def test_split_is_exact_and_finest(problem):
    ix = index_problem(problem)
    parts = split(ix)
    assert sorted(i for part in parts for i in part) == list(range(ix.size))
    cuts = {sum(1 << i for part in parts[:k] for i in part) for k in range(1, len(parts) + 1)}
    everything = (1 << ix.size) - 1
    for before in range(1, everything + 1):
        after = everything & ~before
        ordered = all(ix.descendants[i] & after == after for i in range(ix.size) if before >> i & 1)
        assert ordered == (before in cuts)
    parted, whole = solve_series(ix, NO_LIMITS, solve_exact), solve_exact(ix, NO_LIMITS)
    assert parted.plan.makespan_s == pytest.approx(whole.plan.makespan_s, rel=1e-9)


def test_alike_parts_are_solved_once():
    part = ScheduleProblem(
        tuple(Operator(name, ("TC",), 3.0, 2.0) for name in "abc"), (("a", "c"),), {"TC": 2, "VC": 1}
    )
    solved = []

    def count(ix, limits):
        solved.append(ix.size)
        return solve_exact(ix, limits)

    outcome = solve_series(index_problem(in_series(part, 4)), NO_LIMITS, count)
    assert solved == [1, 3]
    assert outcome.plan.makespan_s == pytest.approx(4 * (optimum(part) + 0.5))


def test_limits_are_shared_among_the_parts():
    operators = tuple(Operator(name, ("TC",), 1.0) for name in "abcd")
    ix = index_problem(
        ScheduleProblem(operators, (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")), {"TC": 2})
    )
    seen = []

    def note(part, limits):
        seen.append((part.size, limits.cutoff_s, limits.states))
        outcome = solve_exact(part, limits)
        outcome.work["states"] = 10
        return outcome

    solve_series(ix, SearchLimits(inf, 5.0, 100), note)
    assert seen == [(1, (5.0 - 1.0) / 2, 50), (2, 5.0 - 2.0, 90)]
    solve_series(ix, NO_LIMITS, note)
    assert seen[2:] == [(1, inf, None), (2, inf, None)]


def test_time_that_easy_parts_leave_goes_to_the_hard_one(monkeypatch):
    """Where it stands does not matter, and neither do two kinds that need none of their share."""
    operators = tuple(Operator(name, ("TC",), 1.0) for name in "abcd")
    edges = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    ix = index_problem(ScheduleProblem(operators, edges, {"TC": 2}))
    clock, given = [100.0], []
    monkeypatch.setattr("phaze.solvers.scheduling.schedule_solver.monotonic", lambda: clock[0])
    monkeypatch.setattr("phaze.solvers.scheduling.schedule_plan.monotonic", lambda: clock[0])

    def solver(hard, needs_s):
        def tried(part, limits):
            outcome, share = solve_exact(part, NO_LIMITS), limits.deadline - clock[0]
            given.append((part.size, share))
            if part.size == hard:
                clock[0] += min(needs_s, share)
                outcome.lower_s = 0.5 if share < needs_s else outcome.lower_s
            return outcome

        return tried

    for hard in (1, 2):
        for needs_s, proven in ((50.0, True), (70.0, False)):
            given.clear()
            clock[0] = 100.0
            outcome = solve_series(ix, SearchLimits(164.0), solver(hard, needs_s))
            assert outcome.proven is proven
            assert [size for size, _ in given] == [1, 2, hard]
            assert clock[0] == (164.0 if not proven else 100.0 + given[hard - 1][1] + needs_s)
