"""What must hold of the optimum whatever the problem: more freedom never hurts, names and order do not matter."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Method, Mode, Operator, ScheduleProblem, schedule
from schedule_oracle import BANDWIDTH, moldable_problems, problems

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)
ANY = st.one_of(problems(most=7), moldable_problems())
SEEDS = st.integers(0, 2**20)


def best_s(problem):
    result = schedule(problem)
    assert result.optimal
    return result.makespan_s


def never_worse(changed, problem):
    assert best_s(changed) <= best_s(problem) * (1 + 1e-9)


@PROPERTY
@given(moldable_problems(), SEEDS)
def test_one_more_mode_never_hurts(problem, seed):
    rng = random.Random(seed)
    i = rng.randrange(len(problem.operators))
    operator = problem.operators[i]
    cores = rng.randint(1, min(problem.capacity[unit] for unit in operator.units))
    mode = Mode(cores, rng.choice([0.5, 1.0, 3.0]), rng.choice([0.0, BANDWIDTH / 2, BANDWIDTH]))
    operators = list(problem.operators)
    operators[i] = replace(operator, moldable=(*operator.moldable, mode))
    never_worse(replace(problem, operators=tuple(operators)), problem)


@PROPERTY
@given(moldable_problems(), st.floats(1.0, 3.0))
def test_more_bandwidth_never_hurts(problem, factor):
    never_worse(replace(problem, bandwidth=problem.bandwidth * factor), problem)


@PROPERTY
@given(ANY, st.sampled_from(["TC", "VC", "LINK"]))
def test_one_more_core_never_hurts(problem, unit):
    more = {**problem.capacity, unit: problem.capacity[unit] + 1}
    never_worse(replace(problem, capacity=more), problem)


@PROPERTY
@given(ANY, SEEDS)
def test_one_edge_less_never_hurts(problem, seed):
    edges = list(problem.edges)
    if edges:
        edges.pop(random.Random(seed).randrange(len(edges)))
    never_worse(replace(problem, edges=tuple(edges)), problem)


@PROPERTY
@given(ANY, SEEDS)
def test_the_order_of_operators_does_not_matter(problem, seed):
    operators, edges = list(problem.operators), list(problem.edges)
    random.Random(seed).shuffle(operators)
    random.Random(seed).shuffle(edges)
    shuffled = replace(problem, operators=tuple(operators), edges=tuple(edges))
    assert best_s(shuffled) == pytest.approx(best_s(problem), rel=1e-9)


@PROPERTY
@given(moldable_problems())
def test_the_names_of_units_do_not_matter(problem):
    names = {"LINK": "a", "VC": "b", "TC": "c"}
    renamed = replace(
        problem,
        operators=tuple(replace(op, units=tuple(names[u] for u in op.units)) for op in problem.operators),
        capacity={name: problem.capacity[unit] for unit, name in names.items()},
        unblocked=frozenset(names[unit] for unit in problem.unblocked),
    )
    assert best_s(renamed) == pytest.approx(best_s(problem), rel=1e-9)


@PROPERTY
@given(ANY, st.floats(1e-9, 1e9))
def test_the_optimum_scales_with_the_latencies(problem, factor):
    def scaled(seconds):
        return None if seconds is None else seconds * factor

    operators = tuple(
        replace(
            op,
            latency_s=scaled(op.latency_s),
            parallel_latency_s=scaled(op.parallel_latency_s),
            moldable=tuple(replace(mode, latency_s=scaled(mode.latency_s)) for mode in op.moldable),
        )
        for op in problem.operators
    )
    expected = best_s(problem) * factor
    assert best_s(replace(problem, operators=operators)) == pytest.approx(expected, rel=1e-9)


def heads(count, latency_s):
    """Attention heads that differ in nothing, between a source and what follows some of them."""
    operators = [Operator("source", ("VC",), 0.3)]
    operators += [Operator(f"head{i}", ("TC",), 1.0, latency_s) for i in range(count)]
    operators += [Operator(f"norm{i}", ("VC",), 0.7, 0.4) for i in range(3)]
    edges = tuple(("source", f"head{i}") for i in range(count))
    return ScheduleProblem(tuple(operators), edges, {"TC": 2, "VC": 2})


def test_operators_that_differ_in_nothing_are_told_apart_once():
    twins = heads(7, 0.6)
    result = schedule(twins, Method.ILP)
    assert result.optimal
    assert result.makespan_s == pytest.approx(best_s(twins), rel=2e-6)
    assert result.work["nodes"] < 1000
