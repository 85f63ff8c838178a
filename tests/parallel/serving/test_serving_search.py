"""The search against enumeration, what is provable of it, published anchors, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import aimed, batches, served, space

from phaze.errors import InfeasibleError, InputError
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.parallel.recount.plan_checker import PlanError
from phaze.parallel.serving import Binding, Policy, ServingOptions, Targets, Traffic, best_serving_plan
from phaze.parallel.serving.load.prompt_passes import chunks_of
from phaze.parallel.serving.pools.disaggregated_pools import split
from phaze.parallel.serving.replicas.model_replica import crowd
from phaze.parallel.serving.replicas.steady_state import Cycle, Prefill
from phaze.parallel.serving.serving_checker import check_serving_plan
from phaze.parallel.serving.serving_search import best_of
from phaze.parallel.serving.serving_trial import trial

TARGETS = [
    Targets(),
    Targets(tpot_s=4e-4),
    Targets(ttft_s=2e-3, tpot_s=2.5e-4),
    Targets(ttft_s=6e-4, tpot_s=1e-3),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return space(served(tmp_path_factory.mktemp("served")), devices=3, batch=8)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    traffic = Traffic(256, 64, 900.0)
    return space(served(tmp_path_factory.mktemp("served")), devices=3, traffic=traffic, batch=24)


def together(made):
    """(devices, requests/s, TTFT, TPOT) of every shape, policy, chunk and batch, one at a time."""
    for replica, b in product(made.replicas, range(1, 9)):
        count, ways = made.devices // replica.devices, [(256, False)] + [(s, True) for s in made.chunk_sizes]
        for size, mixed in ways:
            most = 8192 // 256 if size == 256 else 1
            most = min(most, made.options.largest_batch)
            cycle = Cycle(replica, made.traffic, batches(b), chunks_of(made.traffic, size), mixed, most)
            plain = 63 - (b * len(cycle.chunks) / cycle.prompts[0] if mixed else 0)
            memory = cycle.memory(batches(b * replica.stages)).total_bytes[0]
            if plain >= 0 and memory <= made.limits.memory_bytes:
                figures = (cycle.requests_per_s, cycle.prefill_s, cycle.tpot_s)
                rate, ttft, tpot = (float(figure[0]) for figure in figures)
                yield count * replica.devices, count * rate, ttft, tpot


def apart(made):
    """The same of every pair of pools, with every number of replicas of either."""
    room = made.limits.memory_bytes
    for first, second, g, b in product(made.replicas, made.replicas, (1, 2, 4, 8), range(1, 9)):
        prefill, decode = Prefill(first, made.traffic, (g,)), Cycle(second, made.traffic, batches(b))
        held = decode.memory(batches(b * second.stages)).total_bytes[0]
        if max(held, prefill.memory.total_bytes[0]) > room:
            continue
        send = made.transfer_s(first.devices, second.devices)
        rates = (min(float(x.requests_per_s[0]), 1 / send) for x in (prefill, decode))
        one, other = rates
        for n, m in product(range(1, made.devices + 1), repeat=2):
            devices = n * first.devices + m * second.devices
            if devices <= made.devices:
                tpot = float(decode.tpot_s[0]) + send / 63
                yield devices, min(n * one, m * other), float(prefill.prefill_s[0]), tpot


@pytest.fixture(scope="module")
def enumerated(made):
    return {False: list(together(made)), True: list(apart(made))}


def best_by_hand(offers, targets):
    kept = [o for o in offers if o[2] <= targets.ttft_s and o[3] <= targets.tpot_s]
    return max(kept, key=lambda o: o[1], default=None)


@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.parametrize("disaggregate", [False, True])
def test_against_enumeration(made, enumerated, targets, disaggregate):
    wanted = best_by_hand(enumerated[disaggregate], targets)
    asked = aimed(made, targets, disaggregate=disaggregate)
    if wanted is None:
        with pytest.raises(InfeasibleError):
            best_of(asked)
        return
    plan = best_of(asked)
    assert plan.requests_per_s == pytest.approx(wanted[1], rel=1e-9)
    assert (plan.policy is Policy.DISAGGREGATED) == disaggregate
    assert plan.devices <= wanted[0]


@pytest.mark.parametrize("targets", [Targets(), Targets(ttft_s=6e-4, tpot_s=3e-4)], ids=str)
def test_a_stream_takes_the_fewest_devices(streamed, targets):
    """One replica shape and policy at a time, one number of replicas at a time."""
    plan = best_of(aimed(streamed, targets, disaggregate=False))
    fewest = 99
    for replica, (size, mixed) in product(
        streamed.replicas, [(256, False)] + [(s, True) for s in streamed.chunk_sizes]
    ):
        whole, most = chunks_of(streamed.traffic, size), 24 if size == 256 else 1
        full = Cycle(replica, streamed.traffic, streamed.batches, whole, mixed, most)
        reached = np.maximum.accumulate(np.where(full.keeps_up, full.requests_per_s, 0.0))
        for count in range(1, streamed.devices // replica.devices + 1):
            each = 900.0 / count
            batch = np.interp(each, [0, *reached], np.arange(25.0))
            seen = replace(full, batch=batches(min(batch + 1, 24)))
            places = batches(crowd(batch * replica.stages))
            if each > reached[-1] or crowd(batch) > 24:
                continue
            fits = seen.memory(places).total_bytes[0] <= streamed.limits.memory_bytes
            ttft = float(seen.prefill_s[0] + seen.waiting_s(batches(each))[0])
            if fits and ttft <= targets.ttft_s and seen.tpot_s[0] <= targets.tpot_s:
                fewest = min(fewest, count * replica.devices)
    assert plan.devices == fewest
    assert plan.requests_per_s == 900.0


def test_looser_targets_never_serve_less(made):
    rng = np.random.default_rng(5)
    for ttft, tpot in zip(rng.uniform(5e-4, 4e-3, 8), rng.uniform(1.5e-4, 8e-4, 8), strict=True):
        tight, loose = (_served(made, Targets(ttft * f, tpot * f)) for f in (1, 1.3))
        assert loose >= tight


def _served(made, targets):
    try:
        return best_of(aimed(made, targets)).requests_per_s
    except InfeasibleError:
        return 0.0


@given(
    st.integers(2, 40),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)),
)
def test_the_split_of_devices(devices, sizes, rates):
    counts = split(devices, sizes, rates)
    possible = [
        (min(n * rates[0], m * rates[1]), -n * sizes[0] - m * sizes[1])
        for n, m in product(range(1, devices + 1), repeat=2)
        if n * sizes[0] + m * sizes[1] <= devices
    ]
    if not possible:
        assert min(counts) < 1 or counts[0] * sizes[0] + counts[1] * sizes[1] > devices
        return
    found = min(counts[0] * rates[0], counts[1] * rates[1])
    best = max(possible)
    assert found == pytest.approx(best[0])
    assert counts[0] * sizes[0] + counts[1] * sizes[1] <= -best[1] or found > best[0] * (1 - 1e-12)


def test_pools_of_equal_replicas_serve_no_more_than_prefill_first(made):
    """Without targets: the same passes for every request, on devices that cannot lend each other a hand."""
    for replica, b, count in product(made.replicas, (1, 5, 8), (2, 5, 16)):
        prompts, decode = Prefill(replica, made.traffic, (1,)), Cycle(replica, made.traffic, batches(b))
        one = Cycle(replica, made.traffic, batches(b), chunks_of(made.traffic, 256))
        rates = float(prompts.requests_per_s[0]), float(decode.requests_per_s[0])
        counts = split(count * replica.devices, (replica.devices,) * 2, rates)
        apart_per_s = min(counts[0] * rates[0], counts[1] * rates[1])
        if replica.stages == 1:
            assert apart_per_s <= count * float(one.requests_per_s[0]) * (1 + 1e-9)


def test_what_binds_is_what_one_sequence_more_would_break(made):
    target = 0.9 * best_of(aimed(made, disaggregate=False)).tpot_s
    plan = best_of(aimed(made, Targets(tpot_s=target), disaggregate=False))
    assert plan.binding is Binding.TPOT
    (pool,) = plan.pools
    whole = chunks_of(made.traffic, plan.chunk_tokens)
    cycle = Cycle(
        made.replica(pool.tensor_parallel, pool.pipeline_parallel),
        made.traffic,
        batches(pool.batch, pool.batch + 1),
        whole,
        plan.policy is Policy.CHUNKED,
        plan.prompts_per_pass,
    )
    assert cycle.tpot_s[0] <= target < cycle.tpot_s[1]


def test_prefill_binds_where_every_pass_has_its_chunk(made):
    """Two chunks for each of three sequences in seven decode passes; for four there is no room."""
    busy = space(made.workload, traffic=Traffic(256, 8), batch=12, devices=1, chunk=128)
    plan = best_of(busy)
    assert plan.binding is Binding.CHUNKS
    assert plan.pools[0].batch == 3


def test_memory_binds_where_caches_fill_it(made):
    room = made.limits.memory_bytes
    (replica,) = (r for r in made.replicas if r.devices == 1)
    held = Cycle(replica, made.traffic, batches(7), chunks_of(made.traffic, 256)).memory(batches(7))
    share = made.options.memory_share * float(held.total_bytes[0]) / room
    small = replace(aimed(made, memory_share=share, disaggregate=False), devices=1)
    small.__dict__["replicas"] = (replica,)
    plan = best_of(small)
    assert plan.binding is Binding.MEMORY
    assert plan.pools[0].memory_bytes <= small.limits.memory_bytes


def test_a_plan_that_misstates_anything_is_refused(made):
    plan = best_of(made)
    check_serving_plan(plan, made.traffic, made.limits)
    pool = plan.pools[0]
    for wrong in (
        {"tokens_per_s": plan.tokens_per_s * 1.01},
        {"devices_given": plan.devices - 1},
        {"waiting_s": plan.ttft_s},
        {"requests_per_s": plan.requests_per_s * 2, "tokens_per_s": plan.tokens_per_s * 2},
        {"prefill_mfu": 1.2},
        {"pools": (replace(pool, cache_bytes=made.limits.memory_bytes), *plan.pools[1:])},
    ):
        with pytest.raises(PlanError, match="serving plan"):
            check_serving_plan(replace(plan, **wrong), made.traffic, made.limits)
    tight = replace(made.limits, targets=Targets(ttft_s=plan.ttft_s / 2))
    with pytest.raises(PlanError, match="time to first token"):
        check_serving_plan(plan, made.traffic, tight)


def test_what_falls_short_is_named(made):
    with pytest.raises(InfeasibleError, match="latency targets") as late:
        best_of(aimed(made, Targets(ttft_s=1e-6, tpot_s=1e-6)))
    assert [s.what for s in late.value.shortfalls] == ["time to first token", "time per output token"]
    assert all(s.demand > s.limit for s in late.value.shortfalls)
    with pytest.raises(InfeasibleError, match="does not fit in memory") as full:
        best_of(space(made.workload, devices=2, batch=4, memory_share=5e-4))
    (short,) = full.value.shortfalls
    assert short.demand > short.limit == pytest.approx(80 * 2**30)
    with pytest.raises(InfeasibleError, match="one pool for prefill and decode"):
        best_of(replace(aimed(made, disaggregate=True), devices=1))


def test_no_cache_no_serving():
    with pytest.raises(InputError, match="no key-value cache"):
        best_serving_plan("bert-large", load_architecture("h100"), 1, load_network(), Traffic(128, 8))


def test_a_stream_put_to_the_test(streamed):
    for disaggregate in (False, True):
        asked = aimed(streamed, disaggregate=disaggregate)
        plan = best_of(asked)
        ran = trial(plan, asked, 400)
        assert ran.tpot.mean_s == pytest.approx(plan.tpot_s, rel=0.06)
        assert ran.ttft.mean_s == pytest.approx(plan.ttft_s, rel=0.25)
        assert ran.ttft.p50_s <= ran.ttft.p90_s <= ran.ttft.p99_s
    with pytest.raises(InputError, match="arrival rate or a number of clients"):
        trial(plan, replace(asked, traffic=Traffic(256, 64)), 10)


def test_one_sequence_decodes_as_fast_as_the_weights_are_read():
    """llama2-7b on one H100: 13.5 GB over 3.35 TB/s are 4.0 ms, of which its kernels make less than 6.5."""
    traffic = Traffic(128, 8)
    made = space("llama2-7b", devices=1, traffic=traffic, batch=1, disaggregate=False)
    plan = best_of(made)
    bandwidth = 3.35e12
    weights = plan.pools[0].weight_bytes
    decode = float(made.decoding(made.replica(1, 1)).costs[0, 0, 0, 0])
    assert 1.0 < decode / (weights / bandwidth) < 1.6
    assert 0 < plan.prefill_mfu < 1
    assert plan.binding is Binding.BATCH


def test_host_dispatch_slows_small_models_down(made):
    slow = space(made.workload, devices=1, batch=12, dispatch_s=2e-5, disaggregate=False)
    fast = space(made.workload, devices=1, batch=12, disaggregate=False)
    assert best_of(slow).tokens_per_s < 0.7 * best_of(fast).tokens_per_s


def test_the_default_options_are_what_the_function_takes(made):
    plan = best_serving_plan(
        made.workload,
        made.architecture,
        3,
        made.network,
        made.traffic,
        Targets(),
        ServingOptions(largest_batch=8),
    )
    assert plan == best_of(made)
