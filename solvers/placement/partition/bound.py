"""A lower bound on the minimal bottleneck that costs microseconds, for pruning architectures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from phaze.solvers.placement.partition.problem import PartitionProblem
from phaze.solvers.placement.stage_costs import FloatArray, IntArray

# The bound adds in another order than the exact search; this much below, it stays a bound.
_ROUNDING = 1e-12


def lower_bounds(problem: PartitionProblem, stages: Sequence[int]) -> FloatArray:
    """Seconds (A, len(stages)) that no partition into at most so many stages beats.

    The last stage starts with some layer i. One of the other S - 1 stages takes at least their average; each
    layer before i is in one of them; and of each kind of layer, and of all that repeat together, one of them
    holds at least the (S - 1)th part of those before i, rounded up. The bound is the least maximum of these
    loads over i. Memory enters at the last stage only.
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
    average: FloatArray = np.minimum(work, (work + 2 * (others - 1) * cheapest_cut) / others)
    return average


class _Windows:
    """Least loads of stages that contain given runs of layers."""

    def __init__(self, problem: PartitionProblem, stages: Sequence[int]) -> None:
        self._problem = problem
        # A stage that contains layers i..j takes at least ends[j + 1] - starts[i], whatever its boundaries.
        self._starts = np.maximum.accumulate(problem.starts_s, axis=1)
        self._ends = np.minimum.accumulate(problem.ends_s[:, ::-1], axis=1)[:, ::-1]
        self.single: FloatArray = np.maximum.accumulate(self._ends[:, 1:] - self._starts[:, :-1], axis=1)
        groups = [np.flatnonzero(problem.kind == kind) for kind in np.unique(problem.kind)]
        groups = [places for places in groups if places.size > 2]
        # Rare layers may be cheap ones, so they are left out of the union too.
        groups += [np.sort(np.concatenate(groups))] if len(groups) > 1 else []
        fewest = max(min(*stages, problem.layers) - 1, 1)
        self._groups = [(places, self._table(places, fewest)) for places in groups]

    def _table(self, places: IntArray, fewest: int) -> FloatArray:
        """Least load of a stage with k of the layers, at [:, k], up to the share of the `fewest` stages."""
        most = -(-places.size // fewest)
        table = np.zeros((self._problem.architectures, most + 1))
        starts, ends = self._starts[:, places], self._ends[:, places + 1]
        for k in range(1, most + 1):
            table[:, k] = (ends[:, k - 1 :] - starts[:, : places.size - k + 1]).min(axis=1)
        return table

    def largest_share(self, others: int) -> FloatArray:
        """Load (A, L+1) of the stage with most layers of a group, if `others` stages share those before i."""
        load = np.zeros((self._problem.architectures, self._problem.layers + 1))
        for places, table in self._groups:
            before = np.searchsorted(places, np.arange(self._problem.layers + 1))
            np.maximum(load, np.take(table, -(-before // others), axis=1), out=load)
        return load
