"""The Pareto frontier of throughput against TDP, kept while points come in."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass
class Staircase:
    """Best throughput known at or below every TDP.

    `tdp_w` strictly ascending, `throughput` strictly ascending with it, `keys` what reached each step.
    """

    tdp_w: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    keys: list[tuple[float, int]] = field(default_factory=list)

    def add(self, tdp_w: float, throughput: float, key: tuple[float, int]) -> bool:
        """Add an evaluated point; `key` = (area, row) breaks exact ties. Returns whether it is on the frontier."""
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

    def best_at(self, tdp_w: FloatArray) -> FloatArray:
        """Best throughput known at no more than each TDP, (A,); 0 where nothing is known."""
        if not self.tdp_w:
            return np.zeros_like(tdp_w)
        at = np.searchsorted(np.array(self.tdp_w), tdp_w, side="right")
        return np.concatenate([[0.0], self.throughput])[at]

    def dominates(self, tdp_w: FloatArray, throughput: FloatArray) -> NDArray[np.bool_]:
        """Whether a point that is at most this good cannot add anything, (A,).

        A point of equal TDP and equal throughput is not dominated: its area may break the tie.
        """
        if not self.tdp_w:
            return np.zeros(len(tdp_w), dtype=bool)
        steps = np.array(self.tdp_w)
        values = np.concatenate([[0.0], self.throughput])
        at_most = values[np.searchsorted(steps, tdp_w, side="right")]
        below = values[np.searchsorted(steps, tdp_w, side="left")]
        result: NDArray[np.bool_] = (at_most > throughput) | ((below >= throughput) & (below > 0))
        return result
