"""Mixed pipelines against every assignment of types and every cut of small chains."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.chain.chain_problem import PlacementStatus
from phaze.solvers.placement.mixed import (
    Goal,
    Line,
    MixedChain,
    MixedStage,
    line_bounds,
    mixed_plan_value,
    place_mixed,
)


def random_lines(seed: int) -> list[Line]:
    """Some lines on one small chain: coarse times so that ties are common, memory that sometimes binds."""
    rng = np.random.default_rng(seed)
    types, layers = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    seconds = rng.integers(1, 6, (types, layers)).astype(float)
    cut = rng.integers(0, 2, layers + 1) * 0.5
    sums = np.cumsum(np.concatenate([np.zeros((types, 1)), seconds], axis=1), axis=1)
    inner = sums[:, None, 1:] - sums[:, :-1, None] + cut[:-1, None] + cut[None, 1:]
    last = np.where(rng.random((types, layers)) < 0.1, np.inf, inner[:, :, -1])
    groups = int(rng.integers(1, types + 1))
    group = np.sort(np.concatenate([np.arange(groups), rng.integers(0, groups, types - groups)]))
    chain = MixedChain(
        inner_s=inner,
        last_s=last,
        deepest=rng.integers(0, layers + 2, (groups, layers, layers)),
        group=group,
        weight=rng.integers(0, 4, layers).astype(float),
        power_w=rng.integers(1, 5, types).astype(float),
    )
    return [
        Line(chain, int(stages), float(rng.integers(1, 9)), rng.integers(0, 4, types) * 0.7, 0.25)
        for stages in rng.integers(1, layers + 1, 2)
    ]


def every_plan(line: Line):
    """All plans of a line, those that do not fit in memory too."""
    layers = line.chain.layers
    for cuts in combinations(range(1, layers), line.stages - 1):
        ends = [*cuts, layers]
        for types in product(range(line.chain.types), repeat=line.stages):
            yield tuple(
                MixedStage(first, end - 1, k) for first, end, k in zip([0, *cuts], ends, types, strict=True)
            )


def exhausted(lines, goal, most_s):
    best = np.inf
    for line in lines:
        for plan in every_plan(line):
            try:
                if mixed_plan_value(line, Goal.TIME, plan) <= most_s:
                    best = min(best, mixed_plan_value(line, goal, plan))
            except PlanError:
                continue
    return best


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("seed", range(150))
def test_equals_enumeration_of_all_assignments_and_cuts(seed, goal):
    lines = random_lines(seed)
    most_s = np.inf if seed % 3 else 40.0
    result, expected = place_mixed(lines, goal, most_s), exhausted(lines, goal, most_s)
    assert result.value == pytest.approx(expected, rel=1e-12)
    assert (result.status is PlacementStatus.INFEASIBLE) == np.isinf(expected)
    assert (line_bounds(lines, goal) <= [exhausted([line], goal, np.inf) for line in lines]).all()


def test_a_plan_within_a_time_limit_may_cost_more_energy():
    frugal_and_fast = np.array([[[4.0]], [[1.0]]])
    chain = MixedChain(
        inner_s=frugal_and_fast,
        last_s=frugal_and_fast[:, :, 0],
        deepest=np.ones((1, 1, 1), dtype=np.int64),
        group=np.zeros(2, dtype=np.int64),
        weight=np.zeros(1),
        power_w=np.array([1.0, 9.0]),
    )
    line = Line(chain, 1, 10.0, np.zeros(2), 0.0)
    assert place_mixed([line], Goal.ENERGY).value == 40.0
    assert place_mixed([line], Goal.ENERGY, most_s=20.0).value == 90.0
    assert place_mixed([line], Goal.ENERGY, most_s=5.0).status is PlacementStatus.INFEASIBLE


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((MixedStage(0, 0, 0),), "cover"),
        ((MixedStage(0, 1, 0),), "1 stages, not 2"),
        ((MixedStage(0, 0, 1), MixedStage(1, 1, 0)), "2 stages from the end"),
        ((MixedStage(0, 0, 0), MixedStage(1, 1, 1)), "do not fit in memory"),
    ],
)
def test_the_checker_names_the_broken_rule(plan, message):
    chain = MixedChain(
        inner_s=np.ones((2, 2, 2)),
        last_s=np.array([[1.0, 1.0], [1.0, np.inf]]),
        deepest=np.array([[[2, 2], [2, 2]], [[1, 1], [1, 1]]]),
        group=np.array([0, 1]),
        weight=np.ones(2),
        power_w=np.ones(2),
    )
    with pytest.raises(PlanError, match=message):
        mixed_plan_value(Line(chain, 2, 1.0, np.zeros(2), 0.0), Goal.TIME, plan)
