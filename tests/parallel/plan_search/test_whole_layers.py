"""Layers that tensor ranks keep whole: between tensor and context parallelism, and exact in the search."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf, isclose

import numpy as np
import pytest
from every_plan import brute_force_s
from strategy_cases import estimator, framework, small_gpt
from test_plan_search import SOFTWARE

from phaze.cost.pass_energy import Events, dynamic_j
from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.parallel.training.layer_costs import layer_costs
from phaze.scheduling.layers import TimedChain
from phaze.workload.parallel_degrees import Parallel, Shardable, Sharding
from phaze.workload.work import Unit

MLP = frozenset({Shardable.MLP})
SUBSETS = tuple(frozenset(some) for size in range(5) for some in combinations(Shardable, size))
INNER, OUTER = 300e9, 25e9  # bytes/s
NETWORK = two_tiers(4, INNER, 0.0, OUTER, 0.0)
BLOCKS, HIDDEN, FFN = 4, 512, 2048
MLP_PARAMETERS = BLOCKS * (2 * HIDDEN * FFN + FFN + HIDDEN + 2 * HIDDEN)  # two products, their biases, a norm


def spread(*whole, tensor=4, **more):
    return ParallelPlan(2, sharding=Sharding(tensor, True, replicated=frozenset(whole)), **more)


def run(strategy, **changes):
    return estimator(network=NETWORK, **changes).iteration(strategy)


# -- one strategy


def test_whole_mlps_exchange_nothing_and_compute_the_same():
    e = estimator(network=NETWORK)
    divided, whole = (e.iteration(s).time for s in (spread(), spread(Shardable.MLP)))
    five = (
        5 * (3 / 4) * (2 * 256 * HIDDEN * 2) / INNER
    )  # gather and scatter forward, gather, scatter, gather backward
    works = [w for layer in e.chain(spread(Shardable.MLP)).layers for w in layer.forward.works]
    assert not [w for w in works if w.unit is Unit.LINK and "mlp" in w.name]
    assert divided.tensor_s - whole.tensor_s == pytest.approx(8 * BLOCKS * five)  # of eight microbatches
    assert whole.context_s == 0
    assert macs(e, spread(Shardable.MLP)) == macs(e, spread())


def macs(e, strategy):
    chain = e.chain(strategy)
    passes = [p for i in chain.index for p in (chain.layers[i].forward, chain.layers[i].backward)]
    return sum(work.macs for one in passes for work in one.works)


def test_gradients_of_whole_layers_are_reduced_over_tensor_ranks_too():
    for data, between in ((1, 0.0), (2, 2 * (1 / 2) * 4 * MLP_PARAMETERS / 4 / OUTER)):
        divided, whole = (
            run(spread(*some, data_parallel=data)).time.reduction_s for some in ((), (Shardable.MLP,))
        )
        shares = 2 * (1 / 2) * 4 * divided_mlps() / OUTER * (data > 1)  # what replicas of divided ones reduce
        inside = 2 * (3 / 4) * 4 * MLP_PARAMETERS / INNER
        assert whole - divided == pytest.approx(inside + between - shares, rel=1e-9)


def divided_mlps():
    chain = estimator(network=NETWORK).chain(spread())
    return sum(chain.layers[i].parameters for i in chain.index if chain.layers[i].shardable is Shardable.MLP)


def test_zero_divides_whole_layers_over_data_and_tensor_ranks():
    zero = {"data_parallel": 2, "zero": Zero.OPTIMIZER}
    divided, whole = run(spread(**zero)), run(spread(Shardable.MLP, **zero))
    more = MLP_PARAMETERS - divided_mlps()
    first, second = divided.memory[0], whole.memory[0]
    assert second.weights_bytes - first.weights_bytes == pytest.approx(2 * more)
    assert second.gradients_bytes - first.gradients_bytes == pytest.approx(4 * more)
    states = 12 * (MLP_PARAMETERS / 8 - divided_mlps() / 2)
    assert second.optimizer_bytes - first.optimizer_bytes == pytest.approx(states)
    gathers = 2 * (MLP_PARAMETERS * (3 / 4 / INNER + 1 / 2 / 4 / OUTER) - divided_mlps() * 1 / 2 / OUTER)
    assert whole.time.gather_s - divided.time.gather_s == pytest.approx(gathers)


def test_zero_3_divides_whole_layers_among_tensor_ranks_alone():
    plain, zero = (run(spread(Shardable.MLP, zero=zero)) for zero in (Zero.NONE, Zero.WEIGHTS))
    rest = plain.memory[0].weights_bytes - 2 * MLP_PARAMETERS
    assert zero.memory[0].weights_bytes == pytest.approx(rest + 2 * MLP_PARAMETERS / 4)
    moved = (
        (2 + 2 + 4) * (3 / 4) * MLP_PARAMETERS / INNER
    )  # weights before forward and backward, then gradients
    assert zero.time.gather_s + zero.time.reduction_s == pytest.approx(zero.microbatches * moved)


def test_what_lies_in_the_host_is_divided_alike():
    s = spread(Shardable.MLP, zero=Zero.WEIGHTS, offload=frozenset({Offload.WEIGHTS}))
    e = estimator(network=NETWORK, chip="gh200")
    needs = e.memory_footprint(s)
    assert float(needs.replicated.sum()) == MLP_PARAMETERS
    assert e.iteration(s).memory[0].weights_bytes == 0


@pytest.mark.parametrize("recompute", Recompute)
def test_all_whole_is_context_parallelism_of_the_same_width(recompute):
    e = estimator(network=NETWORK)
    whole = spread(*Shardable, recompute=recompute, pipeline_parallel=2)
    context = replace(whole, sharding=Sharding(context=4))
    first, second = e.stage_times(whole), e.stage_times(context)
    for side in ("forward", "recomputation", "backward"):
        mine, other = getattr(first, side), getattr(second, side)
        np.testing.assert_array_equal(mine.pass_s, other.pass_s)
        np.testing.assert_array_equal(mine.exposed_s[Parallel.CONTEXT], other.exposed_s[Parallel.CONTEXT])
        assert not mine.exposed_s[Parallel.TENSOR].any()
    np.testing.assert_allclose(first.transfer_s, second.transfer_s)
    mine, other = e.memory(whole)[0], e.memory(context)[0]
    assert mine.weights_bytes == other.weights_bytes
    assert mine.activations_bytes == other.activations_bytes
    assert mine.working_bytes == other.working_bytes


def test_none_whole_is_the_sharding_itself():
    assert Sharding(4, True, replicated=frozenset()) == Sharding(4, True)
    assert not any(estimator().chain(spread()).replicated)


@pytest.mark.parametrize("chip", ["a100", "tpuv4"])
def test_figures_of_a_mix_are_those_of_its_chain(chip):
    e = estimator(chip=chip)
    s = spread(Shardable.MLP, Shardable.EMBEDDING)
    alone = layer_costs(e.chain(s), e.costs, e.loaded, e.limits).alone()
    for side in ("forward", "backward", "recomputation", "ending"):
        np.testing.assert_allclose(getattr(e.layer_costs(s), side).stacked, getattr(alone, side).stacked)


def test_experts_are_never_whole():
    e = estimator(workload=small_gpt(experts=4))
    s = spread(*Shardable, data_parallel=2)
    plain = e.chain(spread(data_parallel=2))
    for layer, other, whole in zip(e.chain(s).layers, plain.layers, e.chain(s).replicated, strict=True):
        assert whole == (other.shardable is not None)
        if layer.expert_parameters:
            assert layer == other
    assert float(e.device_parameters(s).experts.sum()) == float(
        e.device_parameters(replace(s, sharding=plain.sharding)).experts.sum()
    )


def test_energy_counts_the_reduction_among_tensor_ranks():
    e, s = estimator(network=NETWORK), spread(Shardable.MLP)
    chain = e.chain(s)
    alike = replace(
        chain, sharding=chain.sharding.divided
    )  # the same layers, each with parameters of its own
    once = Drivers(np.zeros((1, len(chain.layers))), np.ones(1), np.zeros(1), np.ones(1))
    whole_j, divided_j = (
        ChainEnergy(TimedChain(one, e.model, e.table), e.cluster, e.workload.numerics).energy_j(
            np.array([0]), once
        )
        for one in (chain, alike)
    )
    sent = 4 * 2 * (3 / 4) * 4 * MLP_PARAMETERS  # by four devices
    link_j = dynamic_j(Events(link_bytes=np.array([2 * sent])), e.table)  # both ends
    np.testing.assert_allclose(whole_j - divided_j, link_j, rtol=1e-6)


def test_whole_layers_need_sequence_parallelism():
    for sharding in ({"tensor": 4}, {"tensor": 1, "sequence": True}):
        with pytest.raises(ValueError, match="need sequence parallelism"):
            Sharding(**sharding, replicated=MLP)


# -- the search

FEW = (Schedule.ONE_F_ONE_B, Schedule.ZB_H1)
SPACE = PlanSpace(microbatches=(1,), tensor=(1, 2), chunks=(1,), schedules=FEW, whole=SUBSETS)
TENSOR = PlanSpace(
    microbatches=(2,), tensor=(4,), sequence=(True,), pipeline=(1,), chunks=(1,), whole=SUBSETS
)


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize(("space", "batch", "tight"), [(SPACE, 4, 1.0), (TENSOR, 32, 0.95)])
def test_no_plan_of_any_subset_is_faster(space, batch, tight, software):
    slow = two_tiers(4, 20e9, 1e-6, 25e9, 5e-6)
    e = estimator(devices=4, batch=batch, software=software, network=slow, workload=small_gpt(2))
    capacity = tight * best_plans(e, space, inf).best[0].iteration.memory_bytes
    found, best = best_plans(e, space, capacity).best, brute_force_s(e, space, capacity)
    assert isclose(found[0].iteration.iteration_s, best, rel_tol=1e-9)
    assert found[0].iteration.memory_bytes <= capacity


def test_whole_layers_win_where_exchanges_of_tokens_are_slow():
    e = estimator(devices=4, batch=64, network=two_tiers(4, 20e9, 1e-6, 25e9, 5e-6), software=framework())
    best = best_plans(e, TENSOR, inf).best[0]
    divided = best_plans(e, replace(TENSOR, whole=(frozenset(),)), inf).best[0]
    assert Shardable.MLP in best.plan.sharding.replicated
    assert best.plan.zero is Zero.OPTIMIZER  # worth it among tensor ranks alone
    assert best.iteration.iteration_s < 0.85 * divided.iteration.iteration_s


def test_every_subset_is_counted():
    e = estimator(devices=4, batch=4, workload=small_gpt(3))
    plain, all_ = (
        best_plans(e, replace(TENSOR, whole=some), 1e12).account.total for some in ((frozenset(),), SUBSETS)
    )
    assert all_ > len(SUBSETS) * plain  # and more of ZeRO
