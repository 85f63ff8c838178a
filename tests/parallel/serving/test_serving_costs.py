"""Costs of serving: passes taken apart, the grid between its points, replicas, memory."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import CACHE_BYTES_PER_TOKEN, batches, served, space

from phaze.cost.collectives.collective_times import link_s
from phaze.cost.kernels.link_constants import engine_links, with_laws
from phaze.errors import InputError
from phaze.hardware.cluster_network import load_network
from phaze.parallel.serving import ServingOptions, Targets, Traffic
from phaze.parallel.serving.replicas.chip_costs import (
    Chip,
    Chips,
    Line,
    doublings,
    is_attention,
    only_attention,
    without_attention,
)
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.parallel.serving.replicas.model_replica import Chunk, Replica, crowd, even_cuts, replica_memory
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.workload.operators.kv_cache import KvCache
from phaze.workload.parallel_degrees import Group
from phaze.workload.routed_copies import Copies
from phaze.workload.work import Collective, Link, Pass, Unit, Work


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def small(source):
    return space(source)


def whole_s(made, chain):
    _, times = TimedChain(chain, made.chip.among.model, made.chip.table).exact(
        np.array([0]), SolveLimits(lambda: math.inf, 10_000)
    )
    return times.forward_s[0, list(chain.index)].sum()


def test_a_pass_taken_apart_keeps_every_operator_and_what_waits_for_what(small):
    chain = small.served.decode(256).chain(4, 2)
    (block,) = (layer for layer in chain.layers if any(map(is_attention, layer.forward.works)))
    rest, attention = without_attention(block.forward), only_attention(block.forward)
    assert sorted(w.name for w in (*rest.works, *attention.works)) == sorted(
        w.name for w in block.forward.works
    )
    names = [w.name for w in rest.works]
    before = {(names[a], names[b]) for a, b in rest.edges}
    assert ("rotate_q", "projection") in before
    assert attention.edges == ()


def test_bridging_a_chain_of_attentions():
    flash = Work("a", "attention", Unit.TENSOR, flash=object())
    plain = Work("p", "matmul", Unit.TENSOR)
    rest = without_attention(Pass((plain, flash, flash, plain), ((0, 1), (1, 2), (2, 3))))
    assert rest == Pass((plain, plain), ((0, 1),))


@pytest.mark.parametrize("tokens", [1, 48, 200])
def test_all_but_attention_depends_on_the_number_of_tokens_alone(small, tokens):
    decode = small.served.decode(256).chain(tokens, 2)
    prefill = small.served.prefill(tokens).chain(1, 2)
    one, other = (small.chip.costs(chain, without_attention) for chain in (decode, prefill))
    np.testing.assert_allclose(one.seconds, other.seconds, rtol=1e-9)
    np.testing.assert_allclose(one.joules, other.joules, rtol=1e-9)


@pytest.mark.parametrize("chip", ["h100", "tpuv4"])
def test_layers_costed_together_take_what_each_takes_alone_in_few_calls(source, chip, monkeypatch):
    """To the last bit; a grid costs its layers in four calls, one for each sort of its figures."""
    made, costed = space(source, chip=chip), Chips._costed
    chains = [made.served.decode(context).chain(batch, 1) for context in (256, 300) for batch in (1, 3, 8)]
    for part in (without_attention, only_attention):
        together = made.chip.each(chains, part)
        for chain, some in zip(chains, together, strict=True):
            alone = Chip.alone(made.chip.among.model, made.chip.table).costs(chain, part)
            assert alone.seconds.tolist() == some.seconds.tolist()
            assert alone.joules.tolist() == some.joules.tolist()
            assert alone.kernels.tolist() == some.kernels.tolist()
    calls = []
    monkeypatch.setattr(
        Chips, "_costed", lambda self, chain, part: calls.append(chain) or costed(self, chain, part)
    )
    grid = _grid(space(source, chip=chip), 1)
    for figures in (grid.tokens, grid.decode_attention, grid.chunk_attention, grid.prompt_attention):
        assert figures
    assert sum(len(chain.layers) for chain in calls) > 20
    assert len(calls) <= 4


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(1, 64))
def test_straight_lines_are_kept(slope, height, where):
    points = np.array(doublings(1, 64), dtype=np.float64)
    line = Line(points, slope * points + height)
    assert line.at(where) == pytest.approx(slope * where + height, abs=1e-9)


def test_a_line_is_itself_at_its_points_and_refuses_what_lies_beyond():
    line = Line(np.array([1.0, 2.0, 4.0]), np.array([[3.0, 1.0], [1.0, 5.0], [9.0, 2.0]]))
    np.testing.assert_array_equal(line.at([4, 1, 2]), line.values[[2, 0, 1]])
    with pytest.raises(ValueError, match=r"not within 1 \.\. 4"):
        line.at(5)


def test_doublings():
    assert doublings(1, 100) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert doublings(7, 7) == [7]


@pytest.mark.parametrize("chip", ["h100", "tpuv4"])
def test_between_points_of_the_grid_costs_are_a_few_percent_off(chip):
    made = space("llama2-7b", chip=chip, traffic=Traffic(512, 128), batch=128)
    replica, context = Replica(_grid(made, 2), made.links, 1), 575
    off = []
    for batch in (3, 23, 50, 100):
        exact = whole_s(made, made.served.decode(context).chain(batch, 2))
        off.append(float(replica.pass_costs(batch, context)[0, 0]) / exact - 1)
    assert np.mean(np.abs(off)) < 0.015
    assert np.max(np.abs(off)) < 0.04


@pytest.mark.parametrize("chip", ["h100", "tpuv4"])
def test_at_points_of_the_grid_a_pass_costs_what_its_chain_does(source, chip):
    made = space(source, chip=chip)
    replica = Replica(_grid(made, 2), made.links, 1)
    for batch in (1, 8, 32):
        exact = whole_s(made, made.served.decode(256).chain(batch, 2))
        assert float(replica.pass_costs(batch, 256)[0, 0]) == pytest.approx(exact, rel=0.02)


def test_a_mixed_pass_reads_the_weights_once(small):
    replica, chunk = Replica(_grid(small, 1), small.links, 1), Chunk(64, 64)
    decode, mixed, prefill = (
        float(replica.pass_costs(b, 280, c)[0, 0]) for b, c in ((16, None), (16, chunk), (0, chunk))
    )
    assert max(decode, prefill) < mixed < decode + prefill


def test_nothing_takes_no_time(small):
    assert not Replica(_grid(small, 1), small.links, 2).pass_costs(0, 256).any()


def test_stages_share_the_layers_and_pay_for_the_cuts(small):
    grid = _grid(small, 2)
    one, three = (Replica(grid, small.links, p).pass_costs(batches(8, 20), 256) for p in (1, 3))
    assert three.shape == (2, 3, 2)
    np.testing.assert_allclose(three[..., 1].sum(axis=1), one[:, 0, 1], rtol=1e-9)
    assert (three[..., 0].sum(axis=1) > one[:, 0, 0]).all()


def test_kernels_are_never_faster_than_they_are_dispatched(source):
    made = space(source)
    grid = _grid(made, 1)
    free, slow = (Replica(grid, made.links, 1, dispatch_s=s).pass_costs(4, 256)[0, 0] for s in (0.0, 1e-4))
    assert slow == pytest.approx(1e-4 * grid.kernels.sum())
    assert slow > free


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=8), st.integers(1, 8))
def test_cuts_leave_the_smallest_largest_part(weights, parts):
    values = np.array(weights)
    if parts > len(values):
        with pytest.raises(ValueError, match="make no"):
            even_cuts(values, parts)
        return
    starts = even_cuts(values, parts)
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert len(starts) == parts
    best = min(
        max(part.sum() for part in np.split(values, cuts))
        for cuts in combinations(range(1, len(values)), parts - 1)
    )
    assert np.add.reduceat(values, starts).max() == pytest.approx(best)


def test_memory_by_hand(source):
    made = space(source, traffic=Traffic(200, 101), kv_cache=KvCache.CONTIGUOUS)
    replica = Replica(_grid(made, 2), made.links, 1)
    found = replica_memory(replica, 10, 3, 10)
    longest = 200 + 100
    assert float(found.cache_bytes) == pytest.approx(13 * longest * CACHE_BYTES_PER_TOKEN / 2)
    parameters = made.served.decode(200).chain(1, 2).parameters
    assert float(found.weight_bytes) == 2 * parameters


def test_pages_come_as_sequences_grow(source):
    traffic = Traffic(160, 161)
    paged, whole = (
        Replica(_grid(space(source, traffic=traffic, kv_cache=kind), 1), space(source).links, 1)
        for kind in (KvCache.PAGED, KvCache.CONTIGUOUS)
    )
    few, many = (float(replica_memory(paged, n, 0, n).cache_bytes) for n in (1, 300))
    first, last = -(-161 // 16) * 16, 320
    assert few == pytest.approx(last * CACHE_BYTES_PER_TOKEN)
    held = first + (last - first) * (0.5 + 3 / math.sqrt(12 * 300))
    assert many == pytest.approx(300 * held * CACHE_BYTES_PER_TOKEN)
    assert many < float(replica_memory(whole, 300, 0, 300).cache_bytes)


def test_a_crowd_is_three_deviations_above_its_mean():
    assert crowd([0, 4, 100]) == pytest.approx([0, 10, 130])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Traffic(0, 5), "prompt_tokens is 0"),
        (lambda: Traffic(5, 1), "output_tokens is 1"),
        (lambda: Traffic(5, 5, 0.0), "rate_per_s is 0"),
        (lambda: Targets(ttft_s=-1), "ttft_s is -1"),
        (lambda: Targets(tpot_s=math.nan), "tpot_s is nan"),
        (lambda: ServingOptions(chunk=0), "chunk is 0"),
        (lambda: ServingOptions(chunk=64, disaggregate=True), "cannot be combined with"),
        (lambda: ServingOptions(memory_share=1.5), r"memory_share is 1\.5"),
        (lambda: ServingOptions(dispatch_s=-1.0), "dispatch_s is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(make, what):
    with pytest.raises(InputError, match=what):
        make()


def _grid(made, width):
    sizes = (256, 64) if made.traffic.prompt_tokens == 256 else (made.traffic.prompt_tokens,)
    return LayerGrid(made.served, made.chip, width, made.traffic, sizes, made.options.largest_batch)


def test_an_all_reduce_by_one_kernel_among_neighbours():
    """By hand where it is short; as the library where it is long, of another kind, or beyond the innermost tier."""
    network, links = load_network("hgx-h100"), np.array([450e9])
    ours, plain = engine_links(network, "hopper", fitted=True), with_laws(network, "hopper")

    def seconds(where, payload, collective=Collective.ALL_REDUCE, size=8):
        return float(link_s(Link(collective, payload, Group(size=size)), where, links)[0])

    law, bandwidth = ours.one_kernel, network.tiers[0].bandwidth_bytes_per_s or 450e9
    by_hand = law.start_s + 8 * law.rank_s + 7 * 16384 / (law.efficiency * bandwidth)
    assert seconds(ours, 16384.0) == pytest.approx(by_hand)
    assert seconds(ours, 16384.0) < seconds(plain, 16384.0)
    assert seconds(ours, 1e9) == seconds(plain, 1e9)
    assert seconds(ours, 16384.0, Collective.ALL_GATHER) == seconds(plain, 16384.0, Collective.ALL_GATHER)
    assert seconds(ours, 16384.0, size=16) == seconds(plain, 16384.0, size=16)


@pytest.mark.parametrize("devices", [8, 32])
def test_a_row_goes_once_to_a_server_with_several_of_its_experts(devices):
    """Of eight copies among D servers, chosen by chance, D (1 - (1 - 1/D)^8) go beyond the own one, by hand."""
    network, links = load_network("hgx-h100"), np.array([450e9])
    merging = engine_links(network, "hopper", fitted=False)
    payload = 1e9
    every, once = (
        float(link_s(Link(Collective.ALL_TO_ALL, payload, Group(size=devices), Copies(8)), where, links)[0])
        for where in (network, merging)
    )
    alone = Link(Collective.ALL_TO_ALL, payload, Group(size=devices))
    assert link_s(alone, merging, links) == link_s(alone, network, links)
    assert once < every
    servers = devices // 8
    if servers > 1:  # adapters set the pace
        reached = servers * (1 - (1 - 1 / servers) ** 8)
        shares = reached * (1 - 1 / servers), 8 * (1 - 1 / servers)
        assert once / every == pytest.approx(shares[0] / shares[1], rel=0.02)
