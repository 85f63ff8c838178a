"""A lower bound on the minimal bottleneck that costs microseconds, for pruning architectures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from phaze.solvers.placement.partition_problem import PartitionProblem
from phaze.solvers.placement.stage_costs import FloatArray, IntArray

# The bound adds in another order than the exact search; this much below, it stays a bound.
_ROUNDING = 1e-12


def lower_bounds(problem: PartitionProblem, stages: Sequence[int]) -> FloatArray:
    """Seconds (A, len(stages)) that no partition into at most so many stages beats; memory enters at the last stage only.

    The last stage starts with some layer i. Of the other S - 1 stages, one takes at least their average, one
    holds every layer before i, and of each kind of layer one holds at least the S - 1th part of those before i,
    rounded up. The bound is the smallest maximum of these over i.
    """
    windows = _Windows(problem, stages)
    bounds = np.empty((problem.architectures, len(stages)))
    for column, count in enumerate(stages):
        others = min(count, problem.layers) - 1
        bounds[:, column] = problem.last_s[:, 0]
        if others:
            load = np.maximum(problem.last_s[:, 1:], _average(problem, others))
            load = np.maximum(load, windows.single[:, :-1])
            load = np.maximum(load, windows.largest_share(others)[:, 1:-1])
            bounds[:, column] = np.minimum(bounds[:, column], load.min(axis=1))
    return bounds * (1 - _ROUNDING)


def _average(problem: PartitionProblem, others: int) -> FloatArray:
    """Average load of at most `others` stages that hold the layers before i = 1..L-1, at [:, i - 1] (A, L-1).

    It is monotone in their number, hence smallest for one stage or for all of them.
    """
    boundary = problem.boundary_s
    work = problem.work_s[:, 1:-1] + boundary[:, 1:-1] + boundary[:, :1]
    cheapest_cut = boundary[:, 1:-1].min(axis=1, keepdims=True)
    return np.minimum(work, (work + 2 * (others - 1) * cheapest_cut) / others)


class _Windows:
    """Least loads of stages that contain given runs of layers."""

    def __init__(self, problem: PartitionProblem, stages: Sequence[int]) -> None:
        self._problem = problem
        # A stage that contains layers i..j takes at least ends[j + 1] - starts[i], also where boundaries shrink.
        self._starts = np.maximum.accumulate(problem.starts_s, axis=1)
        self._ends = np.minimum.accumulate(problem.ends_s[:, ::-1], axis=1)[:, ::-1]
        self.single: FloatArray = np.maximum.accumulate(self._ends[:, 1:] - self._starts[:, :-1], axis=1)
        kinds = [np.arange(problem.layers)]
        kinds += [np.flatnonzero(problem.kind == kind) for kind in np.unique(problem.kind)]
        self._kinds = [places for places in kinds if places.size > 2]
        self._tables = [self._table(places, min(stages, default=1)) for places in self._kinds]

    def _table(self, places: IntArray, fewest: int) -> FloatArray:
        """Least load of a stage with k of the given layers, at [:, k], for every k that can be asked for."""
        most = -(-places.size // max(min(fewest, self._problem.layers) - 1, 1))
        table = np.zeros((self._problem.architectures, most + 1))
        for k in range(1, most + 1):
            first, last = places[: places.size - k + 1], places[k - 1 :]
            table[:, k] = (self._ends[:, last + 1] - self._starts[:, first]).min(axis=1)
        return table

    def largest_share(self, others: int) -> FloatArray:
        """Load (A, L+1) of the stage with the most layers of a kind, if `others` stages share those before i."""
        load = np.zeros((self._problem.architectures, self._problem.layers + 1))
        for places, table in zip(self._kinds, self._tables, strict=True):
            before = np.searchsorted(places, np.arange(self._problem.layers + 1))
            np.maximum(load, table[:, -(-before // others)], out=load)
        return load
