"""Minimal bottleneck by threshold search: many (architecture, stages) rows in lockstep.

For a threshold T the stages are filled from the end of the chain, each as far to the left as T and the memory
allow. Where trimming the right end of a stage never makes it slower or larger, this reaches furthest with any
number of stages, so it fails only if no partition of maximal load T exists. A failing sweep also tells the
smallest load that would have let one of its stages start earlier: below that every sweep fails alike, so it
is a lower bound. The search ends when a sweep at a lower bound succeeds, hence the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.partition.partition_problem import PartitionProblem

# Rows handled together: enough to hide the interpreter, few enough for the cache.
ROWS = 4096


def is_monotone(problem: PartitionProblem) -> Flags:
    """Architectures (A,) whose stage loads only shrink when an inner stage loses a layer at one end.

    The chain's first and last layer are exempt: the sweep treats a stage that starts the chain apart, and no
    stage but the last ends with the last layer.
    """
    if problem.layers < 3:
        return np.ones(problem.architectures, dtype=np.bool_)
    right = np.diff(problem.ends_s, axis=1)[:, 1:-1] >= 0
    left = np.diff(problem.starts_s, axis=1)[:, 1:-1] >= 0
    return np.asarray((right & left).all(axis=1))


@dataclass(frozen=True)
class Rows:
    """R questions, each an architecture, a number of stages and a cap on the weight of a stage (R,)."""

    architecture: Integers
    stages: Integers
    weight_cap: Floats

    def __getitem__(self, rows: Integers) -> Rows:
        """Some of the rows."""
        return Rows(self.architecture[rows], self.stages[rows], self.weight_cap[rows])


@dataclass
class Sweep:
    """State and outcome of a pass over R rows, (R,) each.

    `front`: layers not yet in a stage, 0 if the pass succeeded; `load_s`, `weight`: the largest attained;
    `next_s`: see the module's text.
    """

    front: Integers
    load_s: Floats
    next_s: Floats
    weight: Floats

    def __getitem__(self, rows: Integers) -> Sweep:
        """Some of the rows, copied."""
        return Sweep(self.front[rows], self.load_s[rows], self.next_s[rows], self.weight[rows])

    def __setitem__(self, rows: Integers, other: Sweep) -> None:
        """Overwrite some of the rows."""
        self.front[rows], self.load_s[rows] = other.front, other.load_s
        self.next_s[rows], self.weight[rows] = other.next_s, other.weight


class Sweeper:
    """Fills stages from the end; `weights` (L+1,) are prefix sums of the layers' weights, zeros if unused."""

    def __init__(self, problem: PartitionProblem, weights: Floats) -> None:
        """Flatten the arrays of a monotone problem for row-wise look-up."""
        self._problem = problem
        self._width = problem.layers + 1
        self._starts = problem.starts_s.ravel()
        self._ends = problem.ends_s.ravel()
        self._weights = weights
        # The first layer from which a last stage fits a threshold is the first at which this does.
        self._least_last_s = np.minimum.accumulate(problem.last_s, axis=1)

    def sweep(self, rows: Rows, threshold_s: Floats) -> Sweep:
        """One greedy pass of every row at its threshold."""
        capped = bool(np.isfinite(rows.weight_cap).any())
        done = self._last_stage(rows, threshold_s, capped)
        active = np.flatnonzero((done.front > 0) & (done.front < self._problem.layers) & (rows.stages > 1))
        state, rows, threshold_s = done[active], rows[active], threshold_s[active]
        depth, length = 2, self._problem.layers // rows.stages
        while active.size:
            front = state.front
            state.front, load, longer = self._inner_stage(depth, front, length, rows, threshold_s, capped)
            length = front - state.front
            np.maximum(state.load_s, load, out=state.load_s)
            np.minimum(state.next_s, longer, out=state.next_s)
            weight = self._weights[front] - self._weights[state.front]
            np.maximum(state.weight, weight, out=state.weight)
            goes_on = (state.front < front) & (state.front > 0) & (rows.stages > depth)
            if not goes_on.all():
                done[active] = state
                kept = np.flatnonzero(goes_on)
                active, state, rows, threshold_s = active[kept], state[kept], rows[kept], threshold_s[kept]
                length = length[kept]
            depth += 1
        return done

    def _last_stage(self, rows: Rows, threshold_s: Floats, capped: bool) -> Sweep:
        """The pass after its first stage, the chain's last; the front is L if none fits."""
        layers, number = self._problem.layers, np.arange(rows.stages.size)
        if capped:
            loads = self._problem.last_s[rows.architecture]
            heavy = self._weights[-1] - self._weights[:-1] > rows.weight_cap[:, None]
            least = np.minimum.accumulate(np.where(heavy, np.inf, loads), axis=1)
            base, least = number * layers, least.ravel()
        else:
            base, least = rows.architecture * layers, self._least_last_s.ravel()
        low, high = np.zeros_like(number), np.full_like(number, layers)
        while (low < high).any():
            middle = np.minimum((low + high) >> 1, layers - 1)
            fits = least[base + middle] <= threshold_s
            high = np.where(fits, np.minimum(middle, high), high)
            low = np.where(fits, low, np.minimum(middle + 1, high))
        longer = np.where(low > 0, least[base + np.maximum(low, 1) - 1], np.inf)
        attained = np.where(low < layers, least[base + np.minimum(low, layers - 1)], 0.0)
        return Sweep(low, attained, longer, self._weights[-1] - self._weights[low])

    def _inner_stage(
        self,
        depth: int,
        front: Integers,
        length: Integers,
        rows: Rows,
        threshold_s: Floats,
        capped: bool,
    ) -> tuple[Integers, Floats, Floats]:
        """First layer of the longest stage before `front`, its load, and the load of the next longer one.

        `length`: a guess at how many layers it has, which only saves time.
        """
        base = rows.architecture * self._width
        earliest = self._problem.limits.earliest[depth, front - 1]
        end = self._ends[base + front]

        def load(start: Integers) -> Floats:
            seconds: Floats = end - self._starts[base + start]
            return seconds

        def light(start: Integers) -> Flags:
            return self._weights[front] - self._weights[start] <= rows.weight_cap

        # Loads grow towards the left down to layer 1: bisect for the first layer that fits, `front` if none.
        floor = np.maximum(earliest, 1)
        low, high = np.minimum(floor, front), front
        near = iter((front - length - 1, front - length + 1))
        while True:
            middle = np.clip(next(near, (low + high) >> 1), low, high)
            fits = load(middle) <= threshold_s
            if capped:
                fits &= light(middle)
            high = np.where(fits, middle, high)
            low = np.where(fits, low, np.minimum(middle + 1, high))
            if (low == high).all():
                break
        # The chain's first layer has its own boundary, so it may fit where layer 1 does not.
        zero = np.zeros_like(front)
        whole = np.where((earliest == 0) & light(zero), load(zero), np.inf)
        start = np.where(whole <= threshold_s, 0, low)
        longer = np.where((low > floor) & light(low - 1), load(low - 1), np.inf)
        bump = np.where(start == 0, np.inf, np.minimum(longer, whole))
        achieved = np.where(start < front, load(start), 0.0)
        return start, achieved, bump


def solve_rows(sweeper: Sweeper, rows: Rows, lower_s: Floats) -> tuple[Floats, Floats]:
    """Minimal maximal load, and maximal weight of a partition that attains it, (R,) each; infinite if none.

    `lower_s` (R,): valid lower bounds to start from.
    """
    low = lower_s.copy()
    high = np.full(low.shape, np.inf)
    weight = np.full(low.shape, np.inf)
    active = np.flatnonzero(np.isfinite(low))
    attempt = 0
    while active.size:
        threshold = low[active] if attempt % 2 == 0 else _next_threshold(low[active], high[active], attempt)
        found = sweeper.sweep(rows[active], threshold)
        failed = found.front > 0
        better = ~failed & (found.load_s < high[active])
        high[active[better]] = found.load_s[better]
        weight[active[better]] = found.weight[better]
        low[active[failed]] = found.next_s[failed]
        # A sweep that succeeds at a lower bound attains the optimum.
        proven = ~failed & (threshold <= low[active])
        active = active[~proven & (low[active] < high[active])]
        attempt += 1
    return high, weight


def _next_threshold(low: Floats, high: Floats, attempt: int) -> Floats:
    """A threshold inside the bracket; while it is open, steps above the lower bound that double."""
    step = low * 2.0 ** (attempt - 8)
    return np.where(np.isinf(high), low + step, 0.5 * (low + np.where(np.isinf(high), low, high)))


def trace(
    problem: PartitionProblem, stages: int, threshold_s: float, weights: Floats, weight_cap: float
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
        earliest = int(problem.limits.earliest[len(found) + 1, front - 1])
        if earliest == 0 and fits(0, front):
            front = 0
        else:
            candidates = range(max(earliest, 1), front)
            front = next((start for start in candidates if fits(start, front)), problem.layers)
        found.append(front)
    return tuple(reversed(found)) if front == 0 else ()
