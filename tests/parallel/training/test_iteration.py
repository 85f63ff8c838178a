"""Iterations of strategies: sums, limits, closed forms, and the certified planner on its own ground."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import TensorOverlap
from phaze.parallel.parallel_plan import ParallelPlan, RankOrder, Zero
from phaze.parallel.pipelines.chunk_times import even_chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s
from phaze.workload.parallel_degrees import Sharding

TENSOR = Sharding(2, sequence=True)
SOME = (
    ParallelPlan(1),
    ParallelPlan(2, 4, 2, recompute=Recompute.FULL),
    ParallelPlan(1, 2, 2, TENSOR, Schedule.INTERLEAVED, 2, Recompute.SELECTIVE, zero=Zero.OPTIMIZER),
    ParallelPlan(1, 4, 1, TENSOR, zero=Zero.WEIGHTS, order=RankOrder.PIPELINE_INNER),
    ParallelPlan(1, 1, 4, TENSOR, Schedule.ZB_H1, zero=Zero.GRADIENTS),
    ParallelPlan(1, 2, 2, Sharding(1, context=2), recompute=Recompute.FULL, recomputed=1),
)
BUSY = framework(
    dispatch_s=4e-6,
    dispatch_backward_s=3e-6,
    microbatch_s=1e-5,
    iteration_s=2e-3,
    stretch=1.1,
    interference=0.2,
    hides_transfers=True,
    hides_reduction=True,
    hides_gathers=True,
    tensor_overlap=TensorOverlap.CHUNKED,
    fragmentation=0.05,
    reserved_bytes=1e9,
)


@pytest.mark.parametrize("software", [framework(), BUSY, BUSY.model_copy(update={"waits": True})])
@pytest.mark.parametrize("strategy", SOME)
def test_parts_sum_to_the_iteration(strategy, software):
    found = estimator(software=software).iteration(strategy)
    assert isclose(found.time.total_s, found.iteration_s, rel_tol=1e-9)
    assert min(getattr(found.time, name) for name in found.time.__slots__) >= -1e-9 * found.iteration_s
    assert len(found.memory) == strategy.pipeline_parallel


@pytest.mark.parametrize("strategy", SOME)
def test_software_only_adds(strategy):
    bare, busy = estimator().iteration(strategy), estimator(software=framework(stretch=1.2, dispatch_s=1e-6))
    assert busy.iteration(strategy).iteration_s > bare.iteration_s


@pytest.mark.parametrize("strategy", SOME)
def test_hiding_only_saves(strategy):
    hides = framework(
        hides_transfers=True, hides_reduction=True, hides_gathers=True, tensor_overlap="chunked"
    )
    bare, hidden = (estimator(software=s).iteration(strategy) for s in (framework(), hides))
    assert hidden.iteration_s <= bare.iteration_s * (1 + 1e-12)


def test_zero_divides_what_it_says():
    e = estimator()
    memory = [e.memory(ParallelPlan(1, 8, zero=zero))[0] for zero in Zero]
    for later, (divided, kept) in zip(
        memory[1:],
        [
            (("optimizer_bytes",), ("weights_bytes", "gradients_bytes")),
            (("optimizer_bytes", "gradients_bytes"), ("weights_bytes",)),
            (("optimizer_bytes", "gradients_bytes", "weights_bytes"), ()),
        ],
        strict=True,
    ):
        for name in divided:
            assert isclose(getattr(later, name), getattr(memory[0], name) / 8)
        for name in kept:
            assert getattr(later, name) == getattr(memory[0], name)
    assert memory[3].buffers_bytes > 0 == memory[2].buffers_bytes


@pytest.mark.parametrize(("chunks", "schedule"), [(1, Schedule.ONE_F_ONE_B), (2, Schedule.INTERLEAVED)])
def test_bubble_of_stages_alike(chunks, schedule):
    """(p - 1) / (v m) of the work of a device (Narayanan et al., SC'21), with the blocks that a pipeline has."""
    e = estimator(batch=32, workload=small_gpt(8))
    loads = e.stage_times(ParallelPlan(1, 1, 4, schedule=schedule, chunks=chunks))
    block = (loads.forward.pass_s + loads.turned_s)[1]
    even = pipeline_s(schedule, 32, 4, even_chunks(4 * chunks, block / 3, block / 3, block / 3))
    assert isclose(even / (32 * chunks * block) - 1, 3 / (chunks * 32), rel_tol=1e-9)


def test_selective_recompute_saves_the_scores():
    """34 s b h + 5 a s^2 b per layer without, 34 s b h with it (Korthikanti et al., arXiv 2205.05198)."""
    e = estimator()
    tokens, heads = 256, 8
    kept = [
        e.memory(ParallelPlan(1, recompute=r))[0].activations_bytes
        for r in (Recompute.NONE, Recompute.SELECTIVE)
    ]
    scores = 4 * heads * tokens**2 * (2 + 2)  # no dropout here: what softmax took and what it gave
    assert kept[0] - kept[1] == pytest.approx(scores, rel=0.5)
    assert kept[1] < kept[0]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (ParallelPlan(3), "do not divide"),
        (ParallelPlan(16, 2), "2 replicas for 1"),
        (ParallelPlan(1, 16), "16 devices of 8"),
        (ParallelPlan(1, 1, 4, schedule=Schedule.INTERLEAVED), "chunks"),
        (ParallelPlan(1, 4, shard_group=3), "groups of 3"),
        (ParallelPlan(1, 1, 8), "blocks"),
        (ParallelPlan(1, 1, 2, stages=(1, 1)), "stages of"),
    ],
)
def test_impossible_strategies_say_why(strategy, words):
    with pytest.raises(InputError, match=words):
        estimator().iteration(strategy)


def test_launches_bound_short_kernels():
    """A host that takes 1 ms for a kernel sets the pace of a small model."""
    slow = estimator(software=framework(dispatch_s=1e-3, dispatch_backward_s=1e-3))
    figures = slow.layer_costs(ParallelPlan(1))
    index = np.array(figures.chain.index)
    launched = (figures.forward.launches + figures.backward.launches)[index].sum() * 1e-3 * 16
    assert slow.iteration(ParallelPlan(1)).iteration_s == pytest.approx(launched, rel=0.01)


def test_more_replicas_share_experts_less():
    e = estimator(workload=small_gpt(experts=4))
    whole, divided = (e.memory(ParallelPlan(1, 8, sharding=Sharding(expert=x)))[0] for x in (1, 4))
    assert divided.weights_bytes < whole.weights_bytes
    found = e.iteration(ParallelPlan(1, 8, sharding=Sharding(expert=4)))
    assert found.time.expert_s > 0


def test_strategies_are_hashable_and_replaceable():
    assert len({replace(s, microbatch=1) for s in SOME}) == len(SOME)
