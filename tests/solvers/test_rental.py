"""Which fleet to rent: the published example, every fleet by brute force, and what nothing meets."""

from __future__ import annotations

from itertools import product
from math import inf, isinf

import numpy as np
import pytest
from phaze.solvers.rental import RentalConfig, RentalProblem, compose, composition_seconds
from scipy.optimize import linprog

PUBLISHED = RentalProblem(
    configs=(
        RentalConfig("t1", 4.0, {"t1": 1}, (1.0, 1.2)),
        RentalConfig("t2", 2.0, {"t2": 1}, (0.9, 0.9)),
        RentalConfig("t3", 2.0, {"t3": 1}, (0.3, 0.5)),
        RentalConfig("t2 x 2", 4.0, {"t2": 2}, (2.4, 1.5)),
    ),
    requests=(80.0, 20.0),
    budget_usd=8.0,
    available={"t1": 2, "t2": 2, "t3": 2},
)


def test_the_published_example():
    """arXiv 2502.00722 plans 28.67 s; the optimum is 28.4314, two devices alike 48.33."""
    found = compose(PUBLISHED)
    assert found.seconds == pytest.approx(28.4314, abs=5e-5)
    assert found.seconds < 28.67
    assert found.lower_bound_s == pytest.approx(found.seconds, rel=1e-5)
    assert found.replicas == (1, 0, 0, 1)
    assert found.shares[0] == pytest.approx([0.1471, 1.0], abs=5e-5)
    assert found.shares[3] == pytest.approx([0.8529, 0.0], abs=5e-5)
    assert found.price_usd == 8
    assert composition_seconds(PUBLISHED, (2, 0, 0, 0)) == pytest.approx(48.33, abs=5e-3)


def by_scipy(problem, replicas):
    """Least seconds of given replicas, by another linear program."""
    count, kinds = len(problem.configs), len(problem.requests)
    cost = np.append(np.zeros(count * kinds), 1.0)
    rows = np.zeros((count, count * kinds + 1))
    bounds = [(0, 0)] * (count * kinds) + [(0, None)]
    for c, config in enumerate(problem.configs):
        rows[c, -1] = -replicas[c]
        for w, rate in enumerate(config.rates_per_s):
            if rate > 0 and replicas[c]:
                rows[c, c * kinds + w], bounds[c * kinds + w] = problem.requests[w] / rate, (0, 1)
    whole = np.hstack([np.tile(np.eye(kinds), count), np.zeros((kinds, 1))])
    found = linprog(cost, rows, np.zeros(count), whole, np.ones(kinds), bounds)
    return found.fun if found.success else inf


def every_fleet(problem):
    most = max(problem.available.values())
    for replicas in product(range(most + 1), repeat=len(problem.configs)):
        price = sum(n * c.price_usd for n, c in zip(replicas, problem.configs, strict=True))
        taken = {
            kind: sum(n * c.devices.get(kind, 0) for n, c in zip(replicas, problem.configs, strict=True))
            for kind in problem.available
        }
        if price <= problem.budget_usd and all(taken[k] <= n for k, n in problem.available.items()):
            yield replicas, price, by_scipy(problem, replicas)


@pytest.mark.parametrize("seed", range(6))
def test_every_fleet_by_brute_force(seed):
    random = np.random.default_rng(seed)
    configs = tuple(
        RentalConfig(str(c), float(random.integers(1, 6)), {"a": int(c != 1), "b": int(c != 0)}, tuple(rates))
        for c, rates in enumerate(random.uniform(0.2, 3, (3, 2)) * (random.random((3, 2)) > 0.2))
    )
    problem = RentalProblem(
        configs, tuple(random.uniform(1, 50, 2)), float(random.integers(4, 12)), {"a": 2, "b": 3}
    )
    fleets = list(every_fleet(problem))
    least = min(seconds for *_, seconds in fleets)
    found = compose(problem)
    if isinf(least):
        assert not found.feasible
        return
    assert found.seconds == pytest.approx(least, rel=2e-6)
    assert found.lower_bound_s <= least * (1 + 1e-6)
    cheap = compose(problem, within_s=1.5 * least)
    assert cheap.price_usd == min(
        price for _, price, seconds in fleets if seconds <= 1.5 * least * (1 + 1e-9)
    )
    assert cheap.seconds <= 1.5 * least * (1 + 1e-6)


def test_what_nothing_meets():
    poor = RentalProblem(PUBLISHED.configs, PUBLISHED.requests, 1.0, PUBLISHED.available)
    assert not compose(poor).feasible
    assert not compose(PUBLISHED, within_s=28.0).feasible
    assert compose(PUBLISHED, within_s=29.0).feasible
