"""Minimise load_factor * (largest load) + weight_factor * (largest weight of a stage), exactly.

The optimum is a Pareto point of (load, weight). They are met in order of growing load: find the least load
under a cap on the weight, lower the cap below the weight attained, and stop where the load attained together
with the least weight that any partition has cannot beat the best value found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.partition import dp
from phaze.solvers.placement.partition.greedy import Rows, Sweeper, solve_rows
from phaze.solvers.placement.partition.problem import PartitionProblem

# (active rows, weight caps, valid lower bounds on the load) -> (load, weight attained with it)
CappedSolver = Callable[[Integers, Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Weighted:
    """Optimal values and the load and weight that attain them, all of one shape; infinite if nothing fits."""

    value: Floats
    load_s: Floats
    weight: Floats


def descend(
    solve: CappedSolver,
    lower_s: Floats,
    least_weight: Floats,
    load_factor: Floats,
    weight_factor: Floats,
) -> Weighted:
    """Walk the Pareto points of every row (R,) with growing load."""
    low, cap = lower_s.copy(), np.full(lower_s.shape, np.inf)
    best = Weighted(*(np.full(lower_s.shape, np.inf) for _ in range(3)))
    active = np.arange(low.size)
    while active.size:
        load, weight = solve(active, cap[active], low[active])
        fits = np.isfinite(load)
        active, load, weight = active[fits], load[fits], weight[fits]
        value = load_factor[active] * load + weight_factor[active] * weight
        better = value < best.value[active]
        for kept, new in ((best.value, value), (best.load_s, load), (best.weight, weight)):
            kept[active[better]] = new[better]
        low[active], cap[active] = load, np.nextafter(weight, -np.inf)
        floor = load_factor[active] * load + weight_factor[active] * least_weight[active]
        active = active[(floor < best.value[active]) & (weight > least_weight[active])]
    return best


def by_threshold(problem: PartitionProblem, rows: Rows, weights: Floats) -> CappedSolver:
    """Capped solver of a monotone problem; `weights` are prefix sums (L+1,)."""
    sweeper = Sweeper(problem, weights)

    def solve(active: Integers, cap: Floats, low: Floats) -> tuple[Floats, Floats]:
        capped = Rows(rows.architecture[active], rows.stages[active], cap)
        return solve_rows(sweeper, capped, low)

    return solve


def by_recurrence(problem: PartitionProblem, stages: int, weights: Floats) -> CappedSolver:
    """Capped solver of any problem, one row per architecture, all with the same number of stages."""
    inner, last = dp.stage_loads(problem)
    heavy = weights[None, 1:] - weights[:-1, None]  # weight of stage i..j at [i, j]

    def least(values: Floats, last_values: Floats) -> Floats:
        tables = dp.suffix_tables(values, last_values, problem.limits, stages)
        if problem.exactly:
            return tables[stages - 1][:, 0] if stages <= len(tables) else np.full(len(values), np.inf)
        smallest: Floats = np.min([table[:, 0] for table in tables], axis=0)
        return smallest

    def solve(active: Integers, cap: Floats, low: Floats) -> tuple[Floats, Floats]:
        loads, last_loads = inner[active], last[active]
        light = heavy <= cap[:, None, None]
        load = least(np.where(light, loads, np.inf), np.where(light[:, :, -1], last_loads, np.inf))
        # Of the partitions with this load, the one of least weight: the next cap skips the others.
        fast, last_fast = loads <= load[:, None, None], last_loads <= load[:, None]
        last_fast &= np.isfinite(last_loads)
        weight = least(np.where(fast, heavy, np.inf), np.where(last_fast, heavy[:, -1], np.inf))
        return np.maximum(load, low), weight

    return solve
