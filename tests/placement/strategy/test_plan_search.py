"""The best plan of a space, against every plan tried in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, isclose

import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.placement.cluster import Recompute
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.division import blocks
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.search.search import best_plans
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Strategy

SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1, 2))


def every(e: Estimator, space: PlanSpace) -> Iterator[Strategy]:
    """All strategies of a space, with every number of recomputed blocks in every chunk."""
    for shape in space.shapes(e.workload, e.cluster):
        for deep in space.pipelines(shape, e.cluster, blocks(e.figures(shape).chain)):
            for cut in cuts(e, deep):
                for s in space.schedules_of(cut, e.microbatches(cut)):
                    for variant in space.variants(s):
                        yield from recomputing(e, variant)


def cuts(e: Estimator, deep: Strategy) -> Iterator[Strategy]:
    """Even stages, and the first of those whose longest stage is shortest."""
    yield deep
    if deep.chunks == 1 and deep.pipeline_parallel > 1:
        total = int(e.division(deep).blocks.sum())
        sizes = product(range(1, total + 1), repeat=deep.pipeline_parallel)
        tried = [replace(deep, stages=some) for some in sizes if sum(some) == total]
        yield min(tried, key=lambda s: float((e.loads(s).forward.pass_s + e.loads(s).turned_s).max()))


def recomputing(e: Estimator, strategy: Strategy) -> Iterator[Strategy]:
    if strategy.recompute is not Recompute.FULL:
        yield strategy
        return
    counts = [range(n + 1) for n in e.division(strategy).blocks.tolist()]
    for some in product(*counts):
        yield replace(strategy, recomputed=some)


def brute_force_s(e: Estimator, capacity: float) -> float:
    best = inf
    for strategy in every(e, SPACE):
        if max(part.total_bytes for part in e.memory(strategy)) <= capacity:
            best = min(best, e.iteration(strategy).iteration_s)
    return best


SOFTWARE = {
    "ideal": framework(),
    "real": framework(
        dispatch_s=5e-6,
        dispatch_backward_s=3e-6,
        hides_reduction=True,
        hides_gathers=True,
        interference=0.1,
        stretch=1.1,
        iteration_s=1e-3,
    ),
}


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("tight", [1.0, 0.6, 0.35])
def test_no_plan_is_faster(software, tight):
    tied = software is SOFTWARE["real"]
    e = estimator(devices=4, batch=8, software=software, workload=small_gpt(tied=tied))
    unbound = best_plans(e, SPACE, inf)
    capacity = tight * unbound.best[0].iteration.memory_bytes
    found, best = best_plans(e, SPACE, capacity), brute_force_s(e, capacity)
    if not found.best:
        assert best == inf
        assert found.least_memory_bytes > capacity
        return
    assert isclose(found.best[0].iteration.iteration_s, best, rel_tol=1e-9)
    assert found.best[0].iteration.memory_bytes <= capacity


def test_counts_cover_the_space():
    e = estimator(devices=4, batch=8)
    counts = best_plans(e, SPACE, 1e9).account
    looked = sum(
        len(tuple(SPACE.variants(s)))
        for shape in SPACE.shapes(e.workload, e.cluster)
        for deep in SPACE.pipelines(shape, e.cluster, 4)
        for cut in {e.division(c).chunks: c for c in cuts(e, deep)}.values()
        for s in SPACE.schedules_of(cut, e.microbatches(cut))
    )
    assert counts.total == looked
    assert counts.evaluated < looked / 2


def test_next_best_are_in_order_and_different():
    e = estimator(devices=4, batch=8)
    found = best_plans(e, SPACE, inf, top=5).best
    times = [one.iteration.iteration_s for one in found]
    assert times == sorted(times)
    assert len({one.strategy for one in found}) == 5


def test_more_memory_never_hurts():
    e = estimator(devices=8, batch=16)
    last = inf
    for capacity in (0.2e9, 0.3e9, 0.5e9, 1e9, 4e9):
        found = best_plans(e, SPACE, capacity).best
        seconds = found[0].iteration.iteration_s if found else inf
        assert seconds <= last * (1 + 1e-12)
        last = seconds
    assert last < inf


def test_stages_are_balanced_where_the_head_weighs_in():
    e = estimator(devices=4, batch=64, workload=small_gpt(8))
    space = PlanSpace(
        microbatches=(1,), tensor=(1,), chunks=(1,), pipeline=(4,), schedules=(Schedule.ONE_F_ONE_B,)
    )
    best = best_plans(e, space, inf).best[0]
    even = best_plans(e, replace(space, balances=False), inf).best[0]
    assert best.strategy.stages[-1] < 2 == 8 // 4
    assert best.iteration.iteration_s < 0.95 * even.iteration.iteration_s
