"""Iterations of many strategies at once are those of each, whatever they choose and whatever software runs them."""

from dataclasses import replace

import numpy as np
import pytest
from strategy_cases import SOFTWARE, estimator, framework, small_gpt

from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import list_frameworks, load_framework
from phaze.parallel.parallel_plan import Offload, ParallelPlan, RankOrder, Zero
from phaze.parallel.pipelines.chunk_times import even_chunks
from phaze.parallel.pipelines.pipeline_schedule import TRAINING
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s, pipelines_s
from phaze.parallel.plan_batches.plan_batch import batch_iterations
from phaze.parallel.plan_search.screened_plans import screened_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.workload.parallel_degrees import Shardable, Sharding

SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), sequence=(True,), context=(1, 2), chunks=(1, 2))
NAMES = [name for name in list_frameworks() if name not in SOFTWARE]


def strategies(e, every=1):
    """All choices of a space, and of each some that no search makes."""
    found = [v for some in list(screened_plans(e, SPACE))[::every] for v in SPACE.variants(some.plan)]
    return [changed for at, s in enumerate(found) for changed in (s, _changed(s, at))]


def _changed(s, at):
    blocks = tuple((at + part) % 2 for part in range(s.parts))
    kind = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)[at % 3]
    changed = replace(s, recompute=kind, recomputed=blocks if kind is Recompute.FULL else None)
    return replace(changed, reshards=at % 2 > 0, shard_group=s.replicas // 2 if s.replicas == 4 else None)


def assert_alike(e, some):
    found, alone = batch_iterations(e, some), [e.iteration(s) for s in some]
    assert found.iteration_s.tolist() == pytest.approx([i.iteration_s for i in alone], rel=1e-12)
    assert found.memory_bytes.tolist() == pytest.approx([i.memory_bytes for i in alone], rel=1e-12)


def test_all_choices_of_a_space():
    e = estimator(devices=8, batch=16)
    some = strategies(e, every=5)
    assert {s.schedule for s in some} == set(TRAINING)
    assert {s.zero for s in some} == set(Zero)
    assert {s.order for s in some} == set(RankOrder)
    assert any(s.stages for s in some)
    assert_alike(e, some)


@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
def test_all_that_software_does(said):
    e = estimator(devices=4, batch=8, software=framework(**said))
    assert_alike(e, strategies(e, every=5))


@pytest.mark.parametrize("name", NAMES)
def test_packaged_frameworks(name):
    e = estimator(devices=4, batch=8, software=load_framework(name))
    assert_alike(e, strategies(e, every=11))


def test_experts():
    e = estimator(devices=8, batch=16, workload=small_gpt(experts=4))
    base = ParallelPlan(1, 4, 2)
    sharding = replace(base.sharding, expert=2)
    assert_alike(
        e, [replace(base, sharding=sharding, zero=zero, order=o) for zero in Zero for o in RankOrder]
    )


def test_layers_that_stay_whole():
    e = estimator(devices=8, batch=16)
    sharding = Sharding(2, sequence=True, replicated=frozenset(Shardable))
    base = ParallelPlan(1, 2, 2, sharding=sharding)
    assert_alike(e, [replace(base, zero=zero, order=o) for zero in Zero for o in RankOrder])


def test_what_is_left_to_the_host():
    e = estimator(devices=8, batch=16, chip="h100")
    left = [frozenset(), frozenset(Offload), frozenset({Offload.OPTIMIZER}), frozenset({Offload.ACTIVATIONS})]
    assert_alike(e, [ParallelPlan(1, 4, 2, zero=zero, offload=what) for zero in Zero for what in left])


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("schedule", TRAINING)
def test_pipelines_side_by_side_are_simulated_as_each_alone(schedule, blocking):
    each = schedule.chunks_per_device or 2
    random, even = np.random.default_rng(5), even_chunks(4 * each, 1.0, 1.0, 1.0)
    times = [random.uniform(0.5, 2.0, (20, c)) for c in (4 * each,) * 3 + (4 * each - 1,)]
    times = [np.concatenate([some, some[:2]]) for some in times]
    names = ("forward_s", "input_gradient_s", "weight_gradient_s", "transfer_s")
    many = replace(
        even,
        **dict(zip(names, times, strict=True)),
        blocking=blocking,
    )
    found = pipelines_s(schedule, 8, 4, many)
    assert found.tolist() == [pipeline_s(schedule, 8, 4, many.take(row)) for row in range(22)]
