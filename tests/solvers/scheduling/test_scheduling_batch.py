"""Batched bounds against the exact method, one architecture at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Operator, ScheduleProblem, machine_code, schedule
from phaze.solvers.scheduling.batch import alone as alone_module
from phaze.solvers.scheduling.batch import kernel_lists, large_graphs, lower_bounds, upper_bounds
from phaze.solvers.scheduling.batch import solve as batch_module
from phaze.solvers.scheduling.batch.phases import bounds_in_phases, phase_space
from phaze.solvers.scheduling.batch.solve import BatchGraph, batch_bounds, batch_critical_path
from phaze.solvers.scheduling.batch.upper_bounds import FEW, RULES
from phaze.solvers.scheduling.machine_code import OnceWorth, compiled
from schedule_oracle import optimum

KINDS = [("TC",), ("VC",), ("TC", "VC"), ("LINK",)]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Nothing was spent on large graphs before: their list schedules are plain at first."""
    kernel = OnceWorth(lambda names: None, kernel_lists)
    monkeypatch.setattr(large_graphs, "machine", lambda: kernel)


def random_batch(seed, operators, architectures):
    """A random graph with random latencies: single ones, and parallel ones 1 to 1.3 times an even split."""
    rng = np.random.default_rng(seed)
    units = tuple(KINDS[k] for k in rng.choice(4, size=operators, p=[0.45, 0.25, 0.1, 0.2]))
    edges = tuple((i, j) for j in range(operators) for i in range(j) if rng.random() < 1.5 / operators)
    cores = {unit: 2 ** rng.integers(0, 6, architectures) for unit in ("TC", "VC")}
    cores["LINK"] = np.ones(architectures, dtype=np.int64)
    single = rng.choice([0.3, 1.0, 2.0, 4.0, 8.0], size=(architectures, operators)) * rng.uniform(0.8, 1.2)
    parallel = np.full_like(single, np.inf)
    for i, row in enumerate(units):
        if row != ("LINK",):
            width = np.minimum.reduce([cores[unit] for unit in row])
            parallel[:, i] = (
                single[:, i] / width * np.where(width > 1, rng.uniform(1, 1.3, architectures), 1.0)
            )
    return BatchGraph(units, edges), single, parallel, cores


def one_problem(graph, single, parallel, cores, row):
    operators = tuple(
        Operator(
            str(i), units, float(single[row, i]), float(p) if np.isfinite(p := parallel[row, i]) else None
        )
        for i, units in enumerate(graph.units)
    )
    edges = tuple((str(a), str(b)) for a, b in graph.edges)
    capacity = {unit: int(count[row]) for unit, count in cores.items()}
    return ScheduleProblem(operators, edges, capacity, unblocked=graph.unblocked)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_bounds_enclose_the_optimum(seed, size):
    graph, single, parallel, cores = random_batch(seed, size, 6)
    bounds = batch_bounds(graph, single, parallel, cores)
    for row in range(6):
        result = schedule(one_problem(graph, single, parallel, cores, row))
        assert result.optimal
        assert bounds.lower_s[row] <= result.makespan_s * (1 + 1e-9)
        assert result.makespan_s <= bounds.upper_s[row] * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(100))
def test_bounds_and_exact_method_agree_with_exhaustion(seed):
    graph, single, parallel, cores = random_batch(seed, 3 + seed % 3, 3)
    cores = {unit: np.minimum(count, 3) for unit, count in cores.items()}
    bounds = batch_bounds(graph, single, parallel, cores)
    for row in range(3):
        problem = one_problem(graph, single, parallel, cores, row)
        expected = optimum(problem)
        assert schedule(problem).makespan_s == pytest.approx(expected, rel=1e-9)
        assert bounds.lower_s[row] <= expected * (1 + 1e-9)
        assert bounds.upper_s[row] >= expected * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_bounds_enclose_the_optimum_of_larger_graphs(seed):
    graph, single, parallel, cores = random_batch(seed, 14, 6)
    bounds = batch_bounds(graph, single, parallel, cores)
    for row in range(6):
        result = schedule(one_problem(graph, single, parallel, cores, row), time_limit_s=2.0)
        assert bounds.lower_s[row] <= result.makespan_s * (1 + 1e-9)
        assert result.lower_bound_s <= bounds.upper_s[row] * (1 + 1e-9)


def test_rows_do_not_depend_on_blocks(monkeypatch):
    graph, single, parallel, cores = random_batch(3, 10, 100)
    whole = batch_bounds(graph, single, parallel, cores)
    monkeypatch.setattr(batch_module, "BLOCK", 7)
    pieces = batch_bounds(graph, single, parallel, cores)
    np.testing.assert_array_equal(whole.lower_s, pieces.lower_s)
    np.testing.assert_array_equal(whole.upper_s, pieces.upper_s)


@pytest.mark.parametrize("seed", range(12))
def test_an_architecture_alone_has_the_bounds_that_it_has_among_others(seed):
    """Number by number, without the arrays: every list schedule and both bounds to the last bit."""
    graph, single, parallel, cores = random_batch(seed, 9 + 5 * seed, 12)
    assert FEW < 12
    transposed = single.T.copy(), parallel.T.copy()
    together = [rule(graph, *transposed, cores) for rule in RULES]
    many = batch_bounds(graph, single, parallel, cores)
    for row in range(0, 12, 3):
        own = {unit: count[[row]] for unit, count in cores.items()}
        alone = [rule(graph, *(times[:, [row]] for times in transposed), own) for rule in RULES]
        assert [one.tolist() for one in alone] == [[several[row]] for several in together]
        one = batch_bounds(graph, single[[row]], parallel[[row]], own)
        assert (one.lower_s[0], one.upper_s[0]) == (many.lower_s[row], many.upper_s[row])


class Always(OnceWorth):
    """Plain functions of a kernel, or machine code, from the first schedule on."""

    is_fast = True

    def __init__(self, names):
        super().__init__(lambda names: None, kernel_lists)
        self.given = names

    @property
    def names(self):
        return self.given


@pytest.mark.parametrize("machine_code", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_list_schedules_of_large_graphs_are_the_same_to_the_last_bit(seed, machine_code, monkeypatch):
    graph, single, parallel, cores = random_batch(seed, large_graphs.MANY_OPERATORS + 20 * seed, 7)
    cores["TC"][seed] = 0 if seed < 3 else 1  # nothing that needs one ever starts
    times = single.T.copy(), parallel.T.copy()
    plain = [rule(graph, *times, cores) for rule in RULES]
    monkeypatch.setattr(large_graphs, "_AT_ONCE", 3 * graph.size)
    kernel = Always(compiled(kernel_lists) if machine_code else vars(kernel_lists))
    monkeypatch.setattr(large_graphs, "machine", lambda: kernel)
    monkeypatch.delattr(upper_bounds, "_Dispatch")
    for rule, makespans in zip(RULES, plain, strict=True):
        np.testing.assert_array_equal(rule(graph, *times, cores), makespans)


def test_machine_code_is_built_once_large_graphs_have_cost_as_much(monkeypatch):
    kernel, built = large_graphs.machine(), []
    monkeypatch.setattr(machine_code, "Background", lambda sample, part: built.append(part) or Plain())
    graph, single, parallel, cores = random_batch(0, large_graphs.MANY_OPERATORS, 9)
    times = single.T.copy(), parallel.T.copy()
    first = RULES[0](graph, *times, cores)
    assert not built and 0 < kernel._spent_s < machine_code.BUILD_AFTER_S
    kernel.spend(machine_code.BUILD_AFTER_S)
    for _ in range(2):
        np.testing.assert_array_equal(RULES[0](graph, *times, cores), first)
    assert built == [kernel_lists]


def test_without_machine_code_large_graphs_are_scheduled_as_before(monkeypatch):
    """The loops of the kernel are slow in plain Python."""
    monkeypatch.setattr(machine_code, "_build", lambda sample, *parts: 1 / 0)
    kernel = large_graphs.machine()
    kernel.spend(machine_code.BUILD_AFTER_S)
    assert kernel.is_worth and not kernel.is_fast
    monkeypatch.delattr(kernel_lists, "list_schedules")
    graph, single, parallel, cores = random_batch(0, large_graphs.MANY_OPERATORS, 9)
    assert (RULES[0](graph, single.T.copy(), parallel.T.copy(), cores) > 0).all()


class Plain:
    """A build that gives plain functions."""

    names, is_there = vars(kernel_lists), True

    def wait(self):
        """Nothing to wait for."""


@pytest.mark.parametrize("seed", range(6))
def test_sums_over_all_that_precedes_an_operator(seed):
    """Forward and backward, of one architecture and of several, to the last bit the same."""
    graph, single, *_ = random_batch(seed, 4 + 9 * seed, 3)
    work = single.T.copy()
    for steps, reach in ((graph.sums_above, graph.reach.T), (graph.reverse.sums_above, graph.reach)):
        found = lower_bounds._summed(work, steps)
        np.testing.assert_allclose(found, reach @ work, rtol=1e-13)
        for row in range(3):
            np.testing.assert_array_equal(lower_bounds._summed(work[:, [row]], steps)[:, 0], found[:, row])


def test_sums_along_a_chain_with_branches_take_a_step_for_each_operator():
    """Work grows with operators, not with their square: a chain of which every link has something beside it."""
    size = 300
    edges = [(i, i + 2) for i in range(0, size - 2, 2)] + [(i, i + 1) for i in range(0, size, 2)]
    graph = BatchGraph((("VC",),) * size, tuple(edges))
    assert sum(1 + len(step.rest) for step in graph.sums_above) == size - 1
    assert graph.reach.sum() > size**2 / 8


def test_a_schedule_of_one_architecture_looks_at_what_is_ready_alone(monkeypatch):
    """Work grows with operators, not with their square: eight chains of ten and of forty."""

    class Counted(dict):
        looked = 0

        def items(self):
            Counted.looked += len(self)
            return super().items()

    begin = alone_module._State.__init__

    def counted(self, *rest):
        begin(self, *rest)
        self.ready = Counted(self.ready)

    monkeypatch.setattr(alone_module._State, "__init__", counted)
    for length in (10, 40):
        size = 8 * length
        graph = BatchGraph((("VC",),) * size, tuple((i, i + 8) for i in range(size - 8)))
        times = np.arange(1.0, size + 1.0)[:, None]
        Counted.looked = 0
        RULES[0](graph, times, np.full_like(times, np.inf), {"VC": np.array([2])})
        assert 0 < Counted.looked <= 8 * size


def test_chains_are_settled():
    rng = np.random.default_rng(0)
    graph = BatchGraph((("VC",), ("TC",), ("LINK",), ("TC", "VC")), ((0, 1), (1, 2), (2, 3)))
    single = rng.uniform(1, 2, (50, 4))
    parallel = single / 4
    parallel[:, 2] = np.inf
    cores = {"TC": np.full(50, 4), "VC": np.full(50, 4), "LINK": np.ones(50, dtype=np.int64)}
    bounds = batch_bounds(graph, single, parallel, cores)
    expected = batch_critical_path(graph, np.minimum(single, parallel))
    np.testing.assert_allclose(bounds.lower_s, expected, rtol=1e-12)
    np.testing.assert_allclose(bounds.upper_s, expected, rtol=1e-12)


def training_layer(seed, architectures):
    """A backward layer: input-gradient chain, weight gradients beside it, vector operators and all-reduces
    between.

    Chips have 1 to 64 cores of each type and up to a hundredfold spread of peak throughput.
    """
    rng = np.random.default_rng(seed)
    units, edges, work, last = [], [], [], []

    def add(unit, amount):
        units.append((unit,))
        work.append(amount)
        edges.extend((i, len(units) - 1) for i in last)
        return [len(units) - 1]

    for _ in range(rng.integers(3, 7)):
        if rng.random() < 0.5:
            last = add("VC", 0.1)
        amount = 10 ** rng.uniform(-0.5, 0.5)
        gradient = add("TC", amount)
        add("TC", amount)
        last = gradient
        if rng.random() < 0.3:
            last = add("LINK", 0.3)
    return _with_latencies(rng, tuple(units), tuple(edges), np.array(work), architectures)


def _with_latencies(rng, units, edges, work, architectures):
    cores = {unit: 2 ** rng.integers(0, 7, architectures) for unit in ("TC", "VC")}
    cores["LINK"] = np.ones(architectures, dtype=np.int64)
    link = np.array([row == ("LINK",) for row in units])
    speed = np.where(link, 1.0, 10 ** rng.uniform(-1, 1, architectures)[:, None])
    single = work / speed
    width = np.stack([cores[row[0]] for row in units], axis=1)
    loss = np.where(width > 1, rng.uniform(1.0, 1.3, width.shape), 1.0)
    return BatchGraph(units, edges), single, np.where(link, np.inf, single / width * loss), cores


def test_most_training_layers_are_settled():
    gaps, cores = [], []
    for seed in range(10):
        graph, single, parallel, count = training_layer(seed, 300)
        bounds = batch_bounds(graph, single, parallel, count)
        assert (bounds.lower_s <= bounds.upper_s).all()
        gaps.append(1 - bounds.lower_s / bounds.upper_s)
        cores.append(count["TC"])
    gap, tensor = np.concatenate(gaps), np.concatenate(cores)
    assert (gap[tensor == 1] < 1e-12).mean() > 0.85
    assert (gap[tensor >= 8] < 1e-12).mean() > 0.6
    assert gap.mean() < 0.03


def test_impossible_architectures_are_infinite():
    graph = BatchGraph((("TC",),), ())
    bounds = batch_bounds(
        graph, np.array([[np.inf], [2.0]]), np.array([[np.inf], [1.0]]), {"TC": np.array([1, 2])}
    )
    np.testing.assert_array_equal(bounds.upper_s, [np.inf, 1.0])
    np.testing.assert_array_equal(bounds.lower_s, [np.inf, 1.0])


def test_every_unit_needs_a_capacity():
    with pytest.raises(ValueError, match="LINK"):
        batch_bounds(
            BatchGraph((("LINK",),), ()), np.ones((1, 1)), np.full((1, 1), np.inf), {"TC": np.array([1])}
        )


def test_no_operators():
    bounds = batch_bounds(
        BatchGraph((), ()), np.zeros((3, 0)), np.zeros((3, 0)), {"TC": np.ones(3, dtype=np.int64)}
    )
    np.testing.assert_array_equal(bounds.upper_s, np.zeros(3))


@pytest.mark.parametrize("edges", [((0, 5),), ((0, 1), (1, 0))])
def test_bad_graphs(edges):
    with pytest.raises(ValueError, match="edges"):
        BatchGraph((("TC",), ("TC",)), edges)


@pytest.mark.parametrize("seed", range(40))
def test_phases_alone_enclose_the_optimum(seed):
    graph, single, parallel, cores = random_batch(seed, 5, 4)
    cores = {unit: np.minimum(count, 2 + seed % 2) for unit, count in cores.items()}
    lower, upper = bounds_in_phases(graph, single.T.copy(), parallel.T.copy(), cores)
    for row in range(4):
        expected = optimum(one_problem(graph, single, parallel, cores, row))
        assert lower[row] <= expected * (1 + 1e-9)
        assert upper[row] >= expected * (1 - 1e-9)


def test_phases_see_what_no_list_schedule_does():
    """Two pairs (tensor, then vector) on two cores: sharing beats core-parallel only where both overlap."""
    graph = BatchGraph((("TC",), ("VC",), ("TC",), ("VC",)), ((0, 1), (2, 3)))
    single = np.array([[1.0, 1.0, 1.0, 1.0]])
    cores = {"TC": np.array([2]), "VC": np.array([2])}
    lower, upper = bounds_in_phases(graph, single.T.copy(), 0.6 * single.T, cores)
    assert lower[0] == upper[0] == 2.0
    lower, upper = bounds_in_phases(graph, single.T.copy(), 0.4 * single.T, cores)
    assert lower[0] == upper[0] == pytest.approx(1.6)


def test_phases_are_left_to_small_graphs():
    independent = BatchGraph((("TC",),) * 20, ())
    assert phase_space(independent) is None
    chain = BatchGraph((("TC",),) * 20, tuple((i, i + 1) for i in range(19)))
    assert len(phase_space(chain).member) == 21


def test_bounds_that_meet_are_equal():
    graph, single, parallel, cores = training_layer(1, 400)
    bounds = batch_bounds(graph, single, parallel, cores)
    gap = 1.0 - bounds.lower_s / bounds.upper_s
    assert ((gap == 0.0) | (gap > 1e-12)).all()
    assert (gap == 0.0).any()


def test_phases_leave_little_to_search_for(monkeypatch):
    """Of the backward pass of a residual block, where list schedules leave something open, phases settle most."""
    searched, search = [], batch_module.search

    def counted(graph, single, *others):
        searched.append(single.shape[1])
        return search(graph, single, *others)

    monkeypatch.setattr(batch_module, "search", counted)
    units = tuple(KINDS[k] for k in (1, 1, 0, 0, 1, 0, 2, 1, 0, 2))
    edges = ((0, 1), (0, 4), (1, 2), (1, 3), (2, 9), (4, 5), (4, 6), (6, 7), (7, 8), (7, 9))
    work = np.array([0.1, 0.2, 0.2, 0.25, 0.2, 3.0, 3.0, 0.2, 1.5, 1.5])
    block = _with_latencies(np.random.default_rng(0), units, edges, work, 400)
    rough = batch_bounds(*block, rough=True)
    open_ = int((rough.lower_s < rough.upper_s).sum())
    bounds = batch_bounds(*block)
    assert 0 < sum(searched) < open_ / 3
    assert (bounds.lower_s == bounds.upper_s).mean() > 0.9
