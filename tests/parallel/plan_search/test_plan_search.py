"""The best plan of a space, against every plan tried in turn."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isclose

import pytest
from every_plan import cuts, fastest_s, needs_and_times
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.chunk_division import Grain
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.plan_batch import batch_bounds_s
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace

SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1, 2))


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
def test_no_plan_is_faster(software):
    tied = software is SOFTWARE["real"]
    e = estimator(devices=4, batch=8, software=software, workload=small_gpt(tied=tied))
    most = best_plans(e, SPACE, inf).best[0].iteration.memory_bytes
    known = needs_and_times(e, SPACE, most)
    for capacity in (most, 0.6 * most, 0.35 * most):
        found, best = best_plans(e, SPACE, capacity), fastest_s(known, capacity)
        if not found.best:
            assert best == inf
            assert found.least_memory_bytes > capacity
            continue
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
    assert len({one.plan for one in found}) == 5


def test_many_pipelines_are_looked_at_together_for_the_same_answer(monkeypatch):
    """In fewer batches, and no more than a quarter of them in vain."""

    def searched(more):
        batches = []
        monkeypatch.setattr("phaze.parallel.plan_search.best_first_search._MORE", more)
        monkeypatch.setattr(
            "phaze.parallel.plan_search.best_first_search.batch_bounds_s",
            lambda e, plans: batches.append(len(plans)) or batch_bounds_s(e, plans),
        )
        found = best_plans(estimator(devices=4, batch=8), SPACE, inf, top=300)
        return found, batches

    (alone, each), (together, some) = searched(10**9), searched(4)
    assert together.best == alone.best
    assert together.account.total == alone.account.total
    assert len(some) < len(each) / 2
    assert sum(each) <= sum(some) <= 5 / 4 * sum(each) + max(each)


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
    assert best.plan.stages[-1] < 2 == 8 // 4
    assert best.iteration.iteration_s < 0.95 * even.iteration.iteration_s


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
def test_no_plan_of_half_blocks_is_faster(software):
    """The best of whole and of half blocks is that of all plans; more cuts never hurt."""
    e = estimator(devices=4, batch=8, software=software, workload=small_gpt(3))
    blocks = PlanSpace(microbatches=(1,), tensor=(1, 2), sequence=(True,), chunks=(1, 2), pipeline=(2, 4))
    space = replace(blocks, grains=tuple(Grain))
    most = best_plans(e, space, inf).best[0].iteration.memory_bytes
    known = needs_and_times(e, space, most)
    for capacity in (most, 0.7 * most, 0.5 * most):
        found, whole = (best_plans(e, one, capacity).best for one in (space, blocks))
        best = found[0].iteration.iteration_s if found else inf
        assert best == pytest.approx(fastest_s(known, capacity), rel=1e-9)
        assert not whole or best <= whole[0].iteration.iteration_s


def test_half_blocks_balance_what_whole_ones_cannot():
    """Six blocks and a head that weighs as much as two: four stages have three layers, four, four, and one with it."""
    e = estimator(devices=4, batch=64, workload=small_gpt(6))
    space = PlanSpace(
        microbatches=(1,), tensor=(1,), chunks=(1,), pipeline=(4,), schedules=(Schedule.ONE_F_ONE_B,)
    )
    whole, best = (
        best_plans(e, replace(space, grains=some), inf).best[0] for some in ((Grain.BLOCK,), tuple(Grain))
    )
    assert best.plan.grain is Grain.LAYER
    assert max(best.plan.stages) == 4
    assert best.iteration.iteration_s < 0.9 * whole.iteration.iteration_s
