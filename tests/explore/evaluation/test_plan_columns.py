"""Strategies of a shape side by side against each one alone: what fits, bounds, and which are never better."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from small_cases import varied_architectures

from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Task
from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_batches.cut_pipelines import CutPipeline, FittedPlan
from phaze.parallel.plan_batches.memory_fit import PlanFootprint
from phaze.parallel.plan_choices import load_plans
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload

NETWORK = two_tiers(2, None, 1e-6, 10e9, 5e-6)
EFFORT = SolveLimits(lambda: inf, states=1e5)


def shapes(tiny, software, **changes):
    """Plans of every shape of a small task, with times of some architectures."""
    task = replace(Task(tiny, 4, NETWORK, global_batch=4, framework=software), **changes)
    evaluator = Evaluator(task, varied_architectures().take(np.arange(0, 48, 7)))
    link, rows = float(evaluator.link_bytes_per_s[0]), np.arange(7)
    for setting in evaluator.configs[::2]:
        times = evaluator.times(setting, rows, evaluator.timed(setting).exact(rows, EFFORT)[0])
        yield evaluator, setting, link, times


def every(across, columns):
    """All strategies of a tier that fit, worked out one by one: {(row, choice): strategy}."""
    options, sheet, found = across.options, columns.sheet, {}
    for row, s in enumerate(sheet.plans):
        zeros, orders = options.space.choices(s)
        fits = PlanFootprint.of(options.layouts, s, zeros).fits(across.capacity_bytes)
        for (zero, fit), order in product(zip(zeros, fits, strict=True), orders):
            if fit.plan is not None:
                choice = sheet.choices[0].index((zero, order))
                found[row, choice] = replace(fit.plan, order=order)
    return found


def tiers_of(across):
    """Strategies that fit, tier by tier."""
    return [across.columns(tier) for tier in range(len(across.tiers))]


@pytest.mark.parametrize("software", ["exposed", "ideal"])
@pytest.mark.parametrize("capacity", [1e9, 0.1e9, 0.03e9])
def test_what_fits_recomputes_as_little_as_one_alone(tiny, software, capacity):
    seen = 0
    for evaluator, setting, link, _ in shapes(tiny, load_framework(software)):
        across = evaluator.across(setting, capacity, link)
        for columns in tiers_of(across):
            alone = every(across, columns)
            for at, key in enumerate(zip(columns.row.tolist(), columns.choice.tolist(), strict=True)):
                assert columns.plan(at) == alone[key]
                seen += 1
            assert bool(alone) == (len(columns) > 0)
    assert seen or capacity < 0.05e9


@pytest.mark.parametrize("software", ["exposed", "ideal", "megatron-core-2024"])
@pytest.mark.parametrize("capacity", [1e9, 0.1e9])
def test_bounds_and_what_is_left_out(tiny, software, capacity):
    """No iteration is faster than its bound, and none that is left out is faster than all that are not."""
    for evaluator, setting, link, times in shapes(tiny, load_framework(software)):
        across = evaluator.across(setting, capacity, link)
        for columns in tiers_of(across):
            exact = {}
            for key, strategy in every(across, columns).items():
                one = FittedPlan(CutPipeline.of(across.options, strategy, link), strategy)
                exact[key] = one.iteration_s(times)
            if not exact:
                continue
            kept = list(zip(columns.row.tolist(), columns.choice.tolist(), strict=True))
            bounds = columns.bounds_s(times.terms)
            for key, bound in zip(kept, bounds, strict=True):
                assert (bound <= exact[key] * (1 + 1e-9)).all()
            least = np.min([exact[key] for key in kept], axis=0)
            assert least == pytest.approx(np.min(list(exact.values()), axis=0), rel=1e-12)
            few = columns.best.bounds_s(times.terms).min(axis=0)
            assert few == pytest.approx(bounds.min(axis=0), rel=1e-12)
            assert len(columns.best) <= len(columns)


def test_bounds_are_made_for_devices_that_recompute(tiny):
    """Least times know nothing of what runs again where software prunes it; slowest devices recompute all the same.

    Bounds of deepseek-v3 were made of devices that recompute nothing, and a sixth below its times.
    """
    for evaluator, setting, _, times in shapes(tiny, load_framework("ideal")):
        least = evaluator.least_times(setting, np.arange(7)).terms
        known, probes, exact = (
            np.split(some[:-2], 3)[1] for some in (least, evaluator._probes(setting), times.terms)
        )
        assert not known.any() or not evaluator.framework.prunes_recompute
        again = exact.max(axis=1) > 0
        assert again.any()
        assert (probes[again] > 0).all()


def test_what_a_bound_rules_out_is_not_simulated(tiny):
    """A limit costs no answer below it, and saves the pipelines of nearly all that lie above it."""
    needless = 0
    for evaluator, setting, link, times in list(shapes(tiny, load_framework("ideal")))[:6]:
        across = evaluator.across(setting, 0.1e9, link)
        for tier, columns in enumerate(tiers_of(across)):
            for at in range(len(columns)):
                one = across._fitted(tier, at)
                exact = one.iteration_s(times)
                limit = exact * np.resize([0.5, 0.9, 1.0, 1.1], len(exact))
                found, simulated = one.iterations_within(times, limit)
                assert (found[exact <= limit] == exact[exact <= limit]).all()
                assert ((found == exact) | np.isinf(found)).all()
                needless = max(needless, simulated - int((exact <= limit * 1.12).sum()))
    assert needless <= 0


@pytest.mark.parametrize("software", ["exposed", "ideal"])
def test_every_strategy_is_of_one_tier(tiny, software):
    for evaluator, setting, link, _ in shapes(tiny, load_framework(software)):
        across = evaluator.across(setting, 1e9, link)
        every_one = [s for depth in across.options.depths for s in across.options.plans(depth)]
        assert sorted(map(str, every_one)) == sorted(str(s) for t in across.tiers for s in t.sheet.plans)


def least_of_all(across, times):
    """What outlines of all tiers tell, and what columns do."""
    outlines = [tier.outline.least_s(times.terms) for tier in across.tiers]
    told = [columns.least_s(times.terms) for columns in tiers_of(across) if len(columns)]
    return np.min(outlines, axis=0), np.min(told, axis=0)


@pytest.mark.parametrize("software", ["exposed", "ideal", "megatron-core-2024"])
@pytest.mark.parametrize("plans", ["any", "full"])
def test_work_alone_never_exceeds_an_iteration_and_is_much_of_it(tiny, software, plans):
    """Where exchanges take little and memory is roomy, the work of devices is the larger part of what columns tell."""
    ratios = []
    for evaluator, setting, _, times in shapes(tiny, load_framework(software), plans=load_plans(plans)):
        across = evaluator.across(setting, inf, 1e18)
        if not across.tiers:
            continue
        outline, told = least_of_all(across, times)
        assert (outline <= told * (1 + 1e-9)).all()
        _, choice = across.best(times, np.full(len(times), inf))
        assert (outline <= across.value(times, choice) * (1 + 1e-9)).all()
        ratios.append(outline / told)
    assert np.median(ratios) > 0.5


def test_screening_points_builds_no_columns(tiny):
    """Work is counted: points that their work alone rules out have no strategy fitted."""
    for evaluator, setting, link, times in shapes(tiny, load_framework("exposed")):
        across = evaluator.across(setting, 1e9, link)
        if across.options.depths:
            bound = across.bound_s(times, np.zeros(len(times)))
            outlines = [tier.outline.least_s(times.terms) for tier in across.tiers]
            assert (bound == np.min(outlines, axis=0)).all()
            assert not fitted_tiers(across)


def test_strategies_that_promise_less_are_fitted_only_where_the_others_do_not():
    """Work is counted: with roomy memory and fast links the first tiers have the best strategies of a deep model."""
    task = Task(load_workload("gpt3-small"), 32, NETWORK)
    evaluator, rows = Evaluator(task, varied_architectures().take(np.arange(0, 48, 11))), np.arange(5)
    across = evaluator.across(evaluator.configs[0], 1e12, 1e18)
    times = evaluator.least_times(evaluator.configs[0], rows)
    best, _ = across.best(times, np.full(5, inf))
    assert len(fitted_tiers(across)) < len(across.tiers)
    left = [
        t.outline.least_s(times.terms)
        for n, t in enumerate(across.tiers)
        if ("columns", n) not in across._kept
    ]
    assert (np.min(left, axis=0) >= best * (1 - 1e-9)).all()


def fitted_tiers(across):
    """Tiers whose strategies were fitted."""
    return [key for key in across._kept if isinstance(key, tuple) and key[0] == "columns"]


@pytest.fixture(scope="module")
def unlike():
    """Plans of a network of unlike blocks, with times of some architectures: few microbatches, uneven stages."""
    task = Task(load_workload("resnet18"), 16, NETWORK, 40, framework=load_framework("ideal"))
    evaluator = Evaluator(task, varied_architectures().take(np.arange(0, 48, 5)))
    link, rows = float(evaluator.link_bytes_per_s[0]), np.arange(len(evaluator.table))
    some = evaluator.configs[:4:2]
    return [
        (
            evaluator.across(setting, 64e9, link),
            evaluator.times(setting, rows, evaluator.timed(setting).bounds(rows)[0]),
        )
        for setting in some
    ]


def test_bounds_are_close_where_blocks_are_unlike(unlike):
    """What hides beside passes is counted: bounds are nearly the times themselves, of the fastest and of the others."""
    for across, times in unlike:
        bounds, exact = [], []
        for tier, columns in enumerate(tiers_of(across)):
            bounds.append(columns.bounds_s(times.terms))
            exact += [across._fitted(tier, at).iteration_s(times) for at in range(len(columns))]
            assert (columns.forms >= 0).all()
        known, least = np.array(exact), np.concatenate(bounds)
        assert (least <= known * (1 + 1e-9)).all()
        assert np.median(least / known) > 0.95
        assert np.median(least.min(axis=0) / known.min(axis=0)) > 0.99


def test_few_pipelines_are_simulated_where_blocks_are_unlike(unlike):
    """Work is counted: of dozens of strategies a few are simulated for every architecture."""
    for across, times in unlike:
        before = across.tally.simulated
        _, choice = across.best(times, np.full(len(times), inf))
        assert (choice >= 0).all()
        assert sum(map(len, tiers_of(across))) > 20
        assert across.tally.simulated - before <= 4 * len(times)


def test_few_strategies_are_made_and_simulated(tiny):
    """Work is counted: most strategies are only ever columns."""
    strategies = simulated = made = 0
    for evaluator, setting, link, times in shapes(tiny, load_framework("exposed")):
        across = evaluator.across(setting, 1e9, link)
        if not across.options.depths:
            continue
        across.best(times, np.full(len(times), inf))
        strategies += across.options.size
        made += sum(key[0] == "fitted" for key in across._kept if isinstance(key, tuple))
        simulated += across.tally.simulated
    assert made < strategies / 4
    assert simulated < strategies * len(times) / 8
