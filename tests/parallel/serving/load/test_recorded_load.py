"""Recorded requests: files, the kinds of passes they make, and plans and simulation that agree on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import CACHE_BYTES_PER_TOKEN, batches, served, space

from phaze.errors import InputError
from phaze.parallel.serving import Traffic, best_of
from phaze.parallel.serving.load.prompt_passes import PromptPasses, chunks_of, pieces
from phaze.parallel.serving.load.recorded_load import RecordedLoad, hit_tokens, read_trace
from phaze.parallel.serving.replicas.replica_offers import closed_offers, loaded_offers
from phaze.parallel.serving.replicas.steady_state import Cycle, load_seconds
from phaze.parallel.serving.request_simulation import Engine, Requests, poisson, simulate
from phaze.parallel.serving.serving_trial import replayed, trial

COUNT = 1200


def recorded(prompts, outputs, cached=None, blocks=None, arrivals=None):
    none = np.zeros(len(prompts), dtype=np.int64)
    known = none if cached is None else np.asarray(cached)
    told = ((),) * len(prompts) if blocks is None else tuple(blocks)
    return RecordedLoad(np.asarray(prompts), np.asarray(outputs), arrivals, told, 64, known, none)


@pytest.fixture(scope="module")
def load():
    """Prompts of 8 to 2,000 tokens and answers of 1 to 400, a third of the prompts mostly cached."""
    rng = np.random.default_rng(0)
    prompts = np.clip(rng.lognormal(5.5, 0.9, COUNT), 8, 2000).astype(int)
    outputs = np.clip(rng.lognormal(3.6, 0.8, COUNT), 1, 400).astype(int)
    cached = np.minimum((prompts * rng.choice([0, 0.5, 0.9], COUNT)).astype(int), prompts - 1)
    return recorded(prompts, outputs, cached)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def asked(source, load):
    return space(source, traffic=Traffic.of(load, rate_per_s=1.0), largest_batch=64)


# -- files -----------------------------------------------------------------------------------------------


def test_a_trace_is_read(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "arrival_s,input_tokens,output_tokens,prefix_hashes\n0,1000,20,a b\n0.5,600,1,a c\n\n2,5,30,\n"
    )
    found = read_trace(path)
    assert found.prompts.tolist() == [1000, 600, 5]
    assert found.outputs.tolist() == [20, 1, 30]
    assert found.rate_per_s == 1.0
    assert found.blocks == (("a", "b"), ("a", "c"), ())
    assert found.with_cache(np.inf, 0).cached.tolist() == [0, 512, 0]
    path.write_text("output_tokens,input_tokens\n7,3\n9,4\n")
    found = read_trace(path)
    assert (found.prompts.tolist(), found.arrivals_s, found.rate_per_s) == ([3, 4], None, None)


HEAD = "arrival_s,input_tokens,output_tokens,prefix_hashes\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: no column input_tokens"),
        ("input_tokens,output_tokens,when\n1,2,3\n", "line 1: 'when' is not a column"),
        ("input_tokens,input_tokens,output_tokens\n", "line 1: a column stands twice"),
        (HEAD + "0,1,2,\n-1,1,2,\n", "line 3: arrival_s '-1' is not a time of 0 or more"),
        (HEAD + "0,1,2,\nsoon,1,2,\n", "line 3: arrival_s 'soon'"),
        (HEAD + "nan,1,2,\n0,1,2,\n", "line 2: arrival_s 'nan'"),
        (HEAD + "3,1,2,\n2,1,2,\n", "line 3: arrival_s 2 is before that of the line above"),
        (HEAD + "0,0,2,\n1,1,2,\n", "line 2: input_tokens '0' is not a whole number of 1 to 10,000,000"),
        (HEAD + "0,1,2.5,\n1,1,2,\n", "line 2: output_tokens '2.5'"),
        (HEAD + "0,1,99999999999999,\n", "line 2: output_tokens"),
        (HEAD + "0,1\n", "line 2: 2 cells under 4 columns"),
        (HEAD + "0,512,2,a b\n1,1,2,\n", "line 2: 2 prefix_hashes of 512 tokens each are more than its 512"),
        (HEAD + "0,1,2,\n", "1 requests; a trace has two at least"),
        (HEAD + "1,1,2,\n1,1,2,\n", "all requests arrive at once"),
        (HEAD + "0,5,1,\n1,5,1,\n", "no request has more than one output token"),
        (HEAD + '0,1,2,"a\n', "line 2"),
    ],
)
def test_a_bad_row_is_told_with_its_line(tmp_path, text, said):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_trace(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


# -- passes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 256, 2000])
def test_kinds_of_passes_stand_for_all(load, size):
    found, fresh = PromptPasses.of(Traffic.of(load), size), load.fresh
    counts, weights = -(-fresh // size), np.array([chunk.weight for chunk in found.chunks])
    assert weights.sum() == pytest.approx(counts.mean())
    assert weights @ [c.last for c in found.chunks] == pytest.approx(1)
    assert found.moments.sum() == pytest.approx((counts**2).mean())
    assert weights[found.whole].sum() == pytest.approx((counts == 1).mean())
    tokens = sum(sum(t for t, _ in pieces(int(n), size)) for n in fresh) / COUNT
    assert weights @ [c.tokens for c in found.chunks] == pytest.approx(tokens, rel=0.02)
    attended = [c.tokens * (c.before + c.tokens / 2) for c in found.chunks]
    exact = (load.prompts.astype(float) ** 2 - load.cached.astype(float) ** 2) / 2
    assert weights @ attended == pytest.approx(exact.mean(), rel=0.02)


def test_pieces_of_any_size_cost_what_they_cost(asked):
    """Between the sizes that are costed, after few and many tokens, and beyond the largest."""
    replica, off = asked.replica(1, 1), []
    for tokens, before in ((37, 0), (200, 300), (333, 1200), (700, 0), (700, 900), (1500, 200)):
        chain = asked.served.prefill(tokens, before).chain(1, replica.grid.sharding)
        from phaze.parallel.serving.replicas.chip_costs import only_attention

        exact = asked.chip.costs(chain, only_attention).seconds.sum()
        off.append(float(replica._piece(0, tokens, before)[0, 0]) / exact - 1)
    assert max(np.abs(off)) < 0.25
    assert np.mean(np.abs(off)) < 0.13  # few heads: in a larger model 3 %


def test_requests_that_are_all_alike_are_requests_of_one_kind(source):
    one = Traffic(256, 64, rate_per_s=1.0)
    many = Traffic.of(recorded(np.full(50, 256), np.full(50, 64)), rate_per_s=1.0)
    single, several = (space(source, traffic=load, largest_batch=32) for load in (one, many))
    for size in (None, 128, 256):
        told, found = (each.cycle(each.replica(1, 1), size) for each in (single, several))
        assert found.requests_per_s == pytest.approx(told.requests_per_s, rel=0.02)
        assert found.tpot_s == pytest.approx(told.tpot_s, rel=0.02)
        assert found.prefill_s == pytest.approx(told.prefill_s, rel=0.02)
        assert found.waiting_s(batches(*([100.0] * 32))) == pytest.approx(
            told.waiting_s(batches(*([100.0] * 32))), rel=0.03
        )
        assert found.joules == pytest.approx(told.joules, rel=0.02)
        ours, theirs = (cycle.memory(cycle.batch).total_bytes for cycle in (found, told))
        assert ours == pytest.approx(theirs, rel=0.01)


def test_memory_holds_what_decoding_sequences_hold(asked, load):
    """A sequence at a random pass of its own is as long as its context is on average over all passes."""
    rng = np.random.default_rng(1)
    later = load.outputs - 1
    drawn = rng.choice(COUNT, 200_000, p=later / later.sum())
    contexts = load.prompts[drawn] + rng.random(len(drawn)) * later[drawn]
    assert load.mean_context == pytest.approx(contexts.mean(), rel=0.01)
    assert load.context_variance == pytest.approx(contexts.var(), rel=0.03)
    cycle = Cycle(asked.replica(1, 1), asked.traffic, batches(40))
    room = (40 * load.mean_context + 3 * np.sqrt(40 * load.context_variance)) * CACHE_BYTES_PER_TOKEN
    assert cycle.memory(batches(40)).cache_bytes[0] == pytest.approx(room, rel=0.03)


# -- against the simulator -----------------------------------------------------------------------------


def engine(asked, cycle, chunk, places=64):
    return Engine(
        cycle.replica,
        cycle.chunks,
        cycle.mixed,
        places,
        most_prompts=cycle.most_prompts,
        piece_tokens=chunk or asked.traffic.longest_fresh,
        pass_tokens=asked.pass_tokens(chunk),
    )


@pytest.mark.parametrize("chunk", [None, 256, 512])
def test_full_batches_against_the_simulator(asked, load, chunk):
    cycle = asked.cycle(asked.replica(1, 1), chunk)
    requests = Requests(np.zeros(COUNT), load.outputs, load.prompts, load.cached)
    ran = simulate(engine(asked, cycle, chunk, 12), requests, 0)
    ends, steady = np.sort(ran.last_s), slice(COUNT // 4, 3 * COUNT // 4)
    rate = (COUNT // 2) / (ends[3 * COUNT // 4] - ends[COUNT // 4])
    told = replace(cycle, batch=batches(ran.busy_places))
    tpot = (ran.last_s - ran.first_s)[steady].sum() / (ran.outputs[steady] - 1).sum()
    assert told.requests_per_s[0] == pytest.approx(rate, rel=0.06)
    assert told.tpot_s[0] == pytest.approx(tpot, rel=0.05)
    assert told.prefill_s[0] == pytest.approx((ran.first_s - ran.admitted_s)[steady].mean(), rel=0.08)


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("chunk", [None, 256, 2000])
def test_a_stream_against_the_simulator(asked, load, chunk, share):
    cycle = asked.cycle(asked.replica(1, 1), min(chunk, asked.traffic.longest_fresh) if chunk else None)
    rate = share * float(np.where(cycle.keeps_up, cycle.requests_per_s, 0.0).max())
    told = loaded_offers(cycle, 1, rate, asked.limits)
    stream = replace(
        poisson(rate, COUNT, 2, 3), outputs=load.outputs, prompts=load.prompts, cached=load.cached
    )
    ran, steady = simulate(engine(asked, cycle, chunk), stream, 0), slice(100, COUNT - 100)
    tpot = (ran.last_s - ran.first_s)[steady].sum() / (ran.outputs[steady] - 1).sum()
    assert told.tpot_s[0] == pytest.approx(tpot, rel=0.07)
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s[steady].mean(), rel=0.1)


def test_clients_against_the_simulator(asked, load):
    cycle = asked.cycle(asked.replica(1, 1), None)
    told = closed_offers(cycle, 1, 10, asked.limits)
    stream = replayed(Traffic.of(load, clients=10), COUNT, 1)
    ran = simulate(engine(asked, cycle, None), stream, 0)
    ends = np.sort(ran.last_s)
    rate = (COUNT // 2) / (ends[3 * COUNT // 4] - ends[COUNT // 4])
    assert told.requests_per_s[0] == pytest.approx(rate, rel=0.06)


# -- what is known already ---------------------------------------------------------------------------------


def test_known_tokens_are_not_computed(source):
    """60 % of the prompt: a pass takes the rest of it, after them."""
    cached, loaded = hit_tokens(np.array([256]), 0.5, 0.1)
    known = Traffic(256, 64, cached_tokens=int(cached[0]), loaded_tokens=int(loaded[0]))
    assert (known.cached_tokens, known.loaded_tokens, known.fresh_tokens) == (153, 25, 103)
    plain, hit = (space(source, traffic=load, largest_batch=16) for load in (Traffic(256, 64), known))
    assert [(c.tokens, c.before, c.last) for c in chunks_of(known, 52)] == [(52, 153, False), (52, 204, True)]
    cycles = [each.cycle(each.replica(1, 1), None) for each in (plain, hit)]
    assert (cycles[1].prefill_s < cycles[0].prefill_s).all()
    assert (cycles[1].requests_per_s > cycles[0].requests_per_s).all()
    # Without room of its own for prefixes, every sequence holds all of its tokens.
    assert cycles[1].memory(cycles[1].batch).cache_bytes == pytest.approx(
        cycles[0].memory(cycles[0].batch).cache_bytes, rel=1e-9
    )


def test_a_cache_of_prefixes_takes_memory_and_gives_it_back(source):
    known = replace(Traffic(256, 64), cached_tokens=192, shared=True)
    plain, shared = (
        space(source, traffic=load, largest_batch=16, prefix_cache_bytes=room)
        for load, room in ((Traffic(256, 64), 0.0), (known, 2e9))
    )
    assert plain.limits.memory_bytes - shared.limits.memory_bytes == pytest.approx(2e9)
    held = [
        Cycle(each.replica(1, 1), each.traffic, batches(16)).memory(batches(16)).cache_bytes[0]
        for each in (plain, shared)
    ]
    assert held[0] - held[1] == pytest.approx(16 * 192 * CACHE_BYTES_PER_TOKEN)


def blocks_of(count, users, length):
    """Requests of some users in turn, each with a beginning of its own of some blocks of 64 tokens."""
    return [tuple(f"{i % users}:{at}" for at in range(length)) for i in range(count)]


def test_hits_follow_from_the_room_of_a_replica(source):
    """Ten users in turn with 128 tokens: all come again if ten beginnings have room, none if nine have."""
    load = recorded(np.full(200, 256), np.full(200, 64), blocks=blocks_of(200, 10, 2))
    for users, share in ((9, 0.0), (10, 0.5 * 190 / 200)):
        room = users * 128 * CACHE_BYTES_PER_TOKEN
        made = space(
            source,
            traffic=Traffic.of(load, 1.0),
            largest_batch=8,
            prefix_cache_bytes=room,
            disaggregate=False,
        )
        seen = made.traffic_on(made.replica(1, 1))
        assert seen.known_shares == pytest.approx((share, 0.0))
        wide = made.traffic_on(made.replica(2, 1))  # half of every token on each device
        assert wide.known_shares[0] == pytest.approx(0.475)
        assert best_of(made).cached_share in (pytest.approx(0.475), pytest.approx(share))
    one, half = made.replica(1, 1), batches(4)
    held, alone = (
        Cycle(one, load, half).memory(half).cache_bytes[0] for load in (made.traffic_on(one), made.traffic)
    )
    known = 4 * float(np.average(seen.recorded.cached, weights=seen.recorded.later))
    assert alone - held == pytest.approx(known * CACHE_BYTES_PER_TOKEN)
    host = replace(made, options=replace(made.options, prefix_cache_bytes=1.0, host_cache_bytes=room))
    assert host.traffic_on(host.replica(1, 1)).known_shares == pytest.approx((0.475, 0.475))


def test_the_link_to_the_host_is_waited_for(source):
    known = Traffic(256, 64, cached_tokens=200, loaded_tokens=200)
    made = space(source, traffic=known, largest_batch=64)
    cycle = made.cycle(made.replica(1, 1), None)
    link = float(made.chip.table["host_bandwidth_bytes_per_s"][0])
    each = 200 * CACHE_BYTES_PER_TOKEN / link
    assert load_seconds(cycle.replica, np.array([200.0]))[0] == pytest.approx(each)
    rate = 0.3 / each if 0.3 / each < 500 else 500.0
    told = loaded_offers(cycle, 1, rate, made.limits)
    stream = replace(poisson(rate, 800, 64, 3), loads_s=np.full(800, each))
    ran = simulate(
        Engine(cycle.replica, cycle.chunks, False, 64, most_prompts=cycle.most_prompts), stream, 256
    )
    assert told.ttft_s[0] == pytest.approx(ran.ttft_s[100:700].mean(), rel=0.08)
    without = replace(cycle, traffic=Traffic(256, 64, cached_tokens=200))
    assert told.ttft_s[0] - loaded_offers(without, 1, rate, made.limits).ttft_s[0] >= each
    # A link that is busy all the time is the limit: nothing beyond it is served.
    slow = replace(cycle, replica=replace(cycle.replica))
    slow.__dict__["loading"] = type(cycle.loading)(mean_s=0.1, square_s2=0.01)
    assert (slow.requests_per_s <= 10).all()
    assert loaded_offers(slow, 1, 11.0, made.limits).kept.tolist() == [False]


def test_a_trial_replays_the_record(source):
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(0.01, 300))
    load = recorded(rng.integers(64, 512, 300), rng.integers(2, 80, 300), arrivals=arrivals)
    made = space(source, traffic=Traffic.of(load), largest_batch=32, devices=2)
    plan = best_of(made)
    assert plan.requests_per_s == pytest.approx(load.rate_per_s)
    told = trial(plan, made, 500)
    assert told.requests == 500
    assert told.tpot.mean_s == pytest.approx(plan.tpot_s, rel=0.1)
    one = replayed(Traffic.of(load), 600, 1)
    np.testing.assert_array_equal(one.prompts[:300], one.prompts[300:])
    assert (np.diff(one.arrivals_s) >= 0).all()
    np.testing.assert_allclose(one.arrivals_s[:300], arrivals - arrivals[0])
    faster = replayed(Traffic.of(load, 2 * load.rate_per_s), 300, 2)
    np.testing.assert_allclose(faster.arrivals_s[:150], (arrivals[::2] - arrivals[0]) / 2)


def test_pools_apart_for_a_record(source):
    rng = np.random.default_rng(0)
    load = recorded(rng.integers(64, 512, 300), rng.integers(2, 80, 300))
    made = space(source, traffic=Traffic.of(load, 50.0), largest_batch=32, devices=2, disaggregate=True)
    plan = best_of(made)
    assert len(plan.pools) == 2
    told = trial(plan, made, 400)
    assert told.ttft.mean_s == pytest.approx(plan.ttft_s, rel=0.15)
    assert told.tpot.mean_s == pytest.approx(plan.tpot_s, rel=0.1)
