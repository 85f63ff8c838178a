"""Pipelines fitted into memory many at once: as each is alone, and with bounds of what then runs again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from strategy_cases import LAUNCHES, estimator, framework, small_gpt

from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload
from phaze.parallel.pipelines.pipeline_schedule import TRAINING
from phaze.parallel.plan_batches.memory_fit import FootprintBatch, PlanFootprint, alike, fits
from phaze.parallel.plan_batches.plan_batch import batch_bounds_s
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.fitted_pipelines import MemoryTally, PipelineFits
from phaze.parallel.plan_search.memory_bounds import MemoryBounds
from phaze.parallel.plan_search.screened_plans import screened_plans
from phaze.parallel.plan_space import PlanSpace

SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), sequence=(True,), chunks=(1, 2), grains=tuple(Grain))


@pytest.fixture(scope="module")
def some():
    """An estimator, and pipelines of all schedules with their bounds."""
    e = estimator(devices=4, batch=16, software=framework(**LAUNCHES), workload=small_gpt(5))
    return e, list(screened_plans(e, SPACE))[::3]


def test_footprints_together_are_those_of_each(some):
    e, opened = some
    batches = {}
    for plan in (one.plan for one in opened):
        batches.setdefault((alike(e.layouts, plan), SPACE.choices(plan)[0]), []).append(plan)
    for (_, zeros), plans in batches.items():
        together = FootprintBatch.of(e.layouts, plans, zeros)
        for row, plan in enumerate(plans):
            alone = PlanFootprint.of(e.layouts, plan, zeros)
            levels = alone.need_bytes.shape[1]
            assert (together.need_bytes[:, row, :levels] == alone.need_bytes).all()
            assert (together.need_bytes[:, row, levels:] == alone.need_bytes[:, -1:]).all()
            assert (together.blocks[row] == alone.blocks).all()
    assert {plan.schedule for plans in batches.values() for plan in plans} == set(TRAINING)


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_what_fits_together_is_what_fits_alone_no_faster_than_its_bound(some, share):
    e, opened = some
    pipelines, tally = [one.plan for one in opened], MemoryTally()
    capacity = share * best_plans(e, SPACE, 1e12).best[0].iteration.memory_bytes
    found, unfit = Counter(), 0
    for one in PipelineFits(e, SPACE, capacity, tally).fitted(pipelines):
        for plan, bound in zip(one.plans, batch_bounds_s(e, list(one.plans)).tolist(), strict=True):
            found[one.which, plan] += 1
            assert one.busy_s <= bound * (1 + 1e-12)
            assert opened[one.which].bound_s <= one.busy_s * (1 + 1e-12)
    for which, pipeline in enumerate(pipelines):
        zeros, orders = SPACE.choices(pipeline)
        each = fits(e.layouts, pipeline, zeros, capacity)
        unfit += len(orders) * sum(fit.plan is None for fit in each)
        for fit in (fit for fit in each if fit.plan is not None):
            assert sum(found.pop((which, plan), 0) for plan in _ordered(fit.plan, orders)) == len(orders)
    assert not found
    assert tally.out_of_memory == unfit > 0
    assert tally.batches < len(pipelines) / 4


@pytest.mark.parametrize("frugal", [True, False])
@pytest.mark.parametrize("share", [0.4, 0.55, 0.7])
@pytest.mark.parametrize("said", [{}, LAUNCHES], ids=["ideal", "launches"])
def test_no_pipeline_that_fits_is_faster_than_what_its_devices_run_again(said, share, frugal):
    e = estimator(devices=8, batch=48, software=framework(**said), workload=small_gpt(9))
    space = replace(SPACE, frugal=frugal, recomputes=tuple(Recompute) if not frugal else SPACE.recomputes)
    opened = list(screened_plans(e, space))[::2]
    capacity = share * best_plans(e, space, 1e12).best[0].iteration.memory_bytes
    bounds_s, may_fit = MemoryBounds(e, space, capacity).bounds(opened)
    least_s = np.full(len(opened), np.inf)
    for one in PipelineFits(e, space, capacity, MemoryTally()).fitted([some.plan for some in opened]):
        least_s[one.which] = min(least_s[one.which], one.busy_s)
    fits = np.isfinite(least_s)
    assert (bounds_s <= least_s).all()
    assert may_fit[fits].all()
    assert (~fits).any() and fits.any()
    assert (~may_fit).sum() > 0.9 * (~fits).sum()
    if frugal and not said:
        plain_s = np.array([one.bound_s for one in opened])
        longer = fits & (least_s > 1.01 * plain_s)
        known = np.maximum(bounds_s, plain_s)[longer] / least_s[longer]
        assert longer.sum() > 20
        assert np.median(known) > 0.98


def test_what_hosts_keep_is_left_out_of_what_devices_run_again():
    e = estimator(devices=4, batch=16, workload=small_gpt(5))
    for space in (
        replace(SPACE, offloads=(frozenset(), frozenset({Offload.ACTIVATIONS}))),
        replace(SPACE, by_layer=True),
    ):
        opened = list(screened_plans(e, space))[:20]
        bounds_s, fits = MemoryBounds(e, space, 1.0).bounds(opened)
        assert not bounds_s.any() and fits.all()


def test_what_fits_nowhere_needs_as_little_as_the_leanest_plan_of_all():
    e = estimator(devices=4, batch=16, workload=small_gpt(5))
    opened = [one.plan for one in screened_plans(e, SPACE)]
    tally = MemoryTally()
    assert not list(PipelineFits(e, SPACE, 1e6, tally).fitted(opened))
    found = best_plans(e, SPACE, 1e6)
    assert found.least_memory_bytes == tally.least_bytes
    assert found.account.out_of_memory == tally.out_of_memory == found.account.total


def _ordered(plan, orders):
    return [replace(plan, order=order) for order in orders]


def test_plans_that_recompute_too_much_are_neither_fitted_nor_bounded_as_iterations(monkeypatch):
    e, bounded, asked, fitting = estimator(devices=8, batch=16, workload=small_gpt(8)), [], [], []
    capacity = 0.6 * best_plans(e, SPACE, 1e12).best[0].iteration.memory_bytes
    fitted = PipelineFits.fitted
    monkeypatch.setattr(
        "phaze.parallel.plan_search.best_first_search.batch_bounds_s",
        lambda e, plans: bounded.append(len(plans)) or batch_bounds_s(e, plans),
    )
    monkeypatch.setattr(
        PipelineFits,
        "fitted",
        lambda self, some: (
            asked.append(len(some)) or (fitting.append(len(fit.orders)) or fit for fit in fitted(self, some))
        ),
    )
    found = best_plans(e, SPACE, capacity)
    faster = sum(one.bound_s < found.best[0].iteration.iteration_s for one in screened_plans(e, SPACE))
    assert 0 < found.account.evaluated <= sum(bounded) < sum(fitting)
    assert sum(asked) < 0.5 * faster
