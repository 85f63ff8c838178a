"""The search over all architectures at once against exhaustion and the exact method."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import schedule
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.batch.search import MOST_OPERATORS, search
from phaze.solvers.scheduling.batch.solve import batch_bounds
from schedule_oracle import optimum
from test_scheduling_batch import one_problem, random_batch

ROWS = 6


def found(graph, single, parallel, cores, *most):
    """Makespans and whether they are optimal, with nothing known before."""
    nothing = np.full(len(single), np.inf)
    return search(graph, single.T, parallel.T, cores, nothing, *most)


@pytest.mark.parametrize("seed", range(60))
def test_small_graphs_are_solved_as_by_exhaustion(seed):
    graph, single, parallel, cores = random_batch(seed, 3 + seed % 3, ROWS)
    cores = {unit: np.minimum(count, 3) for unit, count in cores.items()}
    best, complete = found(graph, single, parallel, cores)
    assert complete.all()
    expected = [optimum(one_problem(graph, single, parallel, cores, row)) for row in range(ROWS)]
    assert best == pytest.approx(expected, rel=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_what_is_complete_is_what_the_exact_method_proves(seed, size):
    graph, single, parallel, cores = random_batch(seed, size, ROWS)
    best, complete = found(graph, single, parallel, cores)
    for row in range(ROWS):
        result = schedule(one_problem(graph, single, parallel, cores, row))
        assert result.optimal
        assert best[row] >= result.makespan_s * (1 - 1e-9)
        assert not complete[row] or best[row] == pytest.approx(result.makespan_s, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_operators_of_equal_length_and_none(seed):
    """Ties, and operators that take no time, are where an order of starts goes wrong most easily."""
    rng = np.random.default_rng(seed)
    graph, single, parallel, cores = random_batch(seed, 6, ROWS)
    single = rng.choice([0.0, 1.0, 2.0], size=single.shape)
    parallel = np.where(np.isfinite(parallel), np.ceil(single / 2), np.inf)
    best, complete = found(graph, single, parallel, cores)
    assert complete.all()
    for row in range(ROWS):
        assert best[row] == pytest.approx(
            schedule(one_problem(graph, single, parallel, cores, row)).makespan_s
        )


def test_an_answer_does_not_depend_on_the_others(monkeypatch):
    graph, single, parallel, cores = random_batch(3, 8, 40)
    together, complete = found(graph, single, parallel, cores)
    monkeypatch.setattr("phaze.solvers.scheduling.batch.search.BLOCK", 7)
    again, _ = found(graph, single, parallel, cores)
    assert np.array_equal(together, again)
    for row in range(40):
        at = slice(row, row + 1)
        one, done = found(graph, single[at], parallel[at], {u: n[at] for u, n in cores.items()})
        assert (one[0], done[0]) == (together[row], complete[row])


def test_a_known_makespan_is_kept_where_nothing_is_shorter():
    graph, single, parallel, cores = random_batch(5, 7, ROWS)
    best, _ = found(graph, single, parallel, cores)
    again, complete = search(graph, single.T, parallel.T, cores, best)
    assert complete.all()
    assert np.array_equal(best, again)
    shorter, _ = search(graph, single.T, parallel.T, cores, best * 0.9)
    assert np.array_equal(shorter, best * 0.9)


def test_too_many_beginnings_are_given_up_with_a_schedule():
    graph, single, parallel, cores = random_batch(11, 7, 40)
    best, complete = found(graph, single, parallel, cores, 2)
    optimal, proven = found(graph, single, parallel, cores)
    assert proven.all()
    assert not complete.all()
    assert np.isfinite(best).all()
    assert (best >= optimal * (1 - 1e-12)).all()
    assert best[complete] == pytest.approx(optimal[complete])


def test_large_graphs_are_left_alone():
    count = MOST_OPERATORS + 1
    graph = BatchGraph((("TC",),) * count, ())
    times, cores = np.ones((2, count)), {"TC": np.array([1, 2])}
    best, complete = found(graph, times, times, cores)
    assert not complete.any()
    assert np.isinf(best).all()


def test_bounds_of_most_small_graphs_meet():
    batches = (batch_bounds(*random_batch(seed, 7, 20)) for seed in range(20))
    assert np.mean([bounds.lower_s == bounds.upper_s for bounds in batches]) > 0.8
