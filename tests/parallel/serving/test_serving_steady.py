"""The steady state against hand formulas, enumeration, and the simulator, which shares only the cost of a pass."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import batches, served, space

from phaze.parallel.serving import Targets, Traffic
from phaze.parallel.serving.load.prompt_passes import chunks_of
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.parallel.serving.replicas.model_replica import Chunk, Replica
from phaze.parallel.serving.replicas.replica_offers import Limits, closed_loop, closed_offers, loaded_offers
from phaze.parallel.serving.replicas.steady_state import Cycle, Prefill, Slots, prompts_together
from phaze.parallel.serving.request_simulation import Engine, Requests, closed, poisson, simulate

TRAFFIC = Traffic(256, 64)
WAYS = {"prefill first": (256, False), "whole prompts beside decode": (256, True), "chunks": (64, True)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return space(served(tmp_path_factory.mktemp("served")), traffic=TRAFFIC, largest_batch=64)


@pytest.fixture(scope="module")
def grid(made):
    return LayerGrid(made.served, made.chip, 1, TRAFFIC, (256, 64), 64)


def replica(made, grid, stages=1):
    return Replica(grid, made.links, stages)


@given(
    st.integers(1, 3).flatmap(
        lambda p: st.lists(
            st.tuples(st.lists(st.floats(0, 9), min_size=p, max_size=p), st.integers(1, 5)),
            min_size=1,
            max_size=3,
        )
    )
)
def test_the_longest_of_several_passes(kinds):
    seconds, weight = (np.array(column, dtype=np.float64) for column in zip(*kinds, strict=True))
    slots, side = Slots(seconds[None], (weight / weight.sum())[None]), seconds.shape[1]
    mean, first = 0.0, 0.0
    for drawn in product(range(len(kinds)), repeat=side):
        chance = np.prod(slots.share[0, list(drawn)])
        lengths = seconds[list(drawn), range(side)]
        mean += chance * lengths.max()
        # The share of the kind on the stage it is at has nothing to choose: it counts for sure.
        first += sum(chance / slots.share[0, 0] * lengths.max() for at in range(side) if drawn[at] == 0)
    assert slots.mean_s()[0] == pytest.approx(mean)
    assert slots.round_s(0)[0] == pytest.approx(first)


def test_prefill_first_by_hand(made, grid):
    """b prompts, one after the other, for every O - 1 decode passes."""
    one, b = replica(made, grid), 12
    decode = float(one.pass_costs(b, TRAFFIC.mean_context)[0, 0])
    prompt = float(one.pass_costs(0, 256, Chunk(256))[0, 0])
    cycle = Cycle(one, TRAFFIC, batches(b), chunks_of(TRAFFIC, 256))
    assert cycle.requests_per_s[0] == pytest.approx(b / (b * prompt + 63 * decode))
    assert cycle.tpot_s[0] == pytest.approx(decode + (b - 1) * prompt / 63)
    assert cycle.prefill_s[0] == pytest.approx(prompt)
    assert cycle.longest_gap_s[0] == pytest.approx(decode + prompt)


def test_chunks_by_hand(made, grid):
    """Four of 63 passes hold a chunk for each of b sequences."""
    one, b, context = replica(made, grid), 12, TRAFFIC.mean_context
    decode = float(one.pass_costs(b, context)[0, 0])
    mixed = [float(one.pass_costs(b, context, Chunk(64, 64 * i, last=i == 3))[0, 0]) for i in range(4)]
    cycle = Cycle(one, TRAFFIC, batches(b), chunks_of(TRAFFIC, 64), mixed=True)
    period = (63 - 4 * b) * decode + b * sum(mixed)
    assert cycle.requests_per_s[0] == pytest.approx(b / period)
    assert cycle.tpot_s[0] == pytest.approx(period / 63)
    assert cycle.prefill_s[0] == pytest.approx(sum(mixed))
    assert list(Cycle(one, TRAFFIC, batches(15, 16), cycle.chunks, mixed=True).keeps_up) == [True, False]


@pytest.mark.parametrize("size", [256, 255, 100, 64, 1])
def test_chunks_cover_the_prompt(size):
    chunks = chunks_of(TRAFFIC, size)
    assert len(chunks) == -(-256 // size)
    assert {t for c in chunks for t in range(c.before, c.before + c.tokens)} == set(range(256))
    assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]


def test_throughput_grows_with_the_batch(made, grid):
    for chunks, mixed in ((chunks_of(TRAFFIC, 256), False), ((), False)):
        cycle = Cycle(replica(made, grid), TRAFFIC, np.arange(1.0, 65), chunks, mixed)
        assert (np.diff(cycle.requests_per_s) > 0).all()
        assert (np.diff(cycle.tpot_s) > 0).all()


def test_energy_of_a_request_falls_with_the_batch(made, grid):
    cycle = Cycle(replica(made, grid), TRAFFIC, batches(1, 8, 64), chunks_of(TRAFFIC, 256))
    assert (np.diff(cycle.joules) < 0).all()


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_full_batches_against_the_simulator(made, grid, way, stages):
    """With one stage the two agree; in a pipeline the formula is on the safe side by at most a tenth."""
    (size, mixed), b, count = WAYS[way], 10, 40 * 10 * stages
    one = replica(made, grid, stages)
    chunks = chunks_of(TRAFFIC, size)
    # The first requests are of all ages, so that places fall free one by one, and each engine has as many.
    outputs = np.full(count, TRAFFIC.output_tokens)
    outputs[: b * stages] = np.random.default_rng(1).integers(2, 65, b * stages)
    ran = simulate(Engine(one, chunks, mixed, b), Requests(np.zeros(count), outputs), 256)
    middle = np.sort(ran.last_s)[[count // 4, count // 2]]
    rate = (count // 2 - count // 4) / (middle[1] - middle[0])
    steady = slice(count // 4, count // 2)
    tpot = ((ran.last_s - ran.first_s)[steady] / 63).mean()
    ttft = (ran.first_s - ran.admitted_s)[steady].mean()
    cycle = Cycle(one, TRAFFIC, batches(b), chunks, mixed)
    off = (cycle.requests_per_s[0] / rate - 1, cycle.tpot_s[0] / tpot - 1, cycle.prefill_s[0] / ttft - 1)
    if stages == 1:
        assert off == pytest.approx((0, 0, 0), abs=0.07 if size == 64 else 0.02)
    else:
        assert -0.11 < off[0] < 0.07
        assert -0.03 < off[1] < 0.11
        assert off[2] == pytest.approx(0, abs=0.07)


SHORT = Traffic(32, 12)


@pytest.fixture(scope="module")
def joining(made):
    """Requests of which several end in a pass, whose prompts then share one."""
    grid = LayerGrid(made.served, made.chip, 1, SHORT, (32,), 64, prompts=8)
    return replica(made, grid)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("places", "most"), [(4, 8), (40, 8), (30, 3)])
def test_several_prompts_in_a_pass_against_the_simulator(joining, mixed, places, most):
    """At 40 sequences of 11 passes 3.7 prompts on average: a pass takes up to 8, or 3, for which some wait."""
    chunks, count = chunks_of(SHORT, 32), 2000
    outputs = np.random.default_rng(2).integers(10, 15, count)
    outputs[:places] = np.random.default_rng(1).integers(2, 13, places)
    engine = Engine(joining, chunks, mixed, places, most_prompts=most)
    ran = simulate(engine, Requests(np.zeros(count), outputs), 32)
    ends, steady = np.sort(ran.last_s), slice(count // 4, 3 * count // 4)
    rate = (count // 2) / (ends[3 * count // 4] - ends[count // 4])
    tpot = (ran.last_s - ran.first_s)[steady].sum() / (outputs[steady] - 1).sum()
    cycle = Cycle(joining, SHORT, batches(ran.busy_places), chunks, mixed, most)
    assert cycle.requests_per_s[0] == pytest.approx(rate, rel=0.03)
    assert cycle.tpot_s[0] == pytest.approx(tpot, rel=0.03)
    assert cycle.prefill_s[0] == pytest.approx((ran.first_s - ran.admitted_s)[steady].mean(), rel=0.06)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("most", [1, 3, 64])
def test_prompts_of_a_pass_grow_with_the_batch(mixed, most):
    together = prompts_together(np.arange(0.0, 300, 0.5), SHORT.later_tokens, most, mixed=mixed)
    assert (np.diff(together) >= -1e-9).all()
    assert together.min() == pytest.approx(1)
    assert together.max() <= most


def test_prompts_of_a_pass_by_hand(joining):
    """Of m that end in a pass on average, m / (1 - e^-m) come together, and never more than a pass takes."""
    cycle = Cycle(joining, SHORT, batches(1, 11, 44, 64, 1e-9), chunks_of(SHORT, 32), True, 4)
    e = np.e
    assert cycle.prompts == pytest.approx([(1 / 11) / (1 - e ** (-1 / 11)), 1 / (1 - 1 / e), 4.0, 4.0, 1.0])
    assert cycle.keeps_up.tolist() == [True, True, True, False, True]
    beside = Cycle(joining, SHORT, batches(44), chunks_of(SHORT, 32), True, 4)
    prompts = float(joining.pass_costs(44, SHORT.mean_context, Chunk(32, prompts=4))[0, 0])
    assert beside.requests_per_s[0] == pytest.approx(44 / (11 * prompts))
    alone = Cycle(
        joining, SHORT, batches(22), chunks_of(SHORT, 32), False, 2
    )  # 1, 2 and 3 of N fill one, one and two
    chances = [2**n * e**-2 / math.factorial(n) for n in range(40)]
    assert alone.prompts[0] == pytest.approx(2 / sum(p * -(-n // 2) for n, p in enumerate(chances)))


def test_a_stream_of_short_requests_against_the_simulator(joining):
    """At a load that one prompt in a pass could not take."""
    chunks = chunks_of(SHORT, 32)
    one, several = (Cycle(joining, SHORT, np.arange(1.0, 65), chunks, True, most) for most in (1, 8))
    rate = 1.5 * float(np.where(one.keeps_up, one.requests_per_s, 0.0).max())
    unlimited = Limits(np.inf, Targets())
    assert not loaded_offers(one, 1, rate, unlimited).kept[0]
    told = loaded_offers(several, 1, rate, unlimited)
    ran = simulate(Engine(joining, chunks, True, 64, most_prompts=8), poisson(rate, 3000, 12, 3), 32)
    steady = slice(300, 2900)
    assert told.tpot_s[0] == pytest.approx(ran.tpot_s[steady].mean(), rel=0.06)
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s[steady].mean(), rel=0.15)


def test_more_clients_than_places(joining):
    """Six places: whoever of 15 clients has none waits, as Little's law says."""
    chunks, count = chunks_of(SHORT, 32), 2000
    saturated = Cycle(joining, SHORT, np.arange(1.0, 7), chunks, True, 8)
    told = closed_offers(saturated, 1, 15, Limits(np.inf, Targets()))
    ran = simulate(Engine(joining, chunks, True, 7, most_prompts=8), closed(count, 15, 12, 0), 32)
    steady = slice(200, count - 100)
    assert told.batch[0] == 6
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s[steady].mean(), rel=0.12)
    assert told.requests_per_s[0] * (told.ttft_s[0] + 11 * told.tpot_s[0]) == pytest.approx(15, rel=0.02)


@pytest.mark.parametrize("load", [0.2, 0.6])
@pytest.mark.parametrize("way", WAYS)
def test_a_poisson_stream_against_the_simulator(made, grid, way, load):
    size, mixed = WAYS[way]
    saturated = Cycle(replica(made, grid), TRAFFIC, made.batches, chunks_of(TRAFFIC, size), mixed)
    rate = load * float(np.where(saturated.keeps_up, saturated.requests_per_s, 0.0).max())
    told = loaded_offers(saturated, 1, rate, made.limits)
    ran = simulate(Engine(saturated.replica, saturated.chunks, mixed, 64), poisson(rate, 600, 64, 3), 256)
    steady = slice(100, 550)
    assert told.tpot_s[0] == pytest.approx(ran.tpot_s[steady].mean(), rel=0.04)
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s[steady].mean(), rel=0.08)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("way", ["prefill first", "chunks"])
def test_clients_against_the_simulator(made, grid, way, stages):
    """Once the first wave has spread; chunks of several prompts wait for one another, which the formula leaves out."""
    (size, mixed), clients, count = WAYS[way], 11 * stages, 1000
    saturated = Cycle(replica(made, grid, stages), TRAFFIC, made.batches, chunks_of(TRAFFIC, size), mixed)
    told = closed_offers(saturated, 1, clients, made.limits)
    engine = Engine(saturated.replica, saturated.chunks, mixed, 64)
    ran = simulate(engine, closed(count, clients, 64, 0), 256)
    steady, ends = slice(10 * clients, count - 2 * clients), np.sort(ran.last_s)
    rate = (count - 12 * clients) / (ends[count - 2 * clients] - ends[10 * clients])
    assert told.requests_per_s[0] == pytest.approx(rate, rel=0.04)
    assert told.tpot_s[0] == pytest.approx(ran.tpot_s[steady].mean(), rel=0.025)
    alone = (ran.first_s - ran.admitted_s)[steady].mean()
    assert told.ttft_s[0] == pytest.approx(alone, rel=0.02 if stages == 1 else 0.2)
    assert ran.ttft_s[:clients].mean() > 3 * ran.ttft_s[steady].mean()
    at = ran.last_s[300] + 1e-9
    assert ((ran.arrivals_s <= at) & (ran.last_s > at)).sum() == clients


def test_a_prefill_pool_against_the_simulator(made, grid):
    pool = Prefill(replica(made, grid, 2), TRAFFIC, (1,))
    rate = 0.5 * float(pool.requests_per_s[0])
    engine = Engine(pool.replica, chunks_of(TRAFFIC, 256), False, 1, one_queue=True)
    ran = simulate(engine, poisson(rate, 2000, 1, 7), 256)
    assert float(pool.prefill_s[0] + pool.waiting_s(np.array([rate]))[0]) == pytest.approx(
        ran.ttft_s.mean(), rel=0.05
    )


def test_prompts_that_pile_up_wait_for_ever(made, grid):
    cycle = Cycle(replica(made, grid), TRAFFIC, batches(8), chunks_of(TRAFFIC, 256))
    assert cycle.waiting_s(1.01 / cycle.service_s)[0] == np.inf
    assert 0 < cycle.waiting_s(0.5 / cycle.service_s)[0] < np.inf


def test_the_simulator_serves_everyone_in_order(made, grid):
    engine = Engine(replica(made, grid, 2), chunks_of(TRAFFIC, 64), True, 3)
    stream = poisson(500.0, 60, 20, 0)
    ran = simulate(engine, stream, 256, seed=4)
    assert (ran.arrivals_s <= ran.admitted_s).all()
    assert (ran.admitted_s < ran.first_s).all()
    assert (ran.first_s < ran.last_s).all()
    assert ran.busy_places <= 3
    again = simulate(engine, stream, 256, seed=4)
    np.testing.assert_array_equal(ran.last_s, again.last_s)


def test_a_lone_request_takes_its_passes(made, grid):
    """Prefill, then one decode pass per token, nothing beside."""
    one = replica(made, grid)
    ran = simulate(
        Engine(one, chunks_of(TRAFFIC, 256), False, 4), Requests(np.array([2.0]), np.array([4])), 256
    )
    prompt = one.pass_costs(0, 256, Chunk(256))[0, 0]
    assert ran.first_s[0] == pytest.approx(2.0 + prompt)
    tokens = sum(one.pass_costs(1, 256 + i)[0, 0] for i in range(3))
    assert ran.last_s[0] == pytest.approx(2.0 + prompt + tokens)


@pytest.mark.parametrize("stages", [1, 2])
def test_batches_of_a_closed_loop_balance_between_whole_ones(made, grid, stages):
    """Sequences and clients on their way are as many as clients, to the last digits."""
    replica = Replica(grid, made.links, stages)
    saturated = Cycle(replica, made.traffic, np.arange(1.0, 65), chunks_of(made.traffic, 64), True)
    clients = np.array([4.0, 7.5, 12.0]) * stages
    seen, waiting = closed_loop(saturated, clients, np.inf)
    assert seen.clients == pytest.approx(clients, rel=1e-9)
    assert waiting == pytest.approx(0.0)
    assert (seen.batch != np.rint(seen.batch)).all()
