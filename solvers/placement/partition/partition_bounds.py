"""A lower bound on the minimal bottleneck that makes no partition, for many numbers of stages at once.

One stage takes at least the average, and one holds the slowest layer. Layers that repeat are counted: of n such
layers the last stage holds some, and each other stage at most k of them, and no more than its memory has room for. So
the last stage holds all for which the others have no room, and takes as long as these; and one of the others takes
as long as the fastest k. What k is nobody knows, but all choices fall into four cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.partition.partition_problem import PartitionProblem, StageLimits

# The bound adds in another order than the exact search; this much below, it stays a bound.
_ROUNDING = 1e-12


def lower_bounds(problem: PartitionProblem, stages: Sequence[int]) -> Floats:
    """Seconds (A, len(stages)) that no partition into at most so many stages beats."""
    counts = np.minimum(np.asarray(stages, dtype=np.int64), problem.layers)
    bound: Floats = np.maximum(_average(problem, counts), problem.plain_s.max(axis=1, keepdims=True))
    loads = _Loads.of(problem)
    for places in repeated(problem.kind):
        np.maximum(bound, loads.bound(places, counts, problem.limits), out=bound)
    found: Floats = bound * (1 - _ROUNDING)
    return found


def _average(problem: PartitionProblem, counts: Integers) -> Floats:
    """Average load of at most so many stages, (A, len(counts)): monotone in their number, hence least at either end.

    The last stage may keep its activations: with what it spares its load counts more than once.
    """
    work, more = problem.work_s[:, -1:], problem.inner_s - problem.plain_s
    never = np.where(more > 0, np.inf, 0.0)  # where the last stage spares all there is
    spare = np.divide(more, problem.plain_s, out=never, where=problem.plain_s > 0).max(axis=1, keepdims=True)
    cut = problem.boundary_s[:, 1:-1].min(axis=1, initial=np.inf, keepdims=True)
    several = work + np.where(counts > 1, 2 * (counts - 1) * np.where(np.isfinite(cut), cut, 0.0), 0.0)
    average: Floats = np.minimum(several / (counts + spare), work / (1 + spare))
    return average


def repeated(kind: Integers) -> list[Integers]:
    """Places of the layers of each kind that repeats, and of all of them; rare layers may be cheap ones."""
    groups = [np.flatnonzero(kind == one) for one in np.unique(kind)]
    groups = [places for places in groups if places.size > 2]
    return groups + ([np.sort(np.concatenate(groups))] if len(groups) > 1 else [])


@dataclass(frozen=True)
class _Loads:
    """Least loads of stages that contain given layers, whatever their boundaries.

    `starts_s`, `ends_s` (A, L+1): a stage but the last that contains layers i..j takes at least
    ends_s[j + 1] - starts_s[i]. `last_s` (A, L): a last stage that contains layer i.
    """

    starts_s: Floats
    ends_s: Floats
    last_s: Floats

    @classmethod
    def of(cls, problem: PartitionProblem) -> _Loads:
        """Loads that only grow with what a stage contains."""
        return cls(
            np.maximum.accumulate(problem.starts_s, axis=1),
            np.minimum.accumulate(problem.ends_s[:, ::-1], axis=1)[:, ::-1],
            np.minimum.accumulate(problem.last_s, axis=1),
        )

    def bound(self, places: Integers, counts: Integers, limits: StageLimits) -> Floats:
        """Bound that the layers at these places imply, (A, len(counts)).

        With the least share k that gives all of them room, others that hold at most k - 1 leave too many to the last
        stage, a stage with k + 1 takes as long as k + 1 do; otherwise it is k, or what k leaves to the last stage.
        """
        rooms = room(places, limits)[counts]
        fair = np.maximum((rooms + np.arange(places.size + 2) < places.size).sum(axis=1), 1)
        share, more = (self._fastest(places, k) for k in (fair, fair + 1))
        left, fewer = (self._left(places, rooms, k) for k in (fair, fair - 1))
        bound: Floats = np.minimum(np.maximum(share, left), np.minimum(more, fewer))
        return bound

    def _fastest(self, places: Integers, shares: Integers) -> Floats:
        """Least load of a stage but the last with so many of the layers, (A, len(shares)); infinite beyond all."""
        wanted, which = np.unique(shares, return_inverse=True)
        starts, ends = self.starts_s[:, places], self.ends_s[:, places + 1]
        loads = np.full((len(starts), len(wanted)), np.inf)
        for column, k in enumerate(wanted.tolist()):
            if k <= places.size:
                loads[:, column] = (ends[:, k - 1 :] - starts[:, : places.size - k + 1]).min(axis=1)
        return loads[:, which]

    def _left(self, places: Integers, rooms: Integers, shares: Integers) -> Floats:
        """Least load of a last stage that holds what the others leave, with such shares, (A, len(shares))."""
        taken = np.take_along_axis(rooms, shares[:, None], axis=1)[:, 0]
        at = np.append(places, self.last_s.shape[1] - 1)[np.minimum(taken, places.size)]
        loads: Floats = self.last_s[:, at]
        return loads


def room(places: Integers, limits: StageLimits) -> Integers:
    """Number of some layers that all stages but the last have room for, at most k each, at [stages, k].

    For 0..L stages and k up to one more than there are such layers; how much a stage holds depends on its index.
    """
    layers = limits.earliest.shape[1]
    before = np.searchsorted(places, np.arange(layers + 1))
    most = (before[1:] - before[limits.earliest]).max(axis=1)
    rooms = np.minimum(np.arange(places.size + 2), most[:, None])
    rooms[:2] = 0  # no stage has index 0, and the last one 1
    total: Integers = np.cumsum(rooms, axis=0)
    return total
