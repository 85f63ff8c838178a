"""Every bound on a point, from the roofline of its setting to counted layers, against its exact iteration time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from phaze.explore.certified.certified_search import CLASSES, seed_candidates
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Task
from phaze.scheduling.passes import SolveLimits

EFFORT = SolveLimits(lambda: math.inf, 500)
ROUNDING = 1 + 1e-11


@pytest.fixture(scope="module", params=[6, 16, 512])
def evaluator(request, tiny, small_space, network):
    """With 512 devices most settings have more than there are microbatches for."""
    rows = np.arange(0, small_space.size, 7)
    return Evaluator(Task(tiny, request.param, network), small_space.table(rows))


@pytest.fixture(scope="module")
def exact_s(evaluator):
    """Iteration times (settings, A) of all points, none given up."""
    rows, never = np.arange(len(evaluator.table)), np.full(len(evaluator.table), np.inf)
    return np.stack([evaluator.exact(s, rows, never, EFFORT).upper_s for s in evaluator.configs])


def test_no_point_is_faster_than_its_bounds(evaluator, exact_s):
    rows = np.arange(len(evaluator.table))
    for setting, found in zip(evaluator.configs, exact_s, strict=True):
        assert (evaluator.roofline_s(setting) <= found * ROUNDING).all()
        assert (evaluator.work_bound(setting, rows) <= found * ROUNDING).all()
        assert (evaluator.iteration_bound(setting, rows) <= found * ROUNDING).all()


def test_points_are_given_up_only_where_they_cannot_do_better(evaluator, exact_s):
    rows = np.arange(len(evaluator.table))
    for setting, found in zip(evaluator.configs, exact_s, strict=True):
        bounds = evaluator.bounds(setting, rows, found * (1 + 1e-9))
        assert (bounds.lower_s <= found * ROUNDING).all()
        assert np.array_equal(np.isfinite(bounds.upper_s), np.isfinite(found))
        assert np.isinf(evaluator.bounds(setting, rows, found / 4).lower_s).all()


def test_the_best_setting_is_found_though_few_are_looked_at(evaluator, exact_s):
    found = best_points(evaluator, np.arange(len(evaluator.table)), EFFORT)
    assert found.upper_s == pytest.approx(exact_s.min(axis=0), rel=1e-12)
    assert found.evaluated < exact_s.size


def test_the_least_values_are_tried_in_ever_smaller_classes():
    first = roof = np.arange(6400.0)
    classes = seed_candidates(first, roof)
    sizes = [1, 1, 2, 4, 8, 16, 32, 64, 72]
    assert [int(c[0]) + 1 for c in classes] == [*np.cumsum(sizes), *range(400, 6401, 200)]
    assert len(classes) == CLASSES - 1 + len(sizes)
