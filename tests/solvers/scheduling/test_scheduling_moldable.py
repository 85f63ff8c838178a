"""Moldable operators and a shared bandwidth: exhaustion, the worked example, modes, the checker."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import (
    Method,
    Mode,
    Operator,
    ProblemError,
    ScheduleError,
    ScheduleProblem,
    check_schedule,
    moldable_modes,
    read_instance,
    schedule,
)
from schedule_oracle import moldable_problems, optimum

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "schedule-2.md"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(moldable_problems())
def test_exact_agrees_with_exhaustion(problem):
    result = schedule(problem)
    assert result.optimal
    assert result.makespan_s == pytest.approx(optimum(problem), rel=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(moldable_problems())
def test_ilp_agrees_with_exhaustion(problem):
    result, best = schedule(problem, Method.ILP), optimum(problem)
    assert result.optimal
    assert result.makespan_s == pytest.approx(best, rel=2e-6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(moldable_problems())
def test_heuristic_brackets_the_optimum(problem):
    result, best = schedule(problem, Method.CRITICAL_PATH), optimum(problem)
    assert result.lower_bound_s <= best * (1 + 1e-9)
    assert result.makespan_s >= best * (1 - 1e-9)


@pytest.fixture
def example():
    document = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    return read_instance(document), document["expected"]["best_known_makespan_s"]


@pytest.mark.parametrize("method", [Method.EXACT, Method.ILP])
def test_worked_example_of_the_format(example, method):
    problem, expected = example
    result = schedule(problem, method)
    assert result.optimal
    assert result.makespan_s == pytest.approx(expected, rel=1e-9)
    assert optimum(problem) == pytest.approx(expected, rel=1e-9)


def test_worked_example_shares_the_bandwidth(example):
    problem, _ = example
    result = schedule(problem)
    assert result.parallel == ("attend",)
    chosen = {op.id: op.modes[result.modes[op.id]] for op in problem.operators}
    assert [chosen[name].cores for name in ("query", "key", "cache")] == [1, 1, 1]
    assert sum(chosen[name].bandwidth for name in ("query", "key", "cache")) == problem.bandwidth
    assert result.ends_s["output"] <= result.ends_s["reduce"]


def test_examples_of_modes_on_the_page(example):
    problem, _ = example
    query, _, cache = (operator.moldable for operator in problem.operators[:3])
    assert moldable_modes({1: 6e-3, 2: 4e-3, 4: 3.2e-3}, 1.5e9, 1e12) == query
    assert set(moldable_modes({1: 1e-3, 2: 0.6e-3}, 3e9, 1e12)) == set(cache)


def test_modes_of_a_computation_draw_only_what_they_need():
    assert moldable_modes({1: 4.0}, 8.0, 100.0) == (Mode(1, 4.0, 2.0),)
    assert moldable_modes({1: 4.0, 2: 3.0, 4: 3.0}, 0.0, 100.0) == (Mode(1, 4.0), Mode(2, 3.0))
    assert moldable_modes({1: 0.0}, 0.0, 100.0) == (Mode(1, 0.0),)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from([1, 2, 3, 4, 8]), st.floats(1e-6, 1.0), min_size=1),
    st.floats(0.0, 1e12),
    st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=4),
)
def test_modes_move_their_bytes_and_none_beats_another(compute_s, transfer_bytes, shares):
    modes = moldable_modes(compute_s, transfer_bytes, 1e12, shares)
    for mode in modes:
        assert mode.latency_s >= compute_s[mode.cores]
        assert mode.latency_s * mode.bandwidth == pytest.approx(transfer_bytes)
        assert mode.bandwidth <= 1e12
    rows = [(mode.cores, mode.latency_s, mode.bandwidth) for mode in modes]
    assert not any(a != b and all(x <= y for x, y in zip(a, b, strict=True)) for a in rows for b in rows)
    fastest = max(min(compute_s.values()), transfer_bytes / (max(shares) * 1e12))
    assert min(mode.latency_s for mode in modes) == fastest


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (({1: 1.0}, 1.0, 0.0), "bandwidth_bytes_per_s"),
        (({1: 1.0}, -1.0, 1.0), "transfer_bytes"),
        (({2: float("nan")}, 1.0, 1.0), "compute_s[2]"),
        (({1: 1.0}, 1.0, 1.0, (1.0, 0.0)), "shares[1]"),
        (({1: 1.0}, 1.0, 1.0, (2.0,)), "shares[0]"),
    ],
)
def test_modes_of_nonsense(arguments, path):
    with pytest.raises(ProblemError) as caught:
        moldable_modes(*arguments)
    assert caught.value.path == path


MODES = (Mode(2, 2.0, 4.0), Mode(1, 4.0, 2.0))


@pytest.fixture
def checked():
    """Two operators side by side on two cores each, a third after them: nothing can be moved."""
    operators = (
        Operator("a", ("TC",), None, None, MODES),
        Operator("b", ("TC", "VC"), None, None, MODES),
        Operator("c", ("TC",), None, 1.5, MODES),
        Operator("d", ("LINK",), 2.0),
    )
    problem = ScheduleProblem(
        operators,
        (("a", "c"),),
        {"TC": 4, "VC": 2, "LINK": 1},
        unblocked=frozenset({"LINK"}),
        bandwidth=8.0,
    )
    result = replace(
        schedule(problem),
        starts_s={"a": 0.0, "b": 0.0, "c": 2.0, "d": 1.0},
        ends_s={"a": 2.0, "b": 2.0, "c": 3.5, "d": 3.0},
        modes={"a": 0, "b": 0, "c": 0, "d": 0},
        parallel=("c",),
        cores={"a": ("TC0", "TC1"), "b": ("TC2", "TC3", "VC0", "VC1"), "c": (), "d": ("LINK0",)},
        makespan_s=3.5,
        lower_bound_s=3.5,
    )
    check_schedule(problem, result)
    return problem, result


@pytest.mark.parametrize(
    ("field", "changes", "message"),
    [
        ("cores", {"a": ("TC0",)}, "not 2 of each unit"),
        ("cores", {"a": ("TC0", "TC0")}, "not 2 of each unit"),
        ("cores", {"a": ("TC0", "TC1", "TC2")}, "not 2 of each unit"),
        ("cores", {"b": ("TC2", "TC3", "VC0")}, "not 2 of each unit"),
        ("cores", {"b": ("TC1", "TC3", "VC0", "VC1")}, "same core"),
        ("cores", {"b": ("TC2", "TC4", "VC0", "VC1")}, "no core of its units"),
        ("cores", {"a": ("TC0", "VC0")}, "no core of its units"),
        ("modes", {"a": 1}, "'a' ends at 4.0"),
        ("modes", {"a": 2}, "'a' has no mode 2"),
        ("modes", {"c": 1}, "does not list exactly"),
        ("starts_s", {"c": 1.5}, "'c' ends at 3.0"),
        ("ends_s", {"d": 9.0}, "'d' ends at 3.0"),
    ],
)
def test_checker_rejects(checked, field, changes, message):
    problem, result = checked
    broken = replace(result, **{field: {**getattr(result, field), **changes}})
    with pytest.raises(ScheduleError, match=message):
        check_schedule(problem, broken)


def test_checker_rejects_what_shifts(checked):
    problem, result = checked
    shifted = {"starts_s": {**result.starts_s, "c": 1.9}, "ends_s": {**result.ends_s, "c": 3.4}}
    early = replace(result, **shifted, makespan_s=3.4, lower_bound_s=3.0)
    with pytest.raises(ScheduleError, match="before its predecessor"):
        check_schedule(problem, early)
    with pytest.raises(ScheduleError, match="one of them is core-parallel"):
        check_schedule(replace(problem, edges=()), early)


def test_checker_rejects_an_overdrawn_bandwidth(checked):
    problem, result = checked
    check_schedule(replace(problem, bandwidth=8.0 * (1 - 1e-12)), result)
    with pytest.raises(ScheduleError, match=r"'a', 'b' together draw 8\.0"):
        check_schedule(replace(problem, bandwidth=7.9), result)
