"""Figures on a coarse grid, and between its points along straight lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats


@dataclass(frozen=True, slots=True)
class Line:
    """Values (G, ...) at ascending points (G,); between two points the straight line, outside none."""

    points: Floats
    values: Floats

    def at(self, where: ArrayLike) -> Floats:
        """The values at some places, (*where, ...). ValueError beyond the points."""
        x = np.asarray(where, dtype=np.float64)
        if x.size and not (self.points[0] <= x.min() and x.max() <= self.points[-1]):
            msg = f"{x.min():g} .. {x.max():g} is not within {self.points[0]:g} .. {self.points[-1]:g}"
            raise ValueError(msg)
        if len(self.points) == 1:
            return self.values[np.zeros(x.shape, dtype=np.intp)]
        left = np.clip(np.searchsorted(self.points, x, side="right") - 1, 0, len(self.points) - 2)
        width = self.points[left + 1] - self.points[left]
        share = ((x - self.points[left]) / width).reshape(x.shape + (1,) * (self.values.ndim - 1))
        found: Floats = self.values[left] * (1 - share) + self.values[left + 1] * share
        return found


def doublings(first: int, last: int) -> list[int]:
    """`first`, its doubles below `last`, and `last`."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return [*found, last]
