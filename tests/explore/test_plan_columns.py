"""Strategies of a shape side by side against each one alone: what fits, bounds, and which are never better."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from small_cases import varied_architectures

from phaze.explore.plan_evaluator import PlanEvaluator
from phaze.explore.request import Task
from phaze.hardware.network import two_tiers
from phaze.placement.strategy.choices import load_plans
from phaze.placement.strategy.framework import load_framework
from phaze.placement.strategy.search.fit import Room
from phaze.placement.strategy.search.pipeline import Fitted, Pipeline
from phaze.scheduling.passes import Effort
from phaze.workload.load import load_workload

NETWORK = two_tiers(2, None, 1e-6, 10e9, 5e-6)
EFFORT = Effort(lambda: inf, states=1e5)


def shapes(tiny, software, **changes):
    """Plans of every shape of a small task, with times of some architectures."""
    task = replace(Task(tiny, 4, NETWORK, global_batch=4, full=True, framework=software), **changes)
    evaluator = PlanEvaluator(task, varied_architectures().take(np.arange(0, 48, 7)))
    link, rows = float(evaluator.rates.link_bytes_per_s[0]), np.arange(7)
    for setting in evaluator.settings[::2]:
        times = evaluator.times(setting, rows, evaluator.timed(setting).exact(rows, EFFORT)[0])
        yield evaluator, setting, link, times


def every(across):
    """All strategies of the sheet that fit, worked out one by one: {(row, choice): strategy}."""
    options, sheet, found = across.options, across.columns.sheet, {}
    for row, s in enumerate(sheet.strategies):
        zeros, orders = options.space.choices(s)
        fits = Room.of(options.layouts, s, zeros).fits(across.capacity_bytes)
        for (zero, fit), order in product(zip(zeros, fits, strict=True), orders):
            if fit.strategy is not None:
                choice = sheet.choices[0].index((zero, order))
                found[row, choice] = replace(fit.strategy, order=order)
    return found


@pytest.mark.parametrize("software", ["exposed", "ideal"])
@pytest.mark.parametrize("capacity", [1e9, 0.1e9, 0.03e9])
def test_what_fits_recomputes_as_little_as_one_alone(tiny, software, capacity):
    seen = 0
    for evaluator, setting, link, _ in shapes(tiny, load_framework(software)):
        across = evaluator.across(setting, capacity, link)
        alone, columns = every(across), across.columns
        for at, key in enumerate(zip(columns.row.tolist(), columns.choice.tolist(), strict=True)):
            assert columns.strategy(at) == alone[key]
            seen += 1
        assert bool(alone) == across.fits_any
    assert seen or capacity < 0.05e9


@pytest.mark.parametrize("software", ["exposed", "ideal", "megatron-core-2024"])
@pytest.mark.parametrize("capacity", [1e9, 0.1e9])
def test_bounds_and_what_is_left_out(tiny, software, capacity):
    """No iteration is faster than its bound, and none that is left out is faster than all that are not."""
    for evaluator, setting, link, times in shapes(tiny, load_framework(software)):
        across = evaluator.across(setting, capacity, link)
        if not across.fits_any:
            continue
        columns, exact = across.columns, {}
        for key, strategy in every(across).items():
            one = Fitted(Pipeline.of(across.options, strategy, link), strategy)
            exact[key] = one.iteration_s(times)
        kept = list(zip(columns.row.tolist(), columns.choice.tolist(), strict=True))
        bounds = columns.bounds_s(times.terms)
        for key, bound in zip(kept, bounds, strict=True):
            assert (bound <= exact[key] * (1 + 1e-9)).all()
        least = np.min([exact[key] for key in kept], axis=0)
        assert least == pytest.approx(np.min(list(exact.values()), axis=0), rel=1e-12)
        few = columns.best.bounds_s(times.terms).min(axis=0)
        assert few == pytest.approx(bounds.min(axis=0), rel=1e-12)
        assert len(columns.best) <= len(columns)
        assert (across.outline.least_s(times.terms) <= least * (1 + 1e-9)).all()


@pytest.mark.parametrize("software", ["exposed", "ideal", "megatron-core-2024"])
@pytest.mark.parametrize("plans", ["any", "full"])
def test_work_alone_never_exceeds_an_iteration_and_is_much_of_it(tiny, software, plans):
    """Where exchanges take little and memory is roomy, the work of devices is the larger part of what columns tell."""
    ratios = []
    for evaluator, setting, _, times in shapes(tiny, load_framework(software), plans=load_plans(plans)):
        across = evaluator.across(setting, inf, 1e18)
        if not across.fits_any:
            continue
        outline, told = across.outline.least_s(times.terms), across.columns.least_s(times.terms)
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
            assert (bound == across.outline.least_s(times.terms)).all()
            assert "columns" not in vars(across)


@pytest.fixture(scope="module")
def unlike():
    """Plans of a network of unlike blocks, with times of some architectures: few microbatches, uneven stages."""
    task = Task(load_workload("resnet18"), 16, NETWORK, 40, full=True, framework=load_framework("ideal"))
    evaluator = PlanEvaluator(task, varied_architectures().take(np.arange(0, 48, 5)))
    link, rows = float(evaluator.rates.link_bytes_per_s[0]), np.arange(len(evaluator.table))
    some = evaluator.settings[:4:2]
    return [
        (
            evaluator.across(setting, 64e9, link),
            evaluator.times(setting, rows, evaluator.timed(setting).bands(rows)[0]),
        )
        for setting in some
    ]


def test_bounds_are_close_where_blocks_are_unlike(unlike):
    """What hides beside passes is counted: bounds are nearly the times themselves, of the fastest and of the others."""
    for across, times in unlike:
        columns = across.columns
        bounds = columns.bounds_s(times.terms)
        exact = np.array([across._fitted(at).iteration_s(times) for at in range(len(columns))])
        assert (bounds <= exact * (1 + 1e-9)).all()
        assert np.median(bounds / exact) > 0.95
        assert np.median(bounds.min(axis=0) / exact.min(axis=0)) > 0.99
        assert (columns.forms >= 0).all()


def test_few_pipelines_are_simulated_where_blocks_are_unlike(unlike):
    """Work is counted: of dozens of strategies a few are simulated for every architecture."""
    for across, times in unlike:
        before = across.tally.simulated
        _, choice = across.best(times, np.full(len(times), inf))
        assert (choice >= 0).all()
        assert len(across.columns) > 20
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
