"""The lower bound: never above a schedule, and tight where the order leaves no choice."""

from __future__ import annotations

import heapq
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import sleep

import numpy as np
import pytest
from cost_cases import NETWORK, chips, grid, product, reduction, tensor, transformer_layer, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost import latency_bound, operator_tables
from phaze.cost.cost_model import CostModel
from phaze.cost.latency_bound import (
    LowerTables,
    MetRows,
    few_clocks_lower_s,
    lower_s,
    memory_lower_s,
    tensor_lower_s,
)
from phaze.cost.operator_kinds import Kinds
from phaze.cost.serial_blocks import SerialBlocks, serial_blocks
from phaze.workload.work import Pass, Traffic, Unit, Work

TABLE = grid(
    tensor_cores=(1, 2, 5),
    tensor_core_rows=(16, 64),
    vector_cores=(1, 3),
    vector_core_alus=(64, 512),
    hbm_stacks=(1, 6),
    clock_hz=(0.5e9, 1.05e9),
)

CLOCKS = (0.5e9, 0.6e9, 0.7e9, 0.85e9, 1.05e9, 1.3e9)
CLOCKED = grid(
    tensor_cores=(1, 5), vector_cores=(1, 3), vector_core_alus=(64, 512), hbm_stacks=(1, 6), clock_hz=CLOCKS
)


def random_pass(seed):
    """A random graph of operators of every unit."""
    rng = random.Random(seed)
    works, edges = [], []
    for o in range(rng.randint(1, 14)):
        side = rng.choice((32, 100, 512))
        unit = rng.choice(list(Unit))
        if unit is Unit.TENSOR:
            work = tensor("t", product(side, 64, 2 * side))
        elif unit is Unit.VECTOR:
            work = vector("v", side * side, rng.choice((1, 20)))
        elif unit is Unit.LINK:
            work = reduction(1e3 * side, 4)
        else:
            gemm = product(side, 64, side, traffic=Traffic.FUSED)
            work = Work(
                "f", "attention", unit, (gemm,), vector_cycles=14.0 * side**2, stream_bytes=256.0 * side
            )
        works.append(work)
        # mostly short steps back, so that some operators split the graph and some do not
        edges += sorted({(rng.randrange(max(0, o - 3), o), o) for _ in range(rng.choice((0, 1, 2, 3))) if o})
    return Pass(tuple(works), tuple(edges))


def schedule(pass_, times, cores, rng):
    """Makespan of a list schedule with random modes and priorities."""
    waiting = {o: {a for a, b in pass_.edges if b == o} for o in range(len(pass_.works))}
    free, running, now = dict(cores), [], 0.0
    while waiting or running:
        ready = [o for o, before in waiting.items() if not before]
        rng.shuffle(ready)
        for o in ready:
            unit = pass_.works[o].unit
            kinds = {Unit.TENSOR: ["TC"], Unit.VECTOR: ["VC"], Unit.LINK: ["LINK"]}.get(unit, ["TC", "VC"])
            parallel = unit is not Unit.LINK and rng.random() < 0.5
            need = {"TC": cores["TC"], "VC": cores["VC"]} if parallel else dict.fromkeys(kinds, 1)
            if all(free[kind] >= count for kind, count in need.items()):
                for kind, count in need.items():
                    free[kind] -= count
                heapq.heappush(running, (now + times[parallel][o], o, tuple(need.items())))
                del waiting[o]
        now, done, freed = heapq.heappop(running)
        for kind, count in freed:
            free[kind] += count
        for before in waiting.values():
            before.discard(done)
    return now


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_no_schedule_beats_the_bound(seed):
    rng, pass_ = random.Random(seed), random_pass(seed)
    costs = CostModel(TABLE, NETWORK).costs(pass_)
    rows = np.array(rng.sample(range(len(TABLE)), 6))
    times, lower = costs.latencies(rows), costs.lower_s(rows)
    modes, cores_of = (
        (times.single_s, times.parallel_s),
        [TABLE[f"{kind}_cores"][rows] for kind in ("tensor", "vector")],
    )
    own = SerialBlocks.of(pass_).least_s(*modes, *cores_of)
    for i, row in enumerate(rows):
        cores = {"TC": TABLE["tensor_cores"][row], "VC": TABLE["vector_cores"][row], "LINK": 1}
        for _ in range(3):
            makespan = schedule(pass_, (times.single_s[i], times.parallel_s[i]), cores, rng)
            assert own[i] <= makespan * (1 + 1e-12)
            layer_s = max(makespan, times.hbm_s[i], times.buffer_s[i])
            assert lower[i] <= layer_s * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_bounds_that_know_less_of_the_chip_are_lower(seed):
    """Whatever the vector cores are, and whatever any cores and clocks are."""
    pass_, rows, model = random_pass(seed), np.arange(len(TABLE)), CostModel(TABLE, NETWORK)
    tables = model.lower_tables(pass_)
    whole = lower_s(model.factors, tables, rows)
    tensor_s = tensor_lower_s(model.factors, tables, rows)
    memory_s = memory_lower_s(model.factors, tables, rows)
    assert (memory_s <= whole * (1 + 1e-12)).all()
    assert (tensor_s <= whole * (1 + 1e-12)).all()
    alike = [memory_s[model.factors.memory_of == side] for side in set(model.factors.memory_of.tolist())]
    assert all((np.ptp(one, axis=0) == 0).all() for one in alike)
    assert (memory_s >= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_what_a_few_clocks_tell_of_the_others_is_below_and_close(seed):
    """At those few it is the same, and a sum of passes is no other than one of them."""
    some = [random_pass(seed), random_pass(seed + 1)]
    model, rows = CostModel(CLOCKED, NETWORK), np.arange(len(CLOCKED))[::-1]
    joined = LowerTables.join([model.lower_tables(one) for one in some])
    few = np.isin(CLOCKED["clock_hz"][rows], [CLOCKS[0], CLOCKS[2], CLOCKS[3], CLOCKS[5]])
    for tables in (joined, joined.weighted(np.array([[3.0], [0.5]]))):
        whole, told = (find(model.factors, tables, rows) for find in (lower_s, few_clocks_lower_s))
        assert (told <= whole * (1 + 1e-12)).all()
        assert (told >= 0.7 * whole).all()
        exact = np.isclose(told, whole, rtol=1e-12).all(axis=1)
        assert exact[CLOCKED["clock_hz"][rows] == CLOCKS[0]].all()
        assert exact[CLOCKED["clock_hz"][rows] == CLOCKS[-1]].all()
        assert exact[few].mean() >= 0.5


def test_combinations_at_other_clocks_are_not_worked_out():
    model, rows = CostModel(CLOCKED, NETWORK), np.arange(len(CLOCKED))
    tables = model.lower_tables(transformer_layer())
    few_clocks_lower_s(model.factors, tables, rows)
    met = len(tables.tensor), len(tables.vector)
    lower_s(model.factors, tables, rows)
    assert (len(tables.tensor), len(tables.vector)) == (2 * met[0], 2 * met[1])


def test_few_clocks_tell_nothing_where_there_are_no_more():
    """Nor where clocks are too many to be told apart; of no architecture they tell nothing."""
    layer = transformer_layer()
    for clocks in (CLOCKS[:3], tuple(np.linspace(0.5e9, 1.3e9, 40))):
        model = CostModel(chips(clock_hz=np.array(clocks)), NETWORK)
        assert few_clocks_lower_s(model.factors, model.lower_tables(layer), np.arange(len(clocks))) is None
    model = CostModel(CLOCKED, NETWORK)
    assert few_clocks_lower_s(model.factors, model.lower_tables(layer), np.arange(0)).shape == (0, 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_what_operators_take_on_one_architecture_bounds_it_closer_than_sums_of_sides(seed):
    pass_, rows = random_pass(seed), np.arange(0, len(TABLE), 7)
    costs = CostModel(TABLE, NETWORK).costs(pass_)
    times, cores = costs.latencies(rows), (TABLE["tensor_cores"][rows], TABLE["vector_cores"][rows])
    own = SerialBlocks.of(pass_).least_s(times.single_s, times.parallel_s, *cores)
    assert (
        np.maximum(own, np.maximum(times.hbm_s, times.buffer_s)) >= costs.lower_s(rows) * (1 - 1e-12)
    ).all()


def unrelated(pass_, some):
    """Whether of some operators none comes before another."""
    after = {o: {b for a, b in pass_.edges if a == o} for o in range(len(pass_.works))}
    for _ in pass_.works:
        after = {o: later.union(*(after[b] for b in later)) for o, later in after.items()}
    return not any(b in after[a] for a, b in itertools.permutations(some, 2))


def test_operators_share_no_more_cores_than_may_run_side_by_side():
    seen = set()
    for seed in range(40):
        pass_ = random_pass(seed)
        blocks = SerialBlocks.of(pass_)
        for crowds in blocks.crowds:
            for crowd in (crowds.tensor, crowds.vector, crowds.every):
                some = crowd.operators
                widths = [
                    n
                    for n in range(1, len(some) + 1)
                    if any(unrelated(pass_, few) for few in itertools.combinations(some, n))
                ]
                assert crowd.width == max(widths, default=1)
                seen.add((crowd.width, len(some)))
    assert any(1 < width < count for width, count in seen)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40)), min_size=1, max_size=6))
def test_rows_are_worked_out_once_however_they_are_asked_for(asked):
    told = []

    def work_out(keys):
        told.extend(keys.tolist())
        return np.stack([keys * 2.0, keys * 3.0], axis=1)

    known = MetRows(work_out)
    for some in asked:
        keys = np.unique(np.array(some, dtype=np.intp))
        np.testing.assert_array_equal(known.at(keys), np.stack([keys * 2.0, keys * 3.0], axis=1))
    assert len(told) == len(set(told)) == len(known)


def test_rows_are_met_by_threads_side_by_side():
    """Each finds its own rows, whatever others add meanwhile."""

    def work_out(keys):
        sleep(0.001)
        return np.stack([keys, 2 * keys], axis=1).astype(np.float64)

    known, random = MetRows(work_out), np.random.default_rng(0)
    asked = [np.unique(random.integers(0, 3000, 200)) for _ in range(160)]
    with ThreadPoolExecutor(4) as threads:
        for keys, rows in zip(asked, threads.map(known.at, asked), strict=True):
            assert (rows == np.stack([keys, 2 * keys], axis=1)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_blocks_are_serial_and_complete(seed):
    pass_ = random_pass(seed)
    blocks = serial_blocks(pass_)
    order = [o for block in blocks for o in block]
    assert sorted(order) == list(range(len(pass_.works)))
    reach = np.linalg.matrix_power(np.eye(len(order)) + edge_matrix(pass_), len(order)) > 0
    for i, block in enumerate(blocks):
        later = [o for after in blocks[i + 1 :] for o in after]
        assert reach[np.ix_(block, later)].all()


def edge_matrix(pass_):
    matrix = np.zeros((len(pass_.works),) * 2)
    for a, b in pass_.edges:
        matrix[a, b] = 1
    return matrix


def test_a_chain_is_bounded_exactly():
    works = (
        vector("norm", 10**6, 8),
        tensor("up", product(1000, 256, 1024)),
        reduction(1e6, 4),
        transformer_layer().works[4],
        vector("add", 10**6, 1),
    )
    chain = Pass(works, tuple((i, i + 1) for i in range(4)))
    costs = CostModel(TABLE, NETWORK).costs(chain)
    times = costs.latencies(np.arange(len(TABLE)))
    exact = np.minimum(times.single_s, times.parallel_s).sum(axis=1)
    np.testing.assert_allclose(costs.lower_s(np.arange(len(TABLE))), np.maximum(exact, times.buffer_s))


def test_parallel_projections_are_bounded_by_core_time():
    # three equal products on one core: the longest path sees one, the cores must do all three
    one = chips(tensor_cores=1)
    costs = CostModel(one, NETWORK).costs(
        Pass(tuple(tensor(name, product(2048, 2048, 2048)) for name in "qkv"), ())
    )
    single = costs.latencies(np.array([0])).single_s[0]
    assert costs.lower_s(np.array([0]))[0] == pytest.approx(single.sum())


def test_many_passes_at_once_equal_one_by_one():
    passes = [transformer_layer(), random_pass(1), Pass((), ()), random_pass(2)]
    model = CostModel(TABLE, NETWORK)
    costs, rows = [model.costs(p) for p in passes], np.arange(len(TABLE))[::-1]
    tables = LowerTables.join([one.lower_tables() for one in costs])
    together = lower_s(model.factors, tables, rows)
    for i, one in enumerate(costs):
        np.testing.assert_allclose(together[:, i], one.lower_s(rows), rtol=1e-14)
    times = np.array([[3.0, 1.0, 2.0, 5.0], [0.0, 1.0, 0.0, 1.0]]).T
    sums = lower_s(model.factors, tables.weighted(times), rows)
    assert (sums <= together @ times * (1 + 1e-12)).all()
    assert (sums >= 0.5 * together @ times).all()


def test_many_clocks_keep_the_bound_below_and_close():
    clocks = np.linspace(0.5e9, 1.3e9, 200)
    layer = transformer_layer()
    costs = CostModel(chips(clock_hz=clocks), NETWORK).costs(layer)
    bound = costs.lower_s(np.arange(200))
    for row in (0, 57, 199):
        alone = CostModel(chips(clock_hz=clocks[row]), NETWORK).costs(layer).lower_s(np.array([0]))[0]
        assert 0.93 * alone <= bound[row] <= alone * (1 + 1e-12)


def loop(step, times):
    """A pass so many times in a row: every step waits for what ends the one before; names tell steps apart."""
    works, edges, count = [], [], len(step.works)
    ends = set(range(count)) - {first for first, _ in step.edges}
    begins = set(range(count)) - {second for _, second in step.edges}
    for number in range(times):
        works += [replace(work, name=f"{work.name}.{number}") for work in step.works]
        edges += [(first + number * count, second + number * count) for first, second in step.edges]
        if number:
            edges += [(o + (number - 1) * count, p + number * count) for o in ends for p in begins]
    return Pass(tuple(works), tuple(edges))


class OfItsOwn(Kinds):
    """Every operator a kind of its own."""

    @classmethod
    def among(cls, works):
        return cls(np.arange(len(works)), np.arange(len(works)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_operators_of_a_kind_cost_what_they_cost_alone(seed, times):
    """Tables to the last bit, bounds but for the order of sums; blocks alike are summed once, times their number."""
    pass_, rows = loop(random_pass(seed), times), np.arange(len(TABLE))
    costs = CostModel(TABLE, NETWORK).costs(pass_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_tables, "Kinds", OfItsOwn)
        alone = CostModel(TABLE, NETWORK).costs(pass_)
    for name in ("single_s", "parallel_s", "hbm_s", "buffer_s"):
        found, wanted = (getattr(one.latencies(rows), name) for one in (costs, alone))
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(costs.lower_s(rows), alone.lower_s(rows), rtol=1e-13)
    memory_s = [memory_lower_s(one.factors, one.lower_tables(), rows) for one in (costs, alone)]
    np.testing.assert_allclose(*memory_s, rtol=1e-13)


@pytest.mark.parametrize("times", [2, 7, 40])
def test_steps_of_a_loop_are_bounded_once_however_many(times, monkeypatch):
    asked = []
    whole = latency_bound._block_s
    monkeypatch.setattr(latency_bound, "_block_s", lambda *some: asked.append(some[1]) or whole(*some))
    costs = CostModel(TABLE, NETWORK).costs(loop(transformer_layer(), times))
    costs.lower_s(np.arange(len(TABLE)))
    once = len(asked)
    asked.clear()
    CostModel(TABLE, NETWORK).costs(transformer_layer()).lower_s(np.arange(len(TABLE)))
    assert once == len(asked) > 0
    assert len(costs.tables.kinds.first) == len({replace(w, name="") for w in transformer_layer().works})
