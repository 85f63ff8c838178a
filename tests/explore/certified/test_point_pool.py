"""The pool of points in question: what is looked at next, and what is let go of, without looking at all of it again."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from phaze.explore.certified import search_state
from phaze.explore.certified.bound_refinement import Refinement
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_pieces import Looked
from phaze.explore.certified.search_state import BoundStage, PointPool, Relevance, Undecided
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.search_progress import Clock, SilentProgress

CONFIGS = 5


class RandomPoints:
    """Points whose bounds fall by chance; half of those that are looked at reach something."""

    batch, exact_batch, configs, asks_plans = 12, 4, CONFIGS, False

    def __init__(self, axes, seed):
        self.axes, self.random, self.looked = axes, np.random.default_rng(seed), []

    def foresee(self, choose):
        self.choose = choose

    def look(self, points, relevance, effort):
        assert len(set(points.config.tolist())) == 1
        self.looked.append(points)
        count = len(points)
        lead = points.bound * self.random.uniform(0.3, 1.0, count)
        reached = np.where(self.random.random(count) < 0.5, lead * self.random.uniform(0.5, 1.0, count), 0.0)
        met = (self.random.random(count) < 0.3) & (reached > 0)
        reached[met] = lead[met]
        return Looked(points.others, lead, reached, (points.others, reached), met)

    def key(self, point, found):
        return found.area_mm2, point[0] * self.configs + point[1]


def random_pool(random, count, k, first=0):
    # Few different values, so that many are equal.
    others = random.integers(1, 12, (count, k)).astype(np.float64)
    bound = random.integers(10, 60, count) * (others.sum(axis=1) + 1.0) ** 0.5
    stage = np.full(count, BoundStage.PATH, dtype=np.int8)
    numbers = first + random.permutation(count).astype(np.int64)
    config = random.integers(0, CONFIGS, count).astype(np.int16)
    return PointPool(numbers, config, others, np.ones(count), bound, stage)


def refined(k, slack, seed):
    """Work on random points with k columns beside what leads."""
    axes = SearchAxes(tuple(map(metric, ("throughput", "tdp", "area")[: k + 1])))
    points = RandomPoints(axes, seed)
    relevance, undecided = Relevance(axes.archive(), slack), Undecided(axes.archive())
    found = Refinement(points, relevance, undecided, Clock(1e6), SilentProgress())
    found.take_in([random_pool(points.random, 300, k)])
    return found


def reference(refinement, configs=None):
    """What comes first where all points are looked at and sorted."""
    pool = refinement.pool
    at = np.flatnonzero(pool.stage == BoundStage.PATH)
    at = at if configs is None else at[configs[pool.config[at]]]
    counts = np.bincount(pool.config[at], minlength=CONFIGS)
    at = at[counts[pool.config[at]] >= refinement._least]
    return refinement._most_promising_of(at, refinement._points.batch)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slack", [1.0, 1.1])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_what_comes_first_needs_no_sorting_and_what_cannot_matter_is_gone(k, slack, seed):
    refinement = refined(k, slack, seed)
    points, steps = refinement._points, 0
    for least in (20, 1):
        refinement._least = least
        while len(at := refinement._first_rows()):
            steps += 1
            np.testing.assert_array_equal(at, reference(refinement))
            some = points.random.random(CONFIGS) < 0.5
            ahead = reference(refinement, some)
            np.testing.assert_array_equal(refinement._first_rows(some), ahead)
            before = len(refinement.pool) + sum(refinement.fallen.values()) + len(refinement.evaluated)
            refinement._advance(at, BoundStage.PATH)
            pool, known = refinement.pool, refinement._relevance
            assert known.matters(pool.others, pool.bound).all()
            assert len(pool) + sum(refinement.fallen.values()) + len(refinement.evaluated) == before
            if steps % 5 == 0:
                more = random_pool(points.random, 40, k, first=1000 * steps)
                refinement.take_in([more])
            if steps > 60:
                break
    assert steps > (0 if k == 0 else 5)


def test_points_that_no_news_can_rule_out_are_not_looked_at_again(monkeypatch):
    refinement, matters, asked = refined(1, 1.0, 3), Relevance.matters, []

    def counting(self, others, lead):
        asked.append(len(lead))
        return matters(self, others, lead)

    monkeypatch.setattr(Relevance, "matters", counting)
    monkeypatch.setattr(search_state, "by_urgency", lambda *_: pytest.fail("points are sorted"))
    whole = 0
    while len(at := refinement._first_rows()):
        whole += len(refinement.pool)
        refinement._advance(at, BoundStage.PATH)
    assert 0 < sum(asked) < 0.6 * whole


@pytest.mark.parametrize("count", [0, 40])
def test_how_many_of_some_points_wait_is_what_looking_for_each_tells(count):
    refinement = refined(1, 1.0, 4)
    points, pool = refinement._points, refinement.pool
    points.candidates = SimpleNamespace(size=1)
    search = CertifiedSearch(points, Clock(1e6), SilentProgress())
    search._refinement = refinement
    waiting = set(zip(pool.number.tolist(), pool.config.tolist(), strict=True))
    asked = {(n, c) for n in range(count) for c in range(CONFIGS)}
    assert search._waiting(asked) == len(asked & waiting)
    assert len(asked & waiting) > 0 or count == 0
