"""What the explorer takes for a layer's time is the length of a real schedule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.scheduling import Operator, ScheduleProblem, schedule
from phaze.solvers.scheduling.batch import upper_bounds
from phaze.solvers.scheduling.batch.solve import BatchGraph
from phaze.solvers.scheduling.batch.upper_bounds import RULES
from phaze.solvers.scheduling.schedule_checker import check_schedule
from phaze.solvers.scheduling.schedule_problem import Method, ScheduleResult, Status
from small_cases import small_decoder, varied_architectures

from phaze.cost.cost_model import CostModel
from phaze.hardware.cluster_network import load_network
from phaze.scheduling import passes
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import UNBLOCKED, UNITS_OF, SolveLimits, schedule_problem


class Recorder(upper_bounds._Dispatch):
    """Writes down every start of the list schedules of a block of architectures."""

    log: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    def _run(self, chosen, whole, now):
        self.log.append((chosen.copy(), whole.copy(), now.copy()))
        return super()._run(chosen, whole, now)


def schedules(rule, graph, single, parallel, cores):
    """(makespans (A,), per architecture {operator: (start, core-parallel)}) of one list-scheduling rule."""
    log = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upper_bounds, "FEW", 0)  # all together, however few
        patch.setattr(upper_bounds, "_Dispatch", type("Logged", (Recorder,), {"log": log}))
        makespans = rule(graph, single, parallel, cores)
    found = [{} for _ in makespans]
    for chosen, whole, now in log:
        for a, schedule_of in enumerate(found):
            assert int(chosen[a]) not in schedule_of
            schedule_of[int(chosen[a])] = (float(now[a]), bool(whole[a]))
    return makespans, found


def with_cores(problem, starts, makespan):
    """A schedule result: each single operator, in order of start, on the first core that is free."""
    free = {f"{unit}{k}": 0.0 for unit, count in problem.capacity.items() for k in range(count)}
    held = {}
    order = sorted(starts, key=lambda i: (round(starts[i][0], 9), problem.operators[i].latency_s))
    for i in order:
        operator, (start, whole) = problem.operators[i], starts[i]
        units = operator.units
        if whole:
            held[operator.id] = tuple(f"{u}{k}" for u in units for k in range(problem.capacity[u]))
            continue
        mine = tuple(min((c for c in free if c.rstrip("0123456789") == u), key=free.get) for u in units)
        for core in mine:
            assert free[core] <= start + 1e-9 * makespan
            free[core] = start + operator.latency_s
        held[operator.id] = mine
    return ScheduleResult(
        status=Status.FEASIBLE,
        method=Method.CRITICAL_PATH,
        makespan_s=makespan,
        lower_bound_s=0.0,
        gap=1.0,
        runtime_s=0.0,
        starts_s={problem.operators[i].id: start for i, (start, _) in starts.items()},
        ends_s={
            problem.operators[i].id: start + problem.operators[i].modes[whole].latency_s
            for i, (start, whole) in starts.items()
        },
        modes={problem.operators[i].id: int(whole) for i, (_, whole) in starts.items()},
        parallel=tuple(problem.operators[i].id for i, (_, whole) in starts.items() if whole),
        cores=held,
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.integers(1, 9), st.sampled_from(range(len(RULES))))
def test_every_batch_upper_bound_is_the_length_of_a_valid_schedule(seed, size, number):
    rng = np.random.default_rng(seed)
    units = tuple(list(UNITS_OF.values())[k] for k in rng.choice(4, size=size))
    edges = tuple((i, j) for j in range(size) for i in range(j) if rng.random() < 1.5 / size)
    graph = BatchGraph(units, edges, UNBLOCKED)
    cores = {"TC": rng.integers(1, 5, 4), "VC": rng.integers(1, 5, 4), "LINK": np.ones(4, dtype=np.int64)}
    single = rng.choice([0.0, 0.3, 1.0, 2.5, 8.0], size=(size, 4))
    parallel = np.full_like(single, np.inf)
    for i, row in enumerate(units):
        if row != ("LINK",):
            parallel[i] = single[i] / np.minimum.reduce([cores[u] for u in row]) * rng.uniform(1, 1.4)
    makespans, found = schedules(RULES[number], graph, single, parallel, cores)
    backward = number >= 2  # a schedule of the reversed graph, read backwards
    for a, (makespan, begun) in enumerate(zip(makespans.tolist(), found, strict=True)):
        operators = tuple(
            Operator(str(i), u, float(single[i, a]), float(parallel[i, a]) if u != ("LINK",) else None)
            for i, u in enumerate(units)
        )
        problem = ScheduleProblem(
            operators,
            tuple((str(i), str(j)) for i, j in edges),
            {unit: int(count[a]) for unit, count in cores.items()},
            unblocked=UNBLOCKED,
        )
        assert set(begun) == set(range(size))
        length = {i: float((parallel if whole else single)[i, a]) for i, (_, whole) in begun.items()}
        starts = begun
        if backward:
            starts = {i: (max(0.0, makespan - s - length[i]), whole) for i, (s, whole) in begun.items()}
        check_schedule(problem, with_cores(problem, starts, makespan))


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A tensor-parallel chain, so that collectives run beside cores."""
    workload, table = small_decoder(tmp_path_factory.mktemp("tiny")), varied_architectures()
    return TimedChain(workload.chain(2, 2), CostModel(table, load_network()), table)


def test_bands_enclose_exact_times_and_exact_times_are_schedules(timed):
    rows = np.arange(0, len(timed.table), 7)
    least = timed.lower_bounds(rows)
    low, high = timed.bounds(rows)
    exact, attained = timed.exact(rows, SolveLimits(lambda: 20.0))
    for side in ("forward_s", "backward_s"):
        values = [getattr(times, side) for times in (least, low, exact, attained, high)]
        for smaller, larger in pairwise(values):
            assert (smaller <= larger * (1 + 1e-12)).all()
        np.testing.assert_allclose(values[2], values[3], rtol=1e-9)
    one = rows[3:4]
    for position, layer in enumerate(timed.forward):
        latencies = layer.costs.latencies(one)
        cores = {unit: int(count[0]) for unit, count in layer.capacity(one).items()}
        result = schedule(schedule_problem(layer.work, latencies, 0, cores))
        floor = max(latencies.hbm_s[0], latencies.buffer_s[0])
        assert attained.forward_s[3, position] == pytest.approx(max(result.makespan_s, floor), rel=1e-9)


def test_no_time_left_still_gives_bounds(timed):
    rows = np.arange(0, len(timed.table), 11)
    fresh = TimedChain(timed.chain, timed.model, timed.table)
    low, high = fresh.exact(rows, SolveLimits(lambda: 0.0))
    exact, _ = timed.exact(rows, SolveLimits(lambda: 20.0))
    for side in ("forward_s", "backward_s"):
        assert (getattr(low, side) <= getattr(exact, side) * (1 + 1e-12)).all()
        assert (getattr(exact, side) <= getattr(high, side) * (1 + 1e-12)).all()


def test_equal_passes_of_two_chains_are_scheduled_once(timed, monkeypatch):
    bounded, batch_bounds = [], passes.batch_bounds

    def counting(graph, single_s, *others, **options):
        bounded.append(len(single_s))
        return batch_bounds(graph, single_s, *others, **options)

    monkeypatch.setattr(passes, "batch_bounds", counting)
    model, known, rows = CostModel(timed.table, load_network()), {}, np.arange(0, len(timed.table), 5)
    first, second = (TimedChain(timed.chain, model, timed.table, passes=known) for _ in range(2))
    told, counted = first.bounds(rows[::2]), sum(bounded)
    both = second.bounds(rows)
    assert 0 < sum(bounded) < 3 * counted  # none of those that the first chain met
    for mine, other, alone in zip(told, both, timed.bounds(rows), strict=True):
        np.testing.assert_array_equal(mine.forward_s, other.forward_s[::2])
        np.testing.assert_array_equal(other.backward_s, alone.backward_s)
    bounded.clear()
    second.bounds(rows[::-1])
    assert not bounded


@pytest.mark.parametrize("count", [1, 4])
def test_bounds_from_paths_are_those_of_all_passes_where_only_open_ones_are_asked(
    count, tmp_path, monkeypatch
):
    table = varied_architectures().take(range(count))
    chain = TimedChain(small_decoder(tmp_path).chain(1, 1), CostModel(table, load_network()), table)
    rows, asked = np.arange(count), []
    known = chain.rough(rows, chain.path_bounds(rows))
    least_s = passes.TimedPass.least_s
    monkeypatch.setattr(passes.TimedPass, "least_s", lambda self, at: asked.append(self) or least_s(self, at))
    for one, other in zip(known, chain.rough(rows), strict=True):
        assert (one.forward_s == other.forward_s).all()
        assert (one.backward_s == other.backward_s).all()
    assert len(asked) <= len(chain.forward) + len(chain.backward)
