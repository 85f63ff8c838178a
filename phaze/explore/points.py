"""Bounds on what points take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PointBounds:
    """Proven bounds on the iteration time of one point per architecture, (A,) seconds; inf: does not fit."""

    lower_s: NDArray[np.float64]
    upper_s: NDArray[np.float64]

    @classmethod
    def none(cls, count: int) -> PointBounds:
        """Of architectures on which nothing fits."""
        return cls(np.full(count, np.inf), np.full(count, np.inf))

    def put(self, at: NDArray[np.intp], others: PointBounds) -> None:
        """Take over what is known of the architectures at some positions."""
        self.lower_s[at], self.upper_s[at] = others.lower_s, others.upper_s
