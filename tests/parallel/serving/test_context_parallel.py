"""Tensor groups whose devices hold the caches of parts of the tokens: products of shards, memory, exchanges, search."""

from __future__ import annotations

import json

import numpy as np
import pytest
from serving_cases import served, space

from phaze.cost.collectives.collective_times import link_s
from phaze.errors import InputError
from phaze.explore.documents.engine_commands import start_commands
from phaze.explore.documents.serving_document import serve
from phaze.parallel.serving.replicas.chip_costs import only_attention, shared_attention
from phaze.parallel.serving.replicas.model_replica import Chunk, Replica
from phaze.parallel.serving.serving_requests import Targets, Traffic
from phaze.parallel.serving.serving_search import best_of
from phaze.parallel.serving.serving_trial import trial
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Link

SHARED = """
schema_version: 1
name: shared
family: decoder
source: {all: made up for tests}
dimensions:
  {layers: 3, hidden: 1024, heads: 8, kv_heads: 1, ffn_hidden: 2048, vocabulary: 16000, max_positions: 65536,
   positions: rope, bias: false}
sequence_length: 512
global_batch: 8
"""
TRAFFIC, TRAFFIC_SHORT = Traffic(10_000, 64), Traffic(256, 64)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared") / "shared.yaml"
    path.write_text(SHARED)
    return str(path)


@pytest.fixture(scope="module")
def made(source):
    return space(source, devices=4, batch=64, traffic=TRAFFIC, disaggregate=False)


def replica(source, parts, width=4, **more):
    asked = space(source, devices=4, batch=64, traffic=TRAFFIC, context_parallel=parts, **more)
    return asked.replica(width, 1, 1, parts)


def attend(q, k, v):
    """Results of queries (H, D) on keys and values (T, D), and the logarithm of the sum of all exponentials, (H,)."""
    scores = q @ k.T
    sums = np.log(np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)) + scores.max(axis=1)
    return np.exp(scores - sums[:, None]) @ v, sums


@pytest.mark.parametrize("devices", [2, 4])
def test_products_of_shards_make_the_whole(devices):
    """What is exchanged is enough: queries, one number for each, and results; any split of the tokens will do."""
    rng = np.random.default_rng(devices)
    q, k, v = (rng.normal(size=(n, 16)) for n in (8, 37, 37))
    whole, _ = attend(q, k, v)
    parts = [attend(q, k[at::devices], v[at::devices]) for at in range(devices)]
    sums = np.logaddexp.reduce([one for _, one in parts])
    merged = sum(result * np.exp(own - sums)[:, None] for result, own in parts)
    np.testing.assert_allclose(merged, whole, rtol=1e-10)


@pytest.mark.parametrize("parts", [2, 4])
def test_devices_together_multiply_as_much_as_one_alone(source, parts):
    """Heads times tokens of a device are as many as without parts; keys are read by fewer."""
    mine, whole = (replica(source, degree).grid for degree in (parts, 1))
    context = 10_047  # and the next one: a multiple of all degrees
    for batch in (0, 3):
        one, other = (
            [
                w
                for layer in g.decode_chains(context)[batch].layers
                for w in only_attention(layer.forward).works
            ]
            for g in (mine, whole)
        )
        assert sum(w.macs for w in one) == sum(w.macs for w in other) > 0
        keys = [sum(w.gemms[0].n for w in works) for works in (one, other)]
        assert keys[1] == keys[0] * parts


def test_what_is_exchanged(source):
    """Queries of all heads of the group, their sums in four bytes, and their results, once each per layer."""
    grid, parts, batch = replica(source, 4).grid, 4, 8
    chain = grid.decode_chains(10_000)[3]
    assert chain.microbatch == batch
    works = [w for layer in chain.layers for w in shared_attention(parts)(layer.forward).works]
    links = {w.link for w in works if w.link}
    group = Group(Parallel.CONTEXT, parts)
    rows, size = batch * 8, 128
    assert links == {
        Link(Collective.ALL_GATHER, 2.0 * rows * size, group),
        Link(Collective.ALL_GATHER, 4.0 * rows, group),
        Link(Collective.REDUCE_SCATTER, 2.0 * rows * size, group),
    }


def test_memory_is_a_part(source):
    whole, half, quarter = (replica(source, parts) for parts in (1, 2, 4))
    sizes = [float(r.grid.cache_bytes[1].sum()) for r in (whole, half, quarter)]
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.01)
    assert sizes[2] == pytest.approx(sizes[0] / 4, rel=0.01)
    assert quarter.token_bytes == pytest.approx(whole.token_bytes / 4)
    assert whole.grid.weight_bytes.tolist() == quarter.grid.weight_bytes.tolist()


def test_long_contexts_are_faster_and_short_ones_wait_for_the_exchange(source):
    whole, parts = (replica(source, degree) for degree in (1, 4))
    assert parts.pass_costs(64, 10_000)[0, 0] < whole.pass_costs(64, 10_000)[0, 0]
    short = Traffic(64, 8)
    few = [
        Replica(
            space(source, devices=4, batch=4, traffic=short, context_parallel=d).grids[-1], whole.network, 1
        )
        for d in (1, 4)
    ]
    assert [r.grid.context_parallel for r in few] == [1, 4]
    assert few[1].pass_costs(1, 64)[0, 0] > few[0].pass_costs(1, 64)[0, 0]


def test_later_chunks_of_prompts_gather_what_others_hold(source):
    whole, parts = (replica(source, degree) for degree in (1, 4))
    size = whole.grid.chunks[1]
    first, last = Chunk(size, 0), Chunk(size, 10_000 - size)
    assert parts.pass_costs(0, 10_000, first)[0, 0] == pytest.approx(whole.pass_costs(0, 10_000, first)[0, 0])
    more = parts.pass_costs(0, 10_000, last) - whole.pass_costs(0, 10_000, last)
    links = whole.grid.chip.table["link_bandwidth_bytes_per_s"]
    cache = 2 * 128 * 2 * (10_000 - size)  # a key and a value of one head, in 16 bits
    link = Link(Collective.ALL_GATHER, float(cache), Group(Parallel.CONTEXT, 4))
    assert more[0, 0] == pytest.approx(3 * float(link_s(link, whole.network, links)[0]), rel=1e-6)
    assert more[0, 1] > 0


def test_the_search_against_enumeration(source, made):
    degrees = {(r.grid.width, r.grid.context_parallel) for r in made.replicas}
    assert degrees == {(1, 1), (2, 1), (2, 2), (4, 1), (4, 4)}
    targets = Targets(tpot_s=0.0016)
    aimed = space(
        source, devices=4, batch=64, traffic=TRAFFIC, targets=targets, disaggregate=False, chunk=10_000
    )
    most = 0.0
    for one in aimed.replicas:
        for cycle in (aimed.cycle(one, size) for size in aimed.pass_sizes):
            fits = cycle.memory(cycle.batch * one.stages).total_bytes <= aimed.limits.memory_bytes
            kept = fits & cycle.keeps_up & (cycle.tpot_s <= targets.tpot_s)
            most = max([most, *(one.most(4) * cycle.requests_per_s[kept])])
    plan = best_of(aimed)
    assert plan.requests_per_s == pytest.approx(most, rel=1e-9)


def test_the_simulator_runs_such_replicas(source):
    load = Traffic(10_000, 64, clients=12)
    asked = space(source, devices=4, batch=64, traffic=load, context_parallel=4, disaggregate=False)
    plan = best_of(asked)
    (pool,) = plan.pools
    assert pool.context_parallel == 4
    assert trial(plan, asked, 200, 0).tpot.mean_s == pytest.approx(plan.tpot_s, rel=0.15)


def test_documents_and_start_commands_say_so(source):
    asked = space(source, devices=4, batch=16, traffic=TRAFFIC, context_parallel=2, disaggregate=False)
    plan, _, document = serve(asked)
    assert json.loads(document.model_dump_json())["best"]["pools"][0]["context_parallel"] == 2
    ((engine, _, command),) = start_commands(plan, asked.traffic, asked.options)
    assert engine == "vllm"
    assert "--decode-context-parallel-size 2" in command


def test_two_pools_have_parts_where_they_decode(source):
    asked = space(source, devices=4, batch=16, traffic=TRAFFIC, disaggregate=True)
    for pool in best_of(asked).pools:
        assert pool.role.value == "decode" or pool.context_parallel == 1
    wanted = space(source, devices=4, batch=16, traffic=TRAFFIC, disaggregate=True, context_parallel=2)
    first, second = best_of(wanted).pools
    assert (first.context_parallel, second.context_parallel) == (1, 2)


@pytest.mark.parametrize("degree", [3, 8])
def test_a_degree_that_saves_nothing_is_refused(source, degree):
    with pytest.raises(InputError, match=f"--context-parallel {degree} saves no cache"):
        best_of(space(source, devices=4, traffic=TRAFFIC, context_parallel=degree))


def test_heads_of_keys_that_go_round_leave_nothing_to_save(tmp_path):
    """Four key-value heads on four devices; nor below 8,192 tokens, unless asked."""
    assert all(r.grid.context_parallel == 1 for r in space(served(tmp_path), traffic=TRAFFIC_SHORT).replicas)
    with pytest.raises(InputError, match="it is for tensor widths beyond the key-value heads"):
        best_of(space(served(tmp_path), devices=4, context_parallel=2))
