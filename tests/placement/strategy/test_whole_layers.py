"""Layers that tensor ranks keep whole: between tensor and context parallelism, and exact in the search."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf, isclose

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt
from test_plan_search import SOFTWARE, every

from phaze.hardware.network import two_tiers
from phaze.placement.strategy.search.search import best_plans
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.workload.degrees import Shardable, Sharding

ALL = frozenset(Shardable)
SUBSETS = tuple(frozenset(some) for n in range(5) for some in combinations(Shardable, n))
SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1,), whole=SUBSETS)
SLOW = two_tiers(4, 20e9, 1e-6, 25e9, 5e-6)


def brute_force_s(e, space, capacity):
    fitting = (s for s in every(e, space) if max(part.total_bytes for part in e.memory(s)) <= capacity)
    return min((e.iteration(s).iteration_s for s in fitting), default=inf)


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("tight", [1.0, 0.4])
def test_no_plan_of_any_subset_is_faster(software, tight):
    e = estimator(devices=4, batch=4, software=software, network=SLOW, workload=small_gpt(3))
    unbound = best_plans(e, SPACE, inf)
    capacity = tight * unbound.best[0].iteration.memory_bytes
    found, best = best_plans(e, SPACE, capacity), brute_force_s(e, SPACE, capacity)
    assert isclose(found.best[0].iteration.iteration_s, best, rel_tol=1e-9)
    assert found.best[0].iteration.memory_bytes <= capacity
