"""WHAM's local search: slack against longest paths, cores where conflicts are, dimensions where they pay."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from phaze.solvers.scheduling import Method, Operator, ScheduleProblem, check_schedule
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.schedule_problem import ScheduleResult, Status
from small_cases import DECODER

from phaze.explore.strategies.wham.core_growth import GrowthEnd, grow_cores
from phaze.explore.strategies.wham.core_latencies import (
    CoreGrid,
    Latencies,
    PassGrid,
    StageKind,
    conflicts,
    list_schedule,
    slack,
    stage_kinds,
)
from phaze.explore.strategies.wham.stage_search import explore_dimensions
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.workload.workload_loader import load_workload

NEVER = float("inf")


def random_pass(seed: int) -> tuple[BatchGraph, Latencies, dict[str, int]]:
    """A graph of some operators on all kinds of units, their latencies and cores."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    kinds = [("TC",), ("VC",), ("TC", "VC"), ("LINK",)]
    units = tuple(kinds[k] for k in rng.integers(0, 4, size))
    edges = tuple((i, j) for j in range(size) for i in range(j) if rng.random() < 0.3)
    single = rng.integers(1, 10, size).astype(float)
    parallel = np.where([u == ("LINK",) for u in units], NEVER, single * rng.uniform(0.3, 1.5, size))
    shortest = np.minimum(single, parallel)
    relieved = {unit: (shortest * 0.8).tolist() for unit in ("TC", "VC")}
    found = Latencies(single.tolist(), parallel.tolist(), (shortest * 0.5).tolist(), relieved)
    cores = {"TC": int(rng.integers(1, 4)), "VC": int(rng.integers(1, 4)), "LINK": 1}
    return BatchGraph(units, edges), found, cores


@pytest.mark.parametrize("seed", range(100))
def test_slack_is_that_of_the_longest_paths(seed):
    graph, latencies, _ = random_pass(seed)
    found, took = slack(graph, latencies.unlimited_s), latencies.unlimited_s
    paths = nx.DiGraph([("source", i, {"s": 0.0}) for i in range(graph.size)])
    paths.add_edges_from((i, "sink", {"s": took[i]}) for i in range(graph.size))
    paths.add_edges_from((i, j, {"s": took[i]}) for i, j in graph.edges)
    length = nx.dag_longest_path_length(paths, weight="s")
    assert found.length_s == pytest.approx(length)
    for i in range(graph.size):
        before = nx.dag_longest_path_length(paths.subgraph({*nx.ancestors(paths, i), i}), weight="s")
        after = nx.dag_longest_path_length(paths.subgraph({*nx.descendants(paths, i), i}), weight="s")
        assert found.asap_s[i] == pytest.approx(before)
        assert found.alap_s[i] == pytest.approx(length - after)


@pytest.mark.parametrize("seed", range(100))
def test_list_schedules_keep_the_rules(seed):
    graph, latencies, cores = random_pass(seed)
    schedule = list_schedule(graph, latencies, cores, slack(graph, latencies.unlimited_s))
    check_schedule(*checkable(graph, latencies, cores, schedule))
    assert all(begin >= ready for begin, ready in zip(schedule.start_s, schedule.ready_s, strict=True))


def checkable(graph, latencies, cores, schedule):
    """The problem and the schedule as the independent checker of schedules takes them; cores by first fit."""
    names = [str(i) for i in range(graph.size)]
    operators = tuple(
        Operator(name, graph.units[i], latencies.single_s[i], _finite(latencies.parallel_s[i]))
        for i, name in enumerate(names)
    )
    edges = tuple((str(a), str(b)) for a, b in graph.edges)
    problem = ScheduleProblem(operators, edges, cores, unblocked=frozenset({"LINK"}))
    free = {unit: [0.0] * count for unit, count in cores.items()}
    held = {}
    for i in sorted(range(graph.size), key=lambda i: schedule.start_s[i]):
        held[names[i]] = (
            ()
            if schedule.whole[i]
            else tuple(
                _first_fit(free[unit], unit, schedule.start_s[i], schedule.end_s[i])
                for unit in graph.units[i]
            )
        )
    whole = {name: schedule.whole[i] for i, name in enumerate(names)}
    result = ScheduleResult(
        status=Status.FEASIBLE,
        method=Method.CRITICAL_PATH,
        makespan_s=schedule.length_s,
        lower_bound_s=0.0,
        gap=1.0,
        runtime_s=0.0,
        starts_s=dict(zip(names, schedule.start_s, strict=True)),
        ends_s=dict(zip(names, schedule.end_s, strict=True)),
        modes={name: int(spread) for name, spread in whole.items()},
        parallel=tuple(name for name, spread in whole.items() if spread),
        cores=held,
        work={},
    )
    return problem, result


def _finite(seconds):
    return None if seconds == NEVER else seconds


def _first_fit(free, unit, start, end):
    number = next(k for k, until in enumerate(free) if until <= start)
    free[number] = end
    return f"{unit}{number}"


def fork(*units: str) -> BatchGraph:
    """Independent operators, each on one core."""
    return BatchGraph(tuple((unit,) for unit in units), ())


def grid(graph: BatchGraph, seconds, most=(4, 4), fits=None) -> CoreGrid:
    """Counts 1, 2, ... of both cores; operators run on one core only and take the same on any number."""
    shape = (*most, graph.size)
    single = np.broadcast_to(np.array(seconds, dtype=float), shape)
    one = PassGrid(graph, single, np.full(shape, NEVER), np.zeros(most), np.ones(most))
    tensor, vector = np.indices(most) + 1
    everything = np.ones(most, dtype=bool)
    return CoreGrid(
        numbers=np.arange(most[0] * most[1]).reshape(most),
        fits=everything if fits is None else fits,
        tdp_w=(tensor + vector).astype(float),
        area_mm2=np.ones(most),
        cores=(tensor, vector),
        passes=[(one, one)],
    )


ONE_LAYER = StageKind((1,), (1,), (0,), (1,))


def faster(seconds, _tdp_w):
    return (1.0 / seconds,)


def test_cores_are_added_where_operators_wait_until_the_critical_path():
    # Three products of 4 s and two vector operators of 3 s: 12 s on one core each, 4 s with three and two.
    growth = grow_cores(grid(fork("TC", "TC", "TC", "VC", "VC"), [4, 4, 4, 3, 3]), ONE_LAYER, faster)
    assert [step.added for step in growth.steps] == ["", "TC", "TC", "VC"]
    assert growth.end is GrowthEnd.CRITICAL_PATH
    assert [step.time.seconds for step in growth.steps] == [24, 16, 12, 8]


def test_conflicts_are_the_seconds_that_critical_operators_wait():
    graph = BatchGraph((("TC",), ("TC",), ("TC",)), ((0, 2),))
    latencies = Latencies(
        [2.0, 1.0, 3.0], [NEVER] * 3, [2.0, 1.0, 3.0], {"TC": [2.0, 1.0, 3.0], "VC": [0.0] * 3}
    )
    found = slack(graph, latencies.unlimited_s)
    assert [found.of(i) for i in range(3)] == [0.0, 4.0, 0.0]
    schedule = list_schedule(graph, latencies, {"TC": 1, "VC": 1}, found)
    # The short one has 4 s of slack; it waits 5 s behind the critical two, 1 s too long.
    assert schedule.start_s == (0.0, 5.0, 2.0)
    lost = conflicts(graph, latencies, schedule, found)
    assert lost == {"TC": pytest.approx(1.0), "VC": 0.0}


def test_an_operator_spread_over_too_few_cores_is_a_conflict_too():
    # One product that all cores share: 8 s on one core, 2 s on four.
    shape = (4, 2, 1)
    shared = (8.0 / np.arange(1, 5))[:, None, None] * np.ones(shape)
    one = PassGrid(fork("TC"), np.full(shape, 8.0), shared, np.zeros(shape[:2]), np.ones(shape[:2]))
    cores = CoreGrid(
        np.arange(8).reshape(4, 2), np.ones((4, 2), bool), np.ones((4, 2)), np.ones((4, 2)),
        tuple(np.indices((4, 2)) + 1), [(one, None)],
    )  # fmt: skip
    growth = grow_cores(cores, StageKind((1,), (0,), (0,), (1,)), faster)
    assert [step.added for step in growth.steps] == ["", "TC", "TC", "TC"]
    assert growth.best.time.seconds == growth.best.time.critical_s == 2.0


def test_a_budget_a_gap_in_the_space_and_a_loss_end_the_addition():
    graph = fork("TC", "TC", "TC", "VC", "VC")
    narrow = np.ones((4, 4), dtype=bool)
    narrow[2:] = False
    assert grow_cores(grid(graph, [4, 4, 4, 3, 3], fits=narrow), ONE_LAYER, faster).end is GrowthEnd.BUDGET
    assert grow_cores(grid(graph, [4, 4, 4, 3, 3], most=(2, 2)), ONE_LAYER, faster).end is GrowthEnd.SPACE
    per_watt = grow_cores(grid(graph, [4, 4, 4, 3, 3]), ONE_LAYER, lambda s, tdp: (1 / (s * tdp**2),))
    assert per_watt.end is GrowthEnd.NO_GAIN
    assert len(per_watt.steps) == 1
    assert grow_cores(grid(graph, [4] * 5, fits=np.zeros((4, 4), bool)), ONE_LAYER, faster) is None


def test_what_is_worth_most_along_the_way_is_kept_and_gaps_are_jumped():
    cores = grid(fork("TC", "TC", "TC"), [4, 4, 4])
    cores.numbers[1] = -1  # the space does not offer two tensor cores
    growth = grow_cores(cores, ONE_LAYER, faster)
    assert [cores.cores[0][step.counts] for step in growth.steps] == [1, 3]


def test_the_pruner_passes_as_many_fruitless_levels_as_it_may():
    worth = {0: 5.0, 1: 4.0, 2: 6.0, 3: 5.0, 4: 4.0, 5: 9.0}

    def tried(hysteresis, known):
        visits = explore_dimensions(
            1, [5], lambda nodes: [known.get(n[1]) and (known[n[1]],) for n in nodes], hysteresis
        )
        return [visit.node[1] for visit in visits]

    assert tried(0, worth) == [0, 1]
    assert tried(1, worth) == [0, 1, 2, 3, 4]
    assert tried(2, worth) == [0, 1, 2, 3, 4, 5]
    # What no budget allows is passed at no charge.
    assert tried(0, {3: 1.0, 4: 0.5}) == [0, 1, 2, 3, 4]


def test_the_most_hopeful_way_to_dimensions_counts():
    worth = {(0, 0): 2.0, (1, 0): 1.0, (0, 1): 3.0, (1, 1): 2.5}
    visits = explore_dimensions(1, [1, 1], lambda nodes: [(worth[n[1:]],) for n in nodes], 1)
    last = next(visit for visit in visits if visit.node == (0, 1, 1))
    assert (last.parent, last.misses) == ((0, 0, 1), 1)


@pytest.fixture
def layouts(tmp_path):
    """A decoder of eight blocks on eight devices."""
    file = tmp_path / "eight.yaml"
    file.write_text(DECODER.replace("layers: 4", "layers: 8"))
    return PlanLayouts(load_workload(str(file)), Cluster(8, 16, load_network()), load_framework())


def kinds_of(layouts, **choices):
    """Kinds of stage of a strategy, and the kinds of unique layers."""
    strategy = ParallelPlan(1, **choices)
    return stage_kinds(strategy, layouts), [layer.kind for layer in layouts.chain(strategy).layers]


def test_equal_layers_make_one_kind_of_stage(layouts):
    (first, middle, last), names = kinds_of(layouts, pipeline_parallel=4)
    assert (first.positions, middle.positions, last.positions) == ((0,), (1, 2), (3,))
    assert (first.repeats, middle.repeats, last.repeats) == ((1,), (2, 2), (1,))
    for kind, ends, blocks in ((first, "embedding", 2), (middle, None, 1), (last, "loss", 2)):
        held = {name for name, count in zip(names, kind.forward, strict=True) if count}
        assert kind.forward == kind.backward
        assert max(kind.forward) == blocks
        assert ends is None or ends in held


def test_layers_that_run_again_count_once_more_forward(layouts):
    again = {"recompute": Recompute.FULL, "recomputed": (2, 1, 0, 0)}
    (first, second, third, last), names = kinds_of(layouts, pipeline_parallel=4, **again)
    assert [kind.positions for kind in (first, second, third, last)] == [(0,), (1,), (2,), (3,)]
    for kind, factor in ((first, 2), (second, 1.5), (third, 1)):
        block = [k for k, name in enumerate(names) if name == "attention"]
        assert [kind.forward[k] for k in block] == [factor * kind.backward[k] for k in block]
    assert (second.repeats, third.repeats) == ((1,), (2,))


def test_a_stage_is_all_that_a_device_holds(layouts):
    found, _ = kinds_of(layouts, pipeline_parallel=2, chunks=2, schedule=Schedule.INTERLEAVED)
    assert [kind.positions for kind in found] == [(0,), (1,)]
    found, _ = kinds_of(layouts, pipeline_parallel=4, schedule=Schedule.ZB_V, chunks=2)
    assert [(kind.positions, kind.repeats) for kind in found] == [((0,), (1,)), ((1, 2, 3), (2, 2, 2))]
    found, _ = kinds_of(layouts, pipeline_parallel=4, schedule=Schedule.DUALPIPE)
    assert [(kind.positions, kind.repeats) for kind in found] == [((0, 3), (1, 1)), ((1, 2), (4, 4))]
