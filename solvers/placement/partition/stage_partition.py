"""Exact contiguous partition of a chain of layers into pipeline stages, for many architectures at once.

The optimum is a Pareto point of (load, weight). They are met in order of growing load: find the least load
under a cap on the weight, lower the cap below the weight attained, and stop where the load attained together
with the least weight that any partition has cannot beat the best value found.

Shapes: A architectures, L layers, n entries of `stages`. Times in s, memory in bytes, weights in any one unit
(usually the parameter bytes of a layer). Stages are counted from the end, the last one has index 1.

    stage_limits(*, static_bytes, saved_bytes, input_bytes, working_bytes, memory_bytes, recompute,
                 inflight_limit=None) -> StageLimits           each array (L,); where each stage fits
    PartitionProblem(plain_s (A, L), recompute_s (A, L), boundary_s (A, L+1), limits, kind (L,), exactly=False)
    bottlenecks(problem, stages) -> (A, n)                     minimal maximal stage load, inf if nothing fits
    lower_bounds(problem, stages) -> (A, n)                    cheap bound with at most so many
    weighted_bottlenecks(problem, stages, weight (L,), load_factor (A, n), weight_factor (A, n)) -> Weighted
                                                               (value, load_s, weight), each (A, n)
    best_cuts(problem, architecture, stages, *, weight=None, load_factor=1.0, weight_factor=0.0) -> Partition
    batch_cuts(problem, stages, weight (L,), load_factor (A,), weight_factor (A,)) -> [Partition] per architecture

`stages` means *at most* so many, hence bottlenecks do not increase with it. Under an objective that
grows with the number of stages, such as bottleneck * (microbatches + stages - 1), the best over all counts is
the same as with exactly so many; where it is not, a problem can ask for `exactly` so many. `stages` may
repeat, e.g. once per data-parallel degree with other factors.

A stage of layers i..j takes the sum of its layers' times + boundary_s[i] + boundary_s[j + 1]. With
recomputation on, every stage but the last takes the recomputing times and limits; the last one does so only
where keeping its activations does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.partition import stage_partition_dp
from phaze.solvers.placement.partition.partition_bounds import lower_bounds
from phaze.solvers.placement.partition.partition_problem import PartitionProblem, interval_weights
from phaze.solvers.placement.partition.threshold_search import (
    ROWS,
    Rows,
    Sweeper,
    is_monotone,
    solve_rows,
    trace,
)
from phaze.solvers.placement.stage_costs import prefix_sums

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
    inner, last = stage_partition_dp.stage_loads(problem)
    heavy = weights[None, 1:] - weights[:-1, None]  # weight of stage i..j at [i, j]

    def least(values: Floats, last_values: Floats) -> Floats:
        tables = stage_partition_dp.suffix_tables(values, last_values, problem.limits, stages)
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


# Measured with 195 layers on one core of a 2-core cloud machine; only the speed depends on them.
DP_S_PER_ELEMENT = 0.85e-9
SWEEP_S_PER_STEP = 5e-4
SWEEP_S_PER_ROW = 1.5e-6


@dataclass(frozen=True)
class Partition:
    """Stages of one architecture, first stage first; empty, with an infinite load, if nothing fits.

    `starts`: first layer of each stage; `loads_s`, `weights`: of each stage; `load_s`: the largest load;
    `last_recomputes`: the last stage does not fit without recomputing.
    """

    starts: tuple[int, ...]
    loads_s: tuple[float, ...]
    weights: tuple[float, ...]
    last_recomputes: bool

    @property
    def load_s(self) -> float:
        """The largest load in seconds per microbatch."""
        return max(self.loads_s, default=math.inf)


def bottlenecks(problem: PartitionProblem, stages: Sequence[int]) -> Floats:
    """Minimal maximal load (A, n) in seconds with at most, or exactly, so many stages; infinite if nothing fits."""
    found = np.empty((problem.architectures, len(stages)))
    for chosen, threshold in _parts(problem, stages, max(stages)):
        part = problem.select(chosen)
        if threshold:
            lower = lower_bounds(part, stages)
            sweeper = Sweeper(part, np.zeros(part.layers + 1))
            loads, _ = solve_rows(sweeper, _rows(part, stages), lower.ravel())
            found[chosen] = loads.reshape(lower.shape)
        else:
            found[chosen] = stage_partition_dp.bottlenecks(part, max(stages))[:, np.asarray(stages) - 1]
    return found


def weighted_bottlenecks(
    problem: PartitionProblem,
    stages: Sequence[int],
    weight: Floats,
    load_factor: Floats | float,
    weight_factor: Floats | float,
) -> Weighted:
    """Minimum of load_factor * max(load) + weight_factor * max(weight) over the partitions, all (A, n).

    `weight` (L,) adds up over the layers of a stage; it and both factors are finite and not negative.
    """
    shape = (problem.architectures, len(stages))
    least = np.broadcast_to(bottlenecks(_weight_problem(problem, weight), stages), shape)
    factors = [np.broadcast_to(np.asarray(f, dtype=np.float64), shape) for f in (load_factor, weight_factor)]
    best = Weighted(*(np.full(shape, np.inf) for _ in range(3)))
    for chosen, threshold in _parts(problem, stages, 2 * sum(stages)):
        part = problem.select(chosen)
        rows = [lower_bounds(part, stages), *(array[chosen] for array in (least, *factors))]
        if threshold:
            solve = by_threshold(part, _rows(part, stages), prefix_sums(weight))
            _store(best, (chosen, slice(None)), descend(solve, *(array.ravel() for array in rows)))
            continue
        for column, count in enumerate(stages):
            solve = by_recurrence(part, count, prefix_sums(weight))
            _store(best, (chosen, column), descend(solve, *(array[:, column] for array in rows)))
    return best


def best_cuts(
    problem: PartitionProblem,
    architecture: int,
    stages: int,
    *,
    weight: Floats | None = None,
    load_factor: float = 1.0,
    weight_factor: float = 0.0,
) -> Partition:
    """Stages of one architecture that attain its bottleneck, or its weighted one if weights are given."""
    one = problem.select(np.array([architecture]))
    factors = np.array([load_factor]), np.array([weight_factor])
    return batch_cuts(one, stages, np.zeros(problem.layers) if weight is None else weight, *factors)[0]


def batch_cuts(
    problem: PartitionProblem,
    stages: int,
    weight: Floats,
    load_factor: Floats,
    weight_factor: Floats,
) -> list[Partition]:
    """Stages of every architecture that attain its weighted bottleneck; both factors (A,)."""
    best = weighted_bottlenecks(problem, [stages], weight, load_factor[:, None], weight_factor[:, None])
    return [
        _cuts(
            problem.select(np.array([a])), stages, weight, float(best.load_s[a, 0]), float(best.weight[a, 0])
        )
        for a in range(problem.architectures)
    ]


def _cuts(one: PartitionProblem, stages: int, weight: Floats, load_s: float, cap: float) -> Partition:
    """Stages of one architecture that keep a load and a cap on the weight that some partition keeps."""
    if math.isinf(load_s):
        return Partition((), (), (), last_recomputes=False)
    if is_monotone(one)[0] and not one.exactly:
        starts = trace(one, stages, load_s, prefix_sums(weight), cap)
    else:
        starts = stage_partition_dp.trace(one, stages, interval_weights(weight) <= cap)
    return _partition(one, starts, weight)


def _partition(one: PartitionProblem, starts: tuple[int, ...], weights: Floats) -> Partition:
    """The partition with these starts, its loads added up layer by layer."""
    recomputes = bool(one.last_recomputes[starts[-1]])
    loads = []
    for first, end in pairwise((*starts, one.layers)):
        plain = end == one.layers and not recomputes
        layers = (one.plain_s if plain else one.inner_s)[0, first:end]
        loads.append(float(layers.sum() + one.boundary_s[0, first] + one.boundary_s[0, end]))
    sums = tuple(float(weights[i:j].sum()) for i, j in pairwise((*starts, one.layers)))
    return Partition(starts, tuple(loads), sums, recomputes)


def _parts(
    problem: PartitionProblem, stages: Sequence[int], dp_steps: int
) -> Iterator[tuple[Integers, bool]]:
    """Architectures in groups of suitable size, each with whether to use the threshold search.

    The threshold search needs monotone loads and at most so many stages. There both methods give the same bits,
    so the choice between them, by expected time, never shows in a result; `dp_steps` is the number of steps of
    the recurrence.
    """
    monotone = is_monotone(problem) & (not problem.exactly)
    dp_s = DP_S_PER_ELEMENT * dp_steps * problem.layers**2 * problem.architectures
    if dp_s < SWEEP_S_PER_STEP * max(stages) + SWEEP_S_PER_ROW * sum(stages) * problem.architectures:
        monotone[:] = False
    for kind, size in ((True, ROWS // len(stages)), (False, stage_partition_dp.BLOCK // problem.layers**2)):
        chosen = np.flatnonzero(monotone == kind)
        for begin in range(0, chosen.size, max(1, size)):
            yield chosen[begin : begin + max(1, size)], kind


def _rows(problem: PartitionProblem, stages: Sequence[int]) -> Rows:
    """One row per architecture and number of stages, in the order of a raveled (A, n) array."""
    architecture, column = np.divmod(np.arange(problem.architectures * len(stages)), len(stages))
    return Rows(architecture, np.asarray(stages)[column], np.full(architecture.shape, np.inf))


def _weight_problem(problem: PartitionProblem, weight: Floats) -> PartitionProblem:
    """The problem whose loads are the weights: its bottleneck is the least maximal weight."""
    row = np.asarray(weight, dtype=np.float64)[None]
    free = np.zeros((1, problem.layers + 1))
    return PartitionProblem(row, row, free, problem.limits, problem.kind, problem.exactly)


def _store(best: Weighted, where: tuple[Integers, int | slice], found: Weighted) -> None:
    for name in ("value", "load_s", "weight"):
        kept, new = getattr(best, name), getattr(found, name)
        kept[where] = new.reshape(kept[where].shape)
