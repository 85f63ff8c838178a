"""Pools of two kinds of chip, and under a cap on power, against what single clocks and chips give."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from phaze.cost.pass_energy import full_load_w, static_w
from phaze.errors import InfeasibleError, InputError
from phaze.explore.documents.serving_document import serving_cost
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.economics.economic_figures import Economics
from phaze.parallel.serving import Binding, ServingOptions, ServingSpace, Targets, Traffic, best_of
from phaze.parallel.serving.pools import unlike_pools
from phaze.parallel.serving.pools.disaggregated_pools import paired
from phaze.parallel.serving.pools.unlike_pools import CLOCKS, UnlikePools, handing_over, working_w
from phaze.parallel.serving.replicas.chip_costs import Chips
from phaze.parallel.serving.replicas.layer_grid import Served
from phaze.parallel.serving.serving_plan import Role
from phaze.parallel.serving.serving_space import PoolChips
from phaze.parallel.serving.serving_trial import trial
from phaze.workload.operators.kv_cache import KvCache

MODEL = Served("gpt3-xl", KvCache.CONTIGUOUS)  # loaded once, as its layers are


@pytest.fixture(autouse=True, scope="module")
def _costed_once():
    """Every chip at every clock is costed once for all questions, which differ in caps and loads alone."""
    known, told = {}, ("clock_hz", "hbm_capacity_bytes", "global_buffer_bytes")

    def chips(model, table):
        key = tuple(table[name].tobytes() for name in told)
        return known.setdefault(key, Chips(model, table))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlike_pools, "Chips", chips)
        yield


def space(pools, rate=None, chip="h100", **more):
    options = ServingOptions(kv_cache=KvCache.CONTIGUOUS, disaggregate=True, largest_batch=32)
    load = Traffic(256, 32, rate)
    network, archs = load_network("hgx-h100"), load_architecture(chip)
    return ServingSpace(
        *("gpt3-xl", archs, 3, network, load, Targets(), replace(options, **more)),
        known_model=MODEL,
        pool_chips=pools,
    )


@cache
def alone(rate):
    """The best of pools of one chip, as ever."""
    return best_of(space(None, rate))


def plan(pools, rate=None, chip="h100"):
    return best_of(space(pools, rate, chip))


@pytest.mark.parametrize("rate", [None, 40.0])
def test_equal_chips_without_caps_are_pools_as_ever(rate):
    assert plan(PoolChips(), rate) == alone(rate)
    assert plan(PoolChips(load_architecture("h100")), rate) == alone(rate)


@pytest.mark.parametrize(("cap_w", "rate"), [(250.0, None), (350.0, 40.0)])
def test_a_cap_leaves_the_best_of_all_clocks_and_batches_that_keep_it(cap_w, rate):
    """All clocks under a cap that nothing reaches, with offers that draw more than a lower one struck out by hand."""
    every = UnlikePools(space(PoolChips(decode_w=1e6), rate))
    ((mine, prompts),) = every._prompts
    assert [other.architecture.fields["clock_hz"] for other, _ in every._tokens[1:]] == [
        share * _own_hz() for share in CLOCKS[1:]
    ]
    found = []
    for other, tokens in every._tokens:
        slower = handing_over(mine, other)
        for receiver, offers in tokens:
            over = _watts(receiver, offers, other.architecture) > cap_w
            held = receiver, replace(offers, broken={**offers.broken, Binding.POWER: over})
            found += [paired(slower, sender, held) for sender in prompts]
    best = min(filter(None, found), key=lambda choice: (*choice.rank, sum(choice.request_j)))
    kept = plan(PoolChips(decode_w=cap_w), rate)
    assert kept.requests_per_s == pytest.approx(best.requests_per_s)
    assert kept.devices == sum(part.devices for part in best.parts)
    assert kept.energy_per_token_j == pytest.approx(sum(best.request_j) / 32)
    assert kept.pools[1].drawn_w <= cap_w * (1 + 1e-9)


def test_clocks_that_are_costed_side_by_side_are_chips_of_their_own():
    every = UnlikePools(space(PoolChips(decode_w=1e6)))
    share, (other, tokens) = CLOCKS[3], every._tokens[3]
    chip = load_architecture("h100").replace("slow", clock_hz=share * _own_hz())
    ((_, own),) = UnlikePools(space(PoolChips(chip)))._tokens
    assert other.architecture.fields["clock_hz"] == chip.fields["clock_hz"]
    for (_, offers), (_, alone_) in zip(tokens, own, strict=True):
        assert offers.requests_per_s == pytest.approx(alone_.requests_per_s, rel=1e-12)
        assert offers.joules == pytest.approx(alone_.joules, rel=1e-12)


def _own_hz():
    return float(to_table([load_architecture("h100")])["clock_hz"][0])


def _watts(replica, offers, chip):
    """Joules of the requests that a replica makes in a second, over its devices, and what always flows."""
    busy = offers.requests_per_s / np.minimum(offers.batch, 1.0)
    watts = offers.joules * busy / replica.devices + float(static_w(to_table([chip]))[0])
    return np.minimum(watts, float(full_load_w(to_table([chip]))[0]))


def test_tighter_caps_serve_no_more_and_draw_no_more():
    plans = [plan(PoolChips(decode_w=cap_w)) for cap_w in (200.0, 300.0, math.inf)]
    served = [one.requests_per_s for one in plans]
    assert served == sorted(served)
    clocks = [one.pools[1].clock_hz for one in plans]
    assert clocks[0] < clocks[-1] == _own_hz()
    assert all(one.pools[0].clock_hz == _own_hz() for one in plans)


def test_a_prefill_pool_works_at_full_load_where_nothing_holds_it():
    free, held = plan(PoolChips()), plan(PoolChips(prefill_w=400.0))
    assert held.pools[0].clock_hz < free.pools[0].clock_hz
    for of, offers in UnlikePools(space(PoolChips(prefill_w=400.0)))._prompts[0][1]:
        over = offers.broken[Binding.POWER]
        assert over.tolist() == (working_w(of, offers, Role.PREFILL) > 400.0).tolist()
        assert over.any()


def test_energy_and_cost_are_those_of_both_chips():
    asked = space(PoolChips(load_architecture("l40s")))
    found, economics = best_of(asked), Economics()
    assert [pool.chip for pool in found.pools] == ["h100", "l40s"]
    assert sum(pool.energy_per_token_j for pool in found.pools) == pytest.approx(found.energy_per_token_j)
    for pool in found.pools:
        drawn = pool.energy_per_token_j * found.tokens_per_s / pool.devices
        assert pool.drawn_w == pytest.approx(drawn)
    costs = [serving_cost(found, space(None, chip=name), economics) for name in ("h100", "l40s")]
    both = serving_cost(found, asked, economics).cost_per_million_tokens_usd
    low, high = sorted(cost.cost_per_million_tokens_usd for cost in costs)
    assert low < both < high


def test_two_pools_of_one_chip_cost_what_a_cluster_of_it_costs():
    """They share the network of all of its devices, over which caches are handed over."""
    costs = [serving_cost(alone(None), space(pools), Economics()) for pools in (None, PoolChips())]
    assert costs[0].cost_parts_usd == pytest.approx(costs[1].cost_parts_usd)
    assert costs[0].carbon_parts_kg == pytest.approx(costs[1].carbon_parts_kg)
    assert costs[0].energy_parts_j == pytest.approx(costs[1].energy_parts_j)


def test_every_pool_keeps_to_the_memory_of_its_own_chip():
    found = plan(PoolChips(load_architecture("l4")))
    assert found.pools[1].memory_bytes <= 0.9 * 24 * 2**30


def test_a_stream_through_unlike_pools_takes_as_long_as_planned():
    asked = space(PoolChips(load_architecture("a100-80gb"), decode_w=300.0), 40.0)
    found = best_of(asked)
    tried = trial(found, asked, 2000, seed=1)
    assert tried.tpot.mean_s == pytest.approx(found.tpot_s, rel=0.1)
    assert tried.ttft.mean_s == pytest.approx(found.ttft_s, rel=0.15)


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_cap_that_nothing_keeps_says_what_would(role):
    caps = {"prefill_w" if role is Role.PREFILL else "decode_w": 20.0}
    with pytest.raises(InfeasibleError, match="cap on power") as refused:
        best_of(space(PoolChips(**caps)))
    (short,) = refused.value.shortfalls
    assert str(role) in short.what
    least = short.demand
    assert best_of(space(PoolChips(**dict.fromkeys(caps, least * 1.001)))).requests_per_s > 0


def test_bad_questions_are_refused():
    with pytest.raises(InputError, match="above zero"):
        PoolChips(decode_w=0.0)
    with pytest.raises(InputError, match="separate pools"):
        space(PoolChips(), disaggregate=False)
