"""Minimal bottleneck by threshold search: many (architecture, stages) rows in lockstep.

For a threshold T the stages are filled from the end of the chain, each as far to the left as T and the memory
allow. Where trimming the right end of a stage never makes it slower or larger, this reaches furthest with every
number of stages, so it fails only if no partition of maximal load T exists. A failing sweep also returns the
smallest load that would have let any of its stages start earlier: below it every sweep fails alike, so it is a
lower bound, and an attained load. The search ends when a sweep at a lower bound succeeds: the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.placement.partition_problem import PartitionProblem
from phaze.solvers.placement.stage_costs import BoolArray, FloatArray, IntArray

# Rows handled together: enough to hide the interpreter, few enough for the cache.
ROWS = 4096


def is_monotone(problem: PartitionProblem) -> BoolArray:
    """Architectures (A,) whose stage loads only shrink when an inner stage loses a layer at one end.

    The chain's first and last layer are exempt: the sweep treats a stage that starts the chain apart, and only
    the last stage ends with the last layer.
    """
    if problem.layers < 3:
        return np.ones(problem.architectures, dtype=np.bool_)
    right = np.diff(problem.ends_s, axis=1)[:, 1:-1] >= 0
    left = np.diff(problem.starts_s, axis=1)[:, 1:-1] >= 0
    return np.asarray((right & left).all(axis=1))


@dataclass(frozen=True)
class Rows:
    """R independent questions: an architecture, a number of stages, a cap on the weight of a stage (R,) each."""

    architecture: IntArray
    stages: IntArray
    weight_cap: FloatArray

    def __getitem__(self, rows: IntArray) -> Rows:
        return Rows(self.architecture[rows], self.stages[rows], self.weight_cap[rows])


@dataclass(frozen=True)
class Sweep:
    """`load_s` (R,): attained maximal load, infinite if the sweep failed; `next_s`: see the module's text.

    `weight` (R,): attained maximal weight of a stage.
    """

    load_s: FloatArray
    next_s: FloatArray
    weight: FloatArray


class Sweeper:
    """Fills stages from the end; `weights` (L+1,) are prefix sums of the layers' weights, zeros if unused."""

    def __init__(self, problem: PartitionProblem, weights: FloatArray) -> None:
        """Flatten the arrays of a monotone problem for row-wise look-up."""
        self._problem = problem
        self._width = problem.layers + 1
        self._starts = problem.starts_s.ravel()
        self._ends = problem.ends_s.ravel()
        self._weights = weights

    def sweep(self, rows: Rows, threshold_s: FloatArray) -> Sweep:
        """One greedy pass of every row at its threshold."""
        front, load, bump, weight = self._last_stage(rows, threshold_s)
        active = np.flatnonzero((front > 0) & (front < self._problem.layers) & (rows.stages > 1))
        depth = 2
        while active.size:
            start, achieved, earlier = self._inner_stage(
                depth, front[active], rows[active], threshold_s[active]
            )
            bump[active] = np.minimum(bump[active], earlier)
            load[active] = np.maximum(load[active], achieved)
            weight[active] = np.maximum(weight[active], self._weights[front[active]] - self._weights[start])
            moved = start < front[active]
            front[active] = start
            active = active[moved & (start > 0) & (rows.stages[active] > depth)]
            depth += 1
        return Sweep(np.where(front == 0, load, np.inf), bump, weight)

    def _last_stage(
        self, rows: Rows, threshold_s: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        loads = self._problem.last_s[rows.architecture]
        if np.isfinite(rows.weight_cap).any():
            heavy = self._weights[-1] - self._weights[:-1] > rows.weight_cap[:, None]
            loads = np.where(heavy, np.inf, loads)
        fits = loads <= threshold_s[:, None]
        some = fits.any(axis=1)
        front = np.where(some, fits.argmax(axis=1), self._problem.layers)
        before = np.arange(self._problem.layers) < front[:, None]
        bump = np.where(before, loads, np.inf).min(axis=1)
        attained = loads[np.arange(front.size), np.minimum(front, self._problem.layers - 1)]
        return front, np.where(some, attained, 0.0), bump, self._weights[-1] - self._weights[front]

    def _inner_stage(
        self, depth: int, front: IntArray, rows: Rows, threshold_s: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """First layer of the longest stage before `front`, its load, and the load of the next longer one."""
        base = rows.architecture * self._width
        earliest = self._problem.earliest[depth, front - 1]
        end = self._ends[base + front]
        weight_end = self._weights[front]
        # Loads grow towards the left down to layer 1: bisect for the first layer that fits, `front` if none.
        low, high = np.maximum(earliest, 1), front.copy()
        low = np.minimum(low, high)
        while (low < high).any():
            middle = (low + high) >> 1
            fits = (end - self._starts[base + middle] <= threshold_s) & (
                weight_end - self._weights[middle] <= rows.weight_cap
            )
            # An empty bracket stays empty: its middle is its own end.
            high = np.where(fits & (low < high), middle, high)
            low = np.where(fits | (low == high), low, middle + 1)
        # The chain's first layer has its own boundary, so it may fit where layer 1 does not.
        whole = np.where(
            (earliest == 0) & (weight_end - self._weights[0] <= rows.weight_cap),
            end - self._starts[base],
            np.inf,
        )
        start = np.where(whole <= threshold_s, 0, low)
        longer = low - 1
        allowed = (longer >= np.maximum(earliest, 1)) & (
            weight_end - self._weights[longer] <= rows.weight_cap
        )
        bump = np.where(allowed, end - self._starts[base + longer], np.inf)
        bump = np.where(start == 0, np.inf, np.minimum(bump, whole))
        achieved = np.where(start < front, end - self._starts[base + start], 0.0)
        return start, achieved, bump


def solve_rows(sweeper: Sweeper, rows: Rows, lower_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimal maximal load and the maximal weight of a partition that attains it, (R,) each; infinite if none.

    `lower_s` (R,): valid lower bounds to start from.
    """
    low = lower_s.copy()
    high = np.full(low.shape, np.inf)
    weight = np.full(low.shape, np.inf)
    active = np.flatnonzero(np.isfinite(low))
    attempt = 0
    while active.size:
        threshold = low[active] if attempt % 2 == 0 else _between(low[active], high[active], attempt)
        found = sweeper.sweep(rows[active], threshold)
        better = found.load_s < high[active]
        high[active[better]] = found.load_s[better]
        weight[active[better]] = found.weight[better]
        failed = np.isinf(found.load_s)
        low[active[failed]] = found.next_s[failed]
        # A sweep that succeeds at a lower bound attains the optimum.
        proven = ~failed & (threshold <= low[active])
        active = active[~proven & (low[active] < high[active])]
        attempt += 1
    return high, weight


def _between(low: FloatArray, high: FloatArray, attempt: int) -> FloatArray:
    """A threshold inside the bracket; while it is open, steps above the lower bound that double."""
    step = low * 2.0 ** (attempt - 8)
    return np.where(np.isinf(high), low + step, 0.5 * (low + np.where(np.isinf(high), low, high)))


def trace(
    problem: PartitionProblem, stages: int, threshold_s: float, weights: FloatArray, weight_cap: float
) -> tuple[int, ...]:
    """First layers of the stages of one architecture's sweep, first stage first; empty if it fails.

    Same arithmetic as `Sweeper`, whose result serves as threshold and cap; `weights` (L+1,) are prefix sums.
    """
    starts, ends, last_s = (a[0].tolist() for a in (problem.starts_s, problem.ends_s, problem.last_s))
    prefix = weights.tolist()

    def fits(start: int, front: int) -> bool:
        light: bool = prefix[front] - prefix[start] <= weight_cap
        return light and ends[front] - starts[start] <= threshold_s

    front = problem.layers
    for start, load in enumerate(last_s):
        if load <= threshold_s and prefix[-1] - prefix[start] <= weight_cap:
            front = start
            break
    found = [front]
    while 0 < front < problem.layers and len(found) < stages:
        earliest = int(problem.earliest[len(found) + 1, front - 1])
        if earliest == 0 and fits(0, front):
            front = 0
        else:
            candidates = range(max(earliest, 1), front)
            front = next((start for start in candidates if fits(start, front)), problem.layers)
        found.append(front)
    return tuple(reversed(found)) if front == 0 else ()
