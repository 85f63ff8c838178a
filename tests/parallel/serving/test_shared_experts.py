"""Replicas that share experts, each with sequences of its own: the search against enumeration, memory, and pools."""

from __future__ import annotations

from itertools import product

import pytest
from serving_cases import aimed, batches, served_mixture, space

from phaze.parallel.serving import Policy
from phaze.parallel.serving.load.prompt_passes import chunks_of
from phaze.parallel.serving.replicas.steady_state import Cycle, Prefill
from phaze.parallel.serving.serving_requests import Traffic
from phaze.parallel.serving.serving_search import best_of
from phaze.parallel.serving.serving_trial import trial

EXPERT_BYTES = 3 * 8 * 3 * 512 * 1024 * 2
TRAFFIC = Traffic(256, 64)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return space(served_mixture(tmp_path_factory.mktemp("mixture")), devices=4, batch=8, traffic=TRAFFIC)


def groups(made, replica):
    """Numbers of replicas of a shape that the devices make, those that share experts together."""
    step = replica.grid.experts
    return range(step, made.devices // replica.devices + 1, step)


def test_the_shapes_of_replicas(made):
    """Every width and power of two of replicas that fits, with all numbers of stages."""
    shapes = {(r.grid.width, r.grid.experts, r.stages) for r in made.replicas}
    wanted = {(t, e, p) for t, e, p in product((1, 2, 4), repeat=3) if t * e * p <= 4}
    assert {s for s in shapes if s[2] != 3} == wanted
    assert {s[0] * s[1] * s[2] for s in shapes} <= {1, 2, 3, 4}


def test_weights_of_experts_are_dealt(made):
    whole, *_ = (r for r in made.replicas if (r.devices, r.together) == (1, 1))
    for r in (r for r in made.replicas if r.devices == 1):
        spared = float(whole.grid.weight_bytes.sum() - r.grid.weight_bytes.sum())
        assert spared == pytest.approx(EXPERT_BYTES * (1 - 1 / r.together))
        assert r.grid.cache_bytes[0].sum() == whole.grid.cache_bytes[0].sum()


def test_together_against_enumeration(made):
    most = 0.0
    for replica, b in product(made.replicas, range(1, 9)):
        for size, mixed in [(256, False)] + [(s, True) for s in made.chunk_sizes]:
            several, whole = made.most_prompts(size), chunks_of(made.traffic, size)
            cycle = Cycle(replica, made.traffic, batches(b), whole, mixed, several)
            fits = cycle.memory(batches(b * replica.stages)).total_bytes[0] <= made.limits.memory_bytes
            if cycle.keeps_up[0] and fits:
                most = max(most, max(groups(made, replica), default=0) * float(cycle.requests_per_s[0]))
    plan = best_of(aimed(made, disaggregate=False))
    assert plan.requests_per_s == pytest.approx(most, rel=1e-9)


def test_apart_against_enumeration(made):
    most = 0.0
    for first, second, g, b in product(made.replicas, made.replicas, (1, 2, 4, 8), range(1, 9)):
        prefill, decode = Prefill(first, made.traffic, (g,)), Cycle(second, made.traffic, batches(b))
        send = made.transfer_s(first.devices, second.devices)
        one, other = (min(float(x.requests_per_s[0]), 1 / send) for x in (prefill, decode))
        for n, m in product(groups(made, first), groups(made, second)):
            if n * first.devices + m * second.devices <= made.devices:
                most = max(most, min(n * one, m * other))
    plan = best_of(aimed(made, disaggregate=True))
    assert plan.policy is Policy.DISAGGREGATED
    assert plan.requests_per_s == pytest.approx(most, rel=1e-9)


def test_passes_with_little_to_do_are_spared_most_of_the_experts_weights(made):
    """One sequence each: two of eight experts alone, with four replicas at most eight, dealt: two each."""
    alone, shared = (
        next(r for r in made.replicas if (r.devices, r.together) == (1, e)).grid.base for e in (1, 4)
    )
    for chain, groups_ in ((alone, 2), (shared, 2)):
        ups = [w for layer in chain.layers for w in layer.forward.works if w.name.startswith("up")]
        assert {w.gemms[0].groups for w in ups} == {groups_}
    links = [w for layer in shared.layers for w in layer.forward.works if w.link]
    assert {(w.link.group.size, w.link.payload_bytes) for w in links} == {(4, 2 * 512 * 2)}


def test_a_stream_of_requests_through_such_replicas(tmp_path_factory):
    source = served_mixture(tmp_path_factory.mktemp("mixture"))
    made = space(source, devices=4, batch=24, traffic=Traffic(256, 64, 2000.0))
    plan = best_of(aimed(made, disaggregate=False))
    (pool,) = plan.pools
    assert pool.replicas % pool.expert_parallel == 0
    assert trial(plan, made, 200, 0).ttft.mean_s == pytest.approx(plan.ttft_s, rel=0.5)
