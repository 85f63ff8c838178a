"""Bounds of plans: never above what the event simulation says, of any schedule, software and recompute."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from strategy_cases import HIDES, LAUNCHES, SOFTWARE, estimator, framework, small_gpt

from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import Zero
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s
from phaze.parallel.plan_batches.memory_fit import fits
from phaze.parallel.plan_batches.plan_batch import IterationBatch
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.plan_lower_bounds import busy_bound_s, least_rounds, rest_key, rest_s
from phaze.parallel.plan_search.plans_in_order import PlansInOrder
from phaze.parallel.plan_search.screened_plans import ScreenedPlans, screened_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.stage_times import ChunkPasses

SPACE = PlanSpace(microbatches=(1,), tensor=(1, 2), sequence=(False,), chunks=(1, 2))


@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("tight", [inf, 0.7])
def test_no_iteration_is_shorter_than_its_bounds(said, tight):
    e, seen = estimator(devices=4, batch=8, software=framework(**said)), set()
    capacity = tight
    if tight < inf:
        capacity *= max(best_plans(e, SPACE, inf).best[0].iteration.memory_bytes, 1.0)
    for some in list(screened_plans(e, SPACE))[::2]:
        s, (zeros, orders) = some.plan, SPACE.choices(some.plan)
        variants = tuple(SPACE.variants(s))
        rests = dict(zip(variants, rest_s(e, [(v,) for v in variants]), strict=True))
        assert rest_s(e, [variants]) == [min(rests.values())]
        for variant in (v for v in variants if v.order is orders[-1]):
            (fit,) = fits(e.layouts, variant, (variant.zero,), capacity)
            if fit.plan is None:
                continue
            seen.add((s.schedule, fit.plan.recompute))
            least_s = e.iteration(fit.plan).iteration_s * (1 + 1e-12)
            assert some.bound_s + rests[variant] <= least_s
            assert IterationBatch(e, (fit.plan,)).bounds_s() <= least_s
        assert zeros == tuple(Zero) or s.replicas == 1
    schedules, recomputes = ({*some} for some in zip(*seen, strict=True))
    assert schedules == set(TRAINING) if tight == inf else Recompute.FULL in recomputes


@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
def test_what_follows_pipelines_is_the_same_under_the_same_key(said):
    e, space = estimator(devices=4, batch=8, software=framework(**said)), replace(SPACE, microbatches=(1, 2))
    known, plans = {}, [some.plan for some in screened_plans(e, space)]
    for plan in plans:
        (rest,) = rest_s(e, [tuple(space.variants(plan))])
        assert known.setdefault(rest_key(e, plan), rest) == rest
    assert len(known) < len(plans)


def test_pipelines_are_made_where_they_are_looked_at(monkeypatch):
    """All places have their bounds in one array, in the order of plans; a search makes the plans of the first ones."""
    e, made, at = estimator(devices=8, batch=64, workload=small_gpt(8)), [], ScreenedPlans.at
    screened = screened_plans(e, SPACE)
    assert screened.bounds_s.tolist() == [some.bound_s for some in screened]
    parts = np.repeat(screened.figures(lambda s: s.parts), screened.cuts)
    assert sorted(parts) == sorted(some.pipeline.parts for some in screened)
    monkeypatch.setattr(ScreenedPlans, "at", lambda self, place: made.append(place) or at(self, place))
    monkeypatch.setattr("phaze.parallel.plan_search.best_first_search._AT_ONCE", 8)
    best_plans(e, SPACE, inf)
    assert 0 < len(made) < len(screened.bounds_s) / 4


ANYWHERE = replace(SPACE, schedules=(Schedule.ONE_F_ONE_B,), chunks=(1,), grains=tuple(Grain))
"""As PHAZE's: most pipelines are cut in many ways."""


@pytest.mark.parametrize("space", [SPACE, ANYWHERE], ids=["all", "anywhere"])
@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
def test_pipelines_that_are_not_cut_are_bounded_by_all_of_their_layers(said, space):
    """In whichever way they are cut, none has a bound below; and a bound is not so low that it tells nothing."""
    e = estimator(devices=16, batch=64, software=framework(**said), workload=small_gpt(8))
    screened = screened_plans(e, space)
    bounds_s, _, columns = screened.opened(np.arange(len(screened.cuts)))
    assert len(bounds_s) == screened.cuts.sum() == len(screened)
    assert (screened.least_s[columns] <= bounds_s).all()
    assert (screened.least_s[columns] >= 0.9 * bounds_s).any() or not said.keys().isdisjoint(LAUNCHES)


@pytest.mark.parametrize("microbatches", [1, 2, 5, 8, 9, 40])
@pytest.mark.parametrize("stages", [1, 2, 3, 8])
def test_no_way_to_cut_takes_fewer_rounds(stages, microbatches):
    """Work cut at random, and as evenly as can be: the bound is within a third of the bubble of the latter."""
    draw = np.random.default_rng(stages)
    device_s = draw.dirichlet(np.ones(3 * stages), 500).reshape(500, 3, stages).transpose(1, 0, 2)
    device_s[:, 0] = 1 / (3 * stages)
    passes = ChunkPasses(device_s, np.zeros_like(device_s), np.zeros((500, stages)), framework())
    each = np.full(500, microbatches)
    bounds_s = busy_bound_s(Schedule.ONE_F_ONE_B, stages, passes, each)
    least = least_rounds(stages, each)
    assert (least <= bounds_s * (1 + 1e-12)).all()
    if microbatches > stages:
        bubble = (stages - 1) / stages
        assert least[0] >= bounds_s[0] - bubble / 3 - 1e-12


def test_plans_wait_in_the_order_of_their_bounds():
    """Those that are taken one after the other are those of all bounds in order; not all of them are worked out."""
    e = estimator(devices=16, batch=64, workload=small_gpt(8))
    every = screened_plans(e, ANYWHERE).bounds_s
    screened = screened_plans(e, ANYWHERE)
    waiting, found = PlansInOrder(screened, lambda _: 1.0), []
    for _ in range(20):
        least_s = waiting.least_s(inf)
        (place,) = waiting.take(1, inf)
        assert least_s == every[place]
        found.append(place)
    assert found == np.argsort(every, kind="stable")[:20].tolist()
    assert any(np.isnan(block.bounds_s).any() for block in screened.blocks)
    while (least_s := waiting.least_s(inf)) < inf:
        some = waiting.take(100, 1.1 * least_s)
        assert (every[some] < 1.1 * least_s).all() or len(some) == 1
        found += some
    assert sorted(found) == list(range(len(every)))


def test_bounds_of_strategies_side_by_side_are_those_of_each():
    e = estimator(devices=8, batch=16, software=framework(**LAUNCHES | HIDES), workload=small_gpt(8))
    some = next(
        o for o in screened_plans(e, SPACE) if o.schedule is Schedule.ZB_V and o.pipeline.replicas > 1
    )
    variants = tuple(SPACE.variants(some.plan))
    alone = [float(IterationBatch(e, (v,)).bounds_s()[0]) for v in variants]
    assert IterationBatch(e, variants).bounds_s().tolist() == pytest.approx(alone, rel=1e-12)


def test_fewest_blocks_are_those_that_bytes_ask_for():
    """One block fewer on any device, and it does not fit."""
    e = estimator(devices=4, batch=32)
    tried = 0
    for some in screened_plans(e, SPACE):
        s = some.plan
        if s.chunks > 1 or s.recompute is not Recompute.FULL or s.schedule is Schedule.DUALPIPE:
            continue
        plain, (fit,) = max(p.total_bytes for p in e.memory(s)), fits(e.layouts, s, (s.zero,), 0.0)
        assert fit.plan is None
        capacity = (plain + fit.least_bytes) / 2
        (fit,) = fits(e.layouts, s, (s.zero,), capacity)
        if fit.plan is None or not isinstance(fit.plan.recomputed, tuple):
            continue
        assert max(p.total_bytes for p in e.memory(fit.plan)) <= capacity
        for device, blocks in enumerate(fit.plan.recomputed):
            if blocks:
                fewer = [*fit.plan.recomputed]
                fewer[device] -= 1
                changed = e.memory(replace(fit.plan, recomputed=tuple(fewer)))
                assert changed[device].total_bytes > capacity
                tried += 1
    assert tried > 10


@pytest.mark.parametrize("said", [{}, HIDES], ids=["exposed", "hides"])
@pytest.mark.parametrize("tight", [inf, 0.6])
def test_layers_are_scheduled_for_plans_that_may_be_best(said, tight, monkeypatch):
    """Others are bounded by what layers take at least; the answer is that of a search that schedules all."""
    space = replace(SPACE, microbatches=(1, 2, 4), sequence=(False, True))

    def fresh():
        return estimator(8, 16, "tpuv4", framework(**said), workload=small_gpt(8))

    e = fresh()
    screened = screened_plans(e, space)
    exact = screened.exactly(range(len(screened.bounds_s)))
    both = list(zip(screened, exact, strict=True))
    assert all(low.rough and low.plan == high.plan and low.bound_s <= high.bound_s for low, high in both)
    assert any(low.bound_s < high.bound_s for low, high in both)
    capacity = tight if tight == inf else tight * best_plans(e, space, inf).best[0].iteration.memory_bytes
    lazy = best_plans(fresh(), space, capacity, top=3)
    monkeypatch.setattr(Estimator, "bounds_layers", False)
    known = screened_plans(fresh(), space)
    assert not known.rough
    assert [some.bound_s for some in known] == pytest.approx([some.bound_s for some in exact], rel=1e-12)
    eager = best_plans(fresh(), space, capacity, top=3)
    assert lazy.best == eager.best and lazy.account.evaluated == eager.account.evaluated
    assert lazy.account.total == eager.account.total


def test_devices_that_wait_for_launches_have_all_layers_scheduled():
    assert estimator(chip="tpuv4").bounds_layers
    assert not estimator(chip="tpuv4", software=framework(**LAUNCHES)).bounds_layers
    assert not estimator(chip="h100").bounds_layers


@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
def test_busy_bounds_hold_for_passes_as_long_or_longer(said):
    """1F1B of any passes and launches, with exchanges and transfers beside them, against the simulation."""
    draw, software = np.random.default_rng(1), framework(**said)
    for number in range(60):
        stages, microbatches = int(draw.integers(1, 9)), int(draw.integers(1, 30))
        device_s, launches_s = draw.uniform(0.5, 2.0, (3, stages)), draw.uniform(0, 3.0, (3, stages))
        weight_s = draw.uniform(0, 2.0, stages)
        run = (Schedule.ONE_F_ONE_B, stages)
        passes = ChunkPasses(device_s, launches_s * (number % 3), weight_s, software)
        rows = ChunkPasses(passes.device_s[:, None], passes.launches_s[:, None], weight_s[None], software)
        (bound_s,) = busy_bound_s(*run, rows, np.array([microbatches]))
        longer = passes.beside(*draw.uniform(0, 0.3 * (number % 2), (2, stages)))
        chunks = longer.pipeline(draw.uniform(0, 0.3 * (number % 5), stages - 1))
        assert bound_s <= pipeline_s(Schedule.ONE_F_ONE_B, microbatches, stages, chunks) * (1 + 1e-12)


def test_only_the_best_pipeline_of_1f1b_is_simulated():
    """Stages that are cut between any two layers differ: bounds without waits for gradients leave 14 to simulate."""
    e = estimator(devices=32, batch=128, software=load_framework("exposed"), workload=small_gpt(24))
    space = replace(SPACE, schedules=(Schedule.ONE_F_ONE_B,), grains=(Grain.LAYER,), tensor=(1, 2, 4))
    assert best_plans(e, space, inf).account.evaluated == 1
