"""The Pareto frontier of throughput against TDP, kept while points come in."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze.explore.archive import BoolArray, FloatArray, Key


@dataclass
class Staircase:
    """Best throughput known at or below every TDP: the archive of one other column.

    `tdp_w` strictly ascending, `throughput` strictly ascending with it, `keys` what reached each step.
    """

    tdp_w: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.keys)

    def add(self, others: Sequence[float], throughput: float, key: Key) -> bool:
        """Add an evaluated point; `key` = (area, number) breaks exact ties. Returns whether it is on the frontier."""
        (tdp_w,) = others
        at = bisect.bisect_right(self.tdp_w, tdp_w)
        if at and self.throughput[at - 1] >= throughput:
            tie = self.tdp_w[at - 1] == tdp_w and self.throughput[at - 1] == throughput
            if tie and key < self.keys[at - 1]:
                self.keys[at - 1] = key
            return tie and self.keys[at - 1] == key
        first = at - 1 if at and self.tdp_w[at - 1] == tdp_w else at
        last = at
        while last < len(self.tdp_w) and self.throughput[last] <= throughput:
            last += 1
        self.tdp_w[first:last] = [tdp_w]
        self.throughput[first:last] = [throughput]
        self.keys[first:last] = [key]
        return True

    def threshold(self, others: FloatArray) -> FloatArray:
        """Best throughput known at no more than each TDP, others (A, 1), (A,); 0 where nothing is known."""
        at = np.searchsorted(np.array(self.tdp_w), others[:, 0], side="right")
        return np.array([0.0, *self.throughput])[at]

    def dominates(self, others: FloatArray, throughput: FloatArray) -> BoolArray:
        """Whether a point that is at most this good cannot add anything, others (A, 1), (A,).

        A point of equal TDP and equal throughput is not dominated: its area may break the tie.
        """
        steps, values = np.array(self.tdp_w), np.array([-np.inf, *self.throughput])
        at_most = values[np.searchsorted(steps, others[:, 0], side="right")]
        below = values[np.searchsorted(steps, others[:, 0], side="left")]
        return np.asarray((at_most > throughput) | (below >= throughput))
