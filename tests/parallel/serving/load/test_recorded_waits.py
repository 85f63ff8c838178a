"""Waits of recorded arrivals: recursions against queues run by hand, and bursts against the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import served, space

from phaze.parallel.serving import Traffic
from phaze.parallel.serving.load.recorded_load import RecordedLoad
from phaze.parallel.serving.load.recorded_waits import lindley_s, longer_waits_s, place_waits_s
from phaze.parallel.serving.replicas.replica_offers import loaded_offers
from phaze.parallel.serving.request_simulation import Engine, Requests, simulate

COUNT = 1500
NUMBERS = st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=40)


def by_hand(arrivals, stays, places):
    """Every request in turn takes the place that is free first."""
    free, waits = [0.0] * places, []
    for arrival, stay in zip(arrivals, stays, strict=True):
        at = int(np.argmin(free))
        waits.append(max(free[at] - arrival, 0.0))
        free[at] = max(free[at], arrival) + stay
    return waits


@given(NUMBERS, st.integers(1, 5))
def test_places_against_a_queue_by_hand(drawn, places):
    gaps, stays = np.array(drawn).T
    arrivals = np.cumsum(gaps)
    assert place_waits_s(arrivals, stays, places) == pytest.approx(by_hand(arrivals, stays, places))


@given(NUMBERS)
def test_one_server_is_one_place(drawn):
    gaps, stays = np.array(drawn).T
    arrivals = np.cumsum(gaps)
    assert lindley_s(arrivals, stays) == pytest.approx(place_waits_s(arrivals, stays, 1), abs=1e-9)


def load_of(arrivals, seed=1):
    rng, none = np.random.default_rng(seed), np.zeros(len(arrivals), dtype=np.int64)
    prompts = np.clip(rng.lognormal(5.5, 0.9, len(arrivals)), 8, 2000).astype(int)
    outputs = np.clip(rng.lognormal(3.2, 1.0, len(arrivals)), 1, 400).astype(int)
    return RecordedLoad(prompts, outputs, arrivals, ((),) * len(arrivals), 512, none, none)


def test_a_poisson_stream_waits_as_long_as_one():
    rng = np.random.default_rng(0)
    load = load_of(np.cumsum(rng.exponential(1.0, 200_000)))
    stays = rng.exponential(0.5, 200_000)
    assert abs(longer_waits_s(load, 1.0, 1, stays)) < 0.02  # of 0.5 s: M/M/1 at half load
    assert longer_waits_s(load, 4.0, 1, stays) == 0.0  # more than one engine has time for


def test_even_arrivals_wait_less_and_bursts_longer():
    stays = np.full(COUNT, 0.5)
    even, bursts = load_of(np.arange(COUNT) * 1.0), load_of(np.repeat(np.arange(0.0, COUNT, 5), 5))
    assert longer_waits_s(even, 1.0, 1, stays) == pytest.approx(-0.25, rel=0.01)  # nobody waits
    assert longer_waits_s(bursts, 1.0, 1, stays) == pytest.approx(1.0 - 0.25, rel=0.01)  # 0, 1/2, ... 2 s
    none = replace(even, arrivals_s=None)
    assert longer_waits_s(none, 1.0, 1, stays) == 0.0


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("chunk", [None, 512])
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_bursts_against_the_simulator(source, chunk, share):
    """Thirty at a time on average, which 64 places do not always hold."""
    rng = np.random.default_rng(2)
    gaps = np.where(rng.random(COUNT) < 1 / 30, rng.exponential(25.0, COUNT), rng.exponential(0.15, COUNT))
    load = load_of(np.cumsum(gaps), 2)
    saturated = space(source, devices=1, traffic=Traffic.of(load), largest_batch=64)
    cycle = saturated.cycle(saturated.replica(1, 1), chunk)
    rate = share * float(np.where(cycle.keeps_up, cycle.requests_per_s, 0.0).max())
    asked = space(source, devices=1, traffic=Traffic.of(load, rate), largest_batch=64)
    cycle = asked.cycle(asked.replica(1, 1), chunk)
    told = loaded_offers(cycle, 1, rate, asked.limits)
    engine = Engine(
        cycle.replica,
        cycle.chunks,
        cycle.mixed,
        64,
        most_prompts=cycle.most_prompts,
        piece_tokens=chunk or asked.traffic.longest_fresh,
        pass_tokens=asked.pass_tokens(chunk),
    )
    arrivals = (load.arrivals_s - load.arrivals_s[0]) * (load.rate_per_s / rate)
    ran = simulate(engine, Requests(arrivals, load.outputs, load.prompts, load.cached), 0)
    assert ran.ttft_s.mean() > 5 * float(cycle.prefill_s[0])
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s.mean(), rel=0.2)
