"""Which points can still matter, given what is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.archive import Archive, FloatArray

Mask = NDArray[np.bool_]
# Bounds are sums of some thousand rounded terms; they are relaxed by this much so that rounding never prunes.
ROUNDING = 1e-11
_AT_ONCE = 256


@dataclass
class Relevance:
    """What a point must promise to be of interest.

    `known`: throughput that some plan reaches. `slack`: 1 + gap; a point that is better by less does not matter.
    `floor`: least throughput of interest.
    """

    known: Archive
    slack: float = 1.0
    floor: float = 0.0

    def least(self, others: FloatArray) -> FloatArray:
        """Optimistic throughput below which a point of those other columns (A, k) cannot matter, (A,)."""
        return np.maximum(self.known.threshold(others) * self.slack, self.floor)

    def matters(self, others: FloatArray, throughput: FloatArray) -> Mask:
        """Whether points of that optimistic throughput can matter, (A,); infeasible ones (0) never do."""
        reaches = (throughput > 0) & (throughput >= self.floor)
        return reaches & ~self.known.dominates(others, throughput / self.slack)

    def near(self, others: FloatArray, throughput: FloatArray) -> Mask:
        """Whether points of that optimistic throughput cannot matter for the slack alone, (A,)."""
        if self.slack == 1.0:
            return np.zeros(len(throughput), dtype=bool)
        open_ = (throughput > 0) & (throughput >= self.floor) & ~self.known.dominates(others, throughput)
        return open_ & ~self.matters(others, throughput)


class Undecided:
    """Optimistic values of points that nothing has ruled out; of them only those that no other one dominates."""

    def __init__(self, archive: Archive) -> None:
        """`archive` is empty."""
        self._archive = archive
        self._others: list[list[float]] = []
        self._throughput: list[float] = []

    def add(self, others: FloatArray, throughput: FloatArray) -> None:
        """Add points of those other columns (A, k) and that optimistic throughput (A,)."""
        if not len(throughput):
            return
        order = np.argsort(-throughput, kind="stable")
        while len(order := order[~self._archive.dominates(others[order], throughput[order])]):
            for i in order[:_AT_ONCE]:
                row, value = others[i].tolist(), float(throughput[i])
                if self._archive.add(row, value, (0.0, len(self._throughput))):
                    self._others.append(row)
                    self._throughput.append(value)
            order = order[_AT_ONCE:]

    def beyond(self, known: Archive) -> tuple[FloatArray, FloatArray]:
        """Other columns (N, k) and optimistic throughput (N,) of what the points of an archive do not dominate."""
        throughput, others = np.array(self._throughput), np.array(self._others)
        if not len(throughput):
            return others.reshape(0, 0), throughput
        left = ~self._archive.dominates(others, throughput) & ~known.dominates(others, throughput)
        return others[left], throughput[left]


def urgency(others: FloatArray, bound: FloatArray) -> FloatArray:
    """How close points come to the frontier of their optimistic values, (A,): 1 on it.

    Those on it have to be looked at whatever the others turn out to be; the others may yet be ruled out by them.
    Told for one other column, (A, 1); with more, all are as urgent.
    """
    if others.shape[1] != 1:
        return np.ones(len(bound))
    order = np.lexsort((-bound, others[:, 0]))
    hoped = np.empty(len(bound))
    hoped[order] = np.maximum.accumulate(bound[order])
    return bound / hoped
