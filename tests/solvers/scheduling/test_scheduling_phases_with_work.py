"""Sequences of phases that owe work: against shortest sequences, exhaustion, and themselves compiled."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from phaze.solvers.scheduling import Operator, ScheduleProblem, schedule
from phaze.solvers.scheduling.indexed_problem import index_problem
from phaze.solvers.scheduling.mode_relaxation import weightings
from phaze.solvers.scheduling.phases import phases_with_work
from phaze.solvers.scheduling.phases.phase_sequences import sequences
from phaze.solvers.scheduling.phases.phases_with_work import PhaseSearch, arrays_of, priced
from phaze.solvers.scheduling.phases.priced_phases import PricedPhases, on_simplex
from phaze.solvers.scheduling.schedule_bounds import lower_bounds
from phaze.solvers.scheduling.schedule_plan import SearchLimits
from schedule_oracle import moldable_problems, optimum, problems
from test_scheduling_batch import one_problem, random_batch
from test_scheduling_phases import length_s

LABELS = 1 << 12

NEVER = SearchLimits(inf)

PARTS = phases_with_work.kernel_sets, phases_with_work.kernel_trunk, phases_with_work.kernel_labels


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    """Plain functions: what is built in the background changes no answer."""

    names = {name: value for part in PARTS for name, value in vars(part).items()}
    monkeypatch.setattr(phases_with_work, "_functions", lambda: SimpleNamespace(names=names))


def searched(problem, upper_s, *, work=True, greed=1.0, labels=inf, prices=False):
    ix = index_problem(problem)
    bounds = lower_bounds(ix, upper_s)
    rows = weightings(ix, bounds) if work else np.zeros((1, ix.size, max(map(len, ix.modes))))
    known = priced(ix, bounds, rows, upper_s, NEVER) if prices else None
    search = PhaseSearch(ix, bounds, upper_s, rows, LABELS, greed, known)
    search.run(labels, NEVER)
    return search


@pytest.mark.parametrize("seed", range(30))
def test_without_work_it_is_the_shortest_sequence(seed):
    graph, single, parallel, cores = random_batch(seed, 5 + seed % 4, 1)
    problem = one_problem(graph, single, parallel, cores, 0)
    upper = 10.0 * (single.sum() + 1.0)
    search = searched(problem, upper, work=False)
    ix = index_problem(problem)
    beside = np.array(
        [[min((t for t, w in zip(*row, strict=True) if not w), default=inf)] for row in rows(ix)]
    ).T
    alone = np.array([[min((t for t, w in zip(*row, strict=True) if w), default=inf)] for row in rows(ix)]).T
    beside, alone = np.where(ix.core, beside, 0.0), np.where(ix.core, alone, inf)
    expected, _, _ = sequences(ix.succs, ix.order, beside, alone, 1 << 12)
    assert search.lower_s == pytest.approx(expected[0], rel=1e-9)
    order = search.order()
    ranks = {number: rank for rank, number in enumerate(sorted(set(order.number)))}
    phase = np.array([ranks[number] for number in order.number])
    assert length_s(graph, beside[0], alone[0], phase, np.array(order.alone)) == pytest.approx(expected[0])


def rows(ix):
    """Latencies of every operator and whether each takes the whole chip."""
    return list(zip(ix.latency, ix.whole, strict=True))


@settings(max_examples=80, deadline=None)
@given(problems(pairing=False))
def test_never_above_the_optimum(problem):
    enclosed(problem)


@settings(max_examples=60, deadline=None)
@given(moldable_problems(most=5))
def test_never_above_the_optimum_of_moldable_operators(problem):
    enclosed(problem)


def enclosed(problem):
    best = optimum(problem)
    for upper in (best, best * 1.05, best * 1.5):
        if upper > 0.0:
            search = searched(problem, upper)
            assert search.lower_s <= best * (1 + 1e-9)
            assert search.lower_s >= searched(problem, upper, work=False).lower_s * (1 - 1e-9)
            cut = searched(problem, upper, labels=3)
            assert cut.lower_s <= search.lower_s * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(problems(pairing=False))
def test_never_above_the_optimum_at_prices(problem):
    enclosed_at_prices(problem)


@settings(max_examples=60, deadline=None)
@given(moldable_problems(most=5))
def test_never_above_the_optimum_of_moldable_operators_at_prices(problem):
    enclosed_at_prices(problem)


@pytest.mark.parametrize("seed", range(40))
def test_never_above_the_optimum_of_wider_graphs_at_prices(seed):
    graph, single, parallel, cores = random_batch(seed, 8 + seed % 2, 1)
    cores = {unit: np.minimum(count, 2) for unit, count in cores.items()}
    enclosed_at_prices(one_problem(graph, single, parallel, cores, 0))


@pytest.mark.parametrize("size", [0.1, 1.0, 1e3, 1e16, 1e300])
def test_prices_of_any_size_have_a_nearest_one_that_may_be(size):
    """No move towards another allowed price comes nearer; 1 is not lost beside large ones."""
    rng = np.random.default_rng(3)
    for prices in size * rng.normal(size=(20, 6)):
        found = on_simplex(prices)
        assert (found >= 0.0).all() and found.sum() <= 1.0 + 1e-12
        away = (prices - found) / max(size, 1.0)
        corners = [*np.eye(6), np.zeros(6)]
        assert max(float(away @ (corner - found)) for corner in corners) <= 1e-12


def enclosed_at_prices(problem):
    """Bounds of the whole and of labels, at the best prices, at those of single weightings and at random ones."""
    best = optimum(problem)
    if best <= 0.0:
        return
    ix = index_problem(problem)
    for upper in (best * 1.0001, best * 1.5):
        bounds = lower_bounds(ix, upper)
        rows = weightings(ix, bounds)
        found = PricedPhases(ix, bounds, arrays_of(ix, bounds), rows, upper, vars(PARTS[1]))
        count = len(found.weightings)
        random = np.random.default_rng(ix.size)
        mixed = [random.dirichlet(np.full(count, 0.3)) * random.uniform(0.2, 1.0) for _ in range(10)]
        table = found.table([found.best(NEVER, 30), *np.eye(count), *mixed])
        assert table.lower_s.max() <= best * (1 + 1e-9)
        search = PhaseSearch(ix, bounds, upper, rows, LABELS, 1.0, table)
        search.run(300, NEVER)
        assert search.lower_s <= best * (1 + 1e-9)


@pytest.mark.parametrize("count", [4, 5])
def test_prices_see_that_long_operators_do_nothing_in_short_groups(count):
    """After one long group come gaps that hold all the work still owed, but none of the operators that owe it."""
    chain = [
        Operator(f"c{k}", ("TC",), None if k % 2 else 1.0 if k else 4.0, 1.0 if k % 2 else None)
        for k in range(9)
    ]
    beside = [Operator(f"f{k}", ("TC",), 4.0, 2.0) for k in range(count)]
    edges = tuple((f"c{k}", f"c{k + 1}") for k in range(8))
    problem = ScheduleProblem((*chain, *beside), edges, {"TC": 3})
    upper = 12.0 + 2.0 * count
    with_prices, without = searched(problem, upper, prices=True), searched(problem, upper)
    assert without.lower_s < with_prices.lower_s * (1 - 1e-3)
    found = schedule(problem, time_limit_s=10.0)
    assert with_prices.lower_s <= found.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_more_labels_never_lower_the_bound(seed):
    graph, single, parallel, cores = random_batch(seed, 9, 1)
    cores = {unit: np.minimum(count, 2) for unit, count in cores.items()}
    problem = one_problem(graph, single, parallel, cores, 0)
    upper = 1.2 * optimum(problem)
    found = [searched(problem, upper, labels=count).lower_s for count in (0, 1, 2, 5, 20, 100)]
    assert found == sorted(found)


def fillers(cores, count):
    """A chain of three that may be alone, and operators beside it that nothing follows: more than cores can hold."""
    chain = [Operator(f"c{k}", ("TC",), 4.0, 1.5) for k in range(3)]
    beside = [Operator(f"f{k}", ("TC",), 4.0, 1.5) for k in range(count)]
    edges = (("c0", "c1"), ("c1", "c2"))
    return ScheduleProblem((*chain, *beside), edges, {"TC": cores})


def test_work_that_cores_cannot_do_is_owed():
    problem = fillers(3, 9)
    best = optimum(problem)
    with_work, without = searched(problem, 1.5 * best), searched(problem, 1.5 * best, work=False)
    assert without.lower_s < with_work.lower_s <= best * (1 + 1e-9)


@pytest.mark.parametrize("count", [0, 56, 57, 58, 130])
def test_sets_of_several_words(count):
    """Operators that must be alone in a row add their time, wherever the words of a set end."""
    graph, single, parallel, cores = random_batch(3, 6, 1)
    problem = one_problem(graph, single, parallel, cores, 0)
    before = [Operator(f"before{k}", ("TC",), None, 0.25) for k in range(count)]
    chain = [(f"before{k}", f"before{k + 1}") for k in range(count - 1)]
    into = [(before[-1].id, operator.id) for operator in problem.operators if before]
    longer = ScheduleProblem(
        (*before, *problem.operators),
        (*chain, *into, *problem.edges),
        problem.capacity,
        unblocked=problem.unblocked,
    )
    upper = 10.0 * (single.sum() + 1.0)
    known = searched(problem, upper).lower_s
    assert searched(longer, upper + 0.25 * count).lower_s == pytest.approx(known + 0.25 * count, rel=1e-9)


def test_a_greedy_search_finds_a_sequence_sooner_and_proves_nothing():
    problem = fillers(3, 14)
    upper = 2.0 * searched(problem, 100.0).lower_s
    best, greedy = searched(problem, upper), searched(problem, upper, greed=1.5)
    assert best.order() is not None
    assert greedy.order() is not None
    assert greedy.expanded <= best.expanded
    assert greedy.lower_s == 0.0


@pytest.mark.soak
def test_compiled_functions_find_the_same(monkeypatch):
    problem = fillers(3, 14)
    plain = searched(problem, 100.0)
    build = phases_with_work.Background(phases_with_work._sample, *PARTS)
    build.wait()
    assert build.names["search"] is not phases_with_work.kernel_labels.search
    monkeypatch.setattr(phases_with_work, "_functions", lambda: build)
    fast = searched(problem, 100.0)
    assert (fast.lower_s, fast.order(), fast.expanded) == (plain.lower_s, plain.order(), plain.expanded)
