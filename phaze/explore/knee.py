"""The knee of a frontier: the compromise from which every step in one direction costs most in the others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
FEWEST = 3  # of two points neither is a compromise


def knee(values: FloatArray) -> int | None:
    """Which of the non-dominated points (n, k), every column to be minimised, is the knee; None below three points.

    Every column is scaled so that its best value among the points is 0 (the utopia point is 0 everywhere) and
    its worst 1 (the nadir point). The knee is the point farthest towards utopia, measured along the diagonal
    from nadir to utopia: the one with the smallest sum. For two columns that is the one farthest below the
    chord through both ends of the frontier (Das, Structural Optimization 18, 1999). Ties: the first one.
    """
    if len(values) < FEWEST:
        return None
    best, worst = values.min(axis=0), values.max(axis=0)
    width = np.where(worst > best, worst - best, 1.0)
    return int(((values - best) / width).sum(axis=1).argmin())
