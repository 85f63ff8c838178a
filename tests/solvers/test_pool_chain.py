"""Chains on pools: every plan in the order of its value, against all of them by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.pools import PoolChain, PoolSearch, PoolStage, pool_plan_value


def drawn(seed, layers=4, slots=5):
    random = np.random.default_rng(seed)
    pool, width, room = (0, 0, 1, 1), (1, 2, 1, 2), (3, 2)
    speed = random.uniform(0.3, 2, 4)
    each = random.uniform(0.5, 2, layers)
    above = np.triu(np.ones((layers, layers)))
    load = np.array(
        [[[each[i : j + 1].sum() * s for j in range(layers)] for i in range(layers)] for s in speed]
    )
    once = random.uniform(0, 3, 4)[:, None, None] * load
    return PoolChain(load * above, once * above, random.integers(0, 5, load.shape), pool, width, room, slots)


def every_plan(chain, most):
    """Value by plan, of all that the checker lets pass."""
    found = {}
    options = range(len(chain.pool))
    for cuts in product((False, True), repeat=chain.layers - 1):
        starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), chain.layers]
        if len(starts) - 1 > most:
            continue
        for chosen in product(options, repeat=len(starts) - 1):
            plan = tuple(PoolStage(a, b - 1, o) for a, b, o in zip(starts, starts[1:], chosen, strict=False))
            try:
                found[plan] = pool_plan_value(chain, plan)
            except PlanError:
                continue
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rates", [None, (2.0, 0.7)])
def test_all_plans_best_first(seed, rates):
    chain = drawn(seed)
    expected = every_plan(chain, 3)
    if rates:
        for plan in expected:
            expected[plan] *= sum(rates[chain.pool[s.option]] * chain.width[s.option] for s in plan)
    search = PoolSearch(chain, (1, 2, 3), rates=rates)
    found = list(search.plans())
    values = [one.value for one in found]
    assert values == sorted(values)
    assert {one.stages: one.value for one in found} == pytest.approx(expected)
    assert len(found) == len(expected)
    if expected:
        assert search.bound == pytest.approx(min(expected.values()))
        below = sorted(expected.values())[len(expected) // 2]
        some = list(PoolSearch(chain, (1, 2, 3), below, rates).plans())
        assert len(some) == sum(value < below for value in expected.values())


def test_some_numbers_of_stages():
    chain = drawn(2, layers=3)
    found = [one.stages for one in PoolSearch(chain, (2,)).plans()]
    assert set(found) == {plan for plan in every_plan(chain, 3) if len(plan) == 2}


def test_more_devices_are_never_worse():
    for seed in range(20):
        chain = drawn(seed)
        larger = PoolChain(
            chain.load_s, chain.once_s, chain.deepest, chain.pool, chain.width, (4, 3), chain.slots
        )
        assert PoolSearch(larger, range(1, 5)).bound <= PoolSearch(chain, range(1, 5)).bound


def test_what_is_refused():
    chain = drawn(1)
    with pytest.raises(ValueError, match="devices left"):
        PoolSearch(
            PoolChain(chain.load_s, chain.once_s, chain.deepest, chain.pool, chain.width, (500, 500), 3), 3
        )
    with pytest.raises(ValueError, match="one device or more"):
        PoolChain(chain.load_s, chain.once_s, chain.deepest, chain.pool, (0, 1, 1, 1), chain.room, 3)
    with pytest.raises(ValueError, match="one shape"):
        PoolChain(chain.load_s, chain.once_s[1:], chain.deepest, chain.pool, chain.width, chain.room, 3)
