"""Sequences of phases over many closed sets: against all pairs of sets, exhaustion, and themselves compiled."""

from __future__ import annotations

import numpy as np
import pytest
from phaze.solvers.scheduling import Operator, ScheduleProblem, schedule
from phaze.solvers.scheduling.batch import phases
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.batch.phases import bounds_in_phases, phase_space
from phaze.solvers.scheduling.batch.solve import batch_bounds, bounds_in_many_phases
from phaze.solvers.scheduling.phases import kernel_phases, phase_sequences
from phaze.solvers.scheduling.phases.phase_sequences import sequences
from schedule_oracle import optimum
from test_scheduling_batch import one_problem, random_batch

SLOTS = 1 << 12


def times(graph, single, parallel):
    """Durations (A, O) in a group and alone: operators off the cores take none in a group."""
    return np.where(graph.core, single, 0.0), parallel


@pytest.mark.parametrize("seed", range(30))
def test_few_groups_are_as_good_as_all(seed):
    """A shortest path over all pairs of closed sets, groups as long as their longest path, is the second way."""
    graph, single, parallel, _ = random_batch(seed, 4 + seed % 4, 5)
    beside, alone = times(graph, single, parallel)
    space = phase_space(graph)
    expected, _ = phases._shortest(graph, space, beside.T.copy(), alone.T.copy(), [])
    found, phase, whole = sequences(graph.successors, graph.order, beside, alone, SLOTS)
    assert found == pytest.approx(expected, rel=1e-12)
    for a in range(len(found)):
        assert length_s(graph, beside[a], alone[a], phase[a], whole[a]) == pytest.approx(found[a])


def length_s(graph, beside, alone, phase, whole):
    """Time of a sequence of phases, each as long as its longest path; edges never lead back."""
    total = 0.0
    for number in range(phase.max() + 1):
        members = set(np.flatnonzero(phase == number).tolist())
        assert len(members) == 1 or not whole[list(members)].any()
        ends = {}
        for i in graph.order:
            if i in members:
                time = alone[i] if whole[i] else beside[i]
                ends[i] = time + max((ends[j] for j in graph.above[i] if j in members), default=0.0)
        total += max(ends.values(), default=0.0)
    assert all(phase[i] <= phase[j] for i in range(graph.size) for j in graph.successors[i])
    return total


@pytest.mark.parametrize("seed", range(30))
def test_many_phases_enclose_the_optimum(seed, monkeypatch):
    monkeypatch.setattr(phases, "phase_space", lambda graph: None)
    graph, single, parallel, cores = random_batch(seed, 5, 3)
    cores = {unit: np.minimum(count, 2 + seed % 2) for unit, count in cores.items()}
    lower, upper = bounds_in_phases(graph, single.T.copy(), parallel.T.copy(), cores, SLOTS)
    assert bounds_in_phases(graph, single.T.copy(), parallel.T.copy(), cores) is None
    for row in range(3):
        expected = optimum(one_problem(graph, single, parallel, cores, row))
        assert lower[row] <= expected * (1 + 1e-9)
        assert upper[row] >= expected * (1 - 1e-9)


def inception_gradients():
    """Three branches of gradients: by the input one after the other, by the weights beside them."""
    rng = np.random.default_rng(1)
    units, edges = [], []
    for length in (1, 2, 2):
        before = None
        for _ in range(length):
            first = len(units)
            units += [("VC",), ("TC",), ("TC",)]
            edges += [(first, first + 1), (first, first + 2)]
            edges += [] if before is None else [(before, first)]
            before = first + 1
    graph = BatchGraph(tuple(units), tuple(edges))
    single = rng.uniform(1.0, 4.0, (3, graph.size)) * np.where([u == ("TC",) for u in units], 4.0, 0.3)
    parallel = single * np.where([u == ("TC",) for u in units], 0.2, 0.7)
    return graph, single, parallel, {"TC": np.array([16, 16, 8]), "VC": np.array([16, 4, 8])}


def test_gradients_of_branches_are_settled_without_a_search():
    graph, single, parallel, cores = inception_gradients()
    assert phase_space(graph) is None
    known = batch_bounds(graph, single, parallel, cores)
    assert (known.lower_s < 0.95 * known.upper_s).all()
    found = bounds_in_many_phases(graph, single, parallel, cores, known)
    assert (found.lower_s == found.upper_s).sum() >= 2
    # By paths and work alone a search takes thousands of states.
    result = schedule(one_problem(graph, single, parallel, cores, 0), time_limit_s=600.0, state_limit=200)
    assert result.optimal
    assert result.makespan_s == pytest.approx(found.upper_s[0], rel=1e-9)


def test_one_problem_has_the_phases_that_it_has_among_others():
    graph, single, parallel, _ = inception_gradients()
    together = sequences(graph.successors, graph.order, single, parallel, SLOTS)
    for row in range(3):
        at = slice(row, row + 1)
        alone = sequences(graph.successors, graph.order, single[at], parallel[at], SLOTS)
        assert all(np.array_equal(one[0], every[row]) for one, every in zip(alone, together, strict=True))


@pytest.mark.soak
def test_compiled_functions_find_the_same(monkeypatch):
    graph, single, parallel, _ = inception_gradients()
    monkeypatch.setattr(phase_sequences, "kernel", phase_sequences.Kernel)
    plain = sequences(graph.successors, graph.order, single[:1], parallel[:1], SLOTS)
    monkeypatch.setattr(phase_sequences, "MANY_OPERATORS", 0)
    compiled = sequences(graph.successors, graph.order, single[:1], parallel[:1], SLOTS)
    assert all(np.array_equal(one, other) for one, other in zip(plain, compiled, strict=True))


def test_a_table_that_is_too_small_tells_nothing(monkeypatch):
    graph, single, parallel, cores = inception_gradients()
    least, *_ = sequences(graph.successors, graph.order, single, parallel, 8)
    assert (least == 0.0).all()
    monkeypatch.setattr("phaze.solvers.scheduling.batch.solve.SLOTS", 8)
    known = batch_bounds(graph, single, parallel, cores)
    found = bounds_in_many_phases(graph, single, parallel, cores, known)
    assert np.array_equal(found.lower_s, known.lower_s)
    assert np.array_equal(found.upper_s, known.upper_s)


def test_graphs_that_no_mask_holds_are_left_alone():
    count = phase_sequences.MOST_OPERATORS + 1
    least, *_ = sequences([[]] * count, range(count), np.ones((1, count)), np.ones((1, count)), SLOTS)
    assert least[0] == 0.0
    operators = tuple(Operator(str(i), ("TC",), 1.0, 0.9) for i in range(count))
    assert schedule(ScheduleProblem(operators, (), {"TC": count})).makespan_s == 1.0


def test_a_moment_within_a_group_is_bounded_by_who_still_runs():
    """Of two operators one runs for 2 s more: the other takes 3 s beside it, or 1 s alone after it."""
    problem = phase_sequences.problem_of([[], []], range(2))
    problem.beside[:], problem.alone[:] = (5.0, 3.0), (4.0, 1.0)
    table = phase_sequences.table_of(2, 16)
    for left, expected in ((2.0, 3.0), (1.5, 2.5), (0.0, 1.0)):
        table.delay[0] = left
        assert kernel_phases.resumed(problem, table, 0b01, left) == expected
