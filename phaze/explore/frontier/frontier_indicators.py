"""Indicators of a whole frontier: the hypervolume that it dominates, and its knee."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.explore.frontier.pareto_archive import nondominated


def hypervolume(values: Floats, reference: Floats) -> float:
    """Volume between points (n, k), every column to be minimised, and a reference point (k,).

    In the product of the columns' units; points that are not better than the reference everywhere add nothing.
    """
    inside = values[(values < reference).all(axis=1)]
    return _volume(_front(inside), reference)


def _front(values: Floats) -> Floats:
    """The non-dominated points, equal ones once, by rising first column."""
    distinct: Floats = np.unique(values, axis=0)
    return distinct[nondominated(distinct)]


def _volume(front: Floats, reference: Floats) -> float:
    """Hypervolume of distinct non-dominated points that are sorted by their first column."""
    if not len(front):
        return 0.0
    if front.shape[1] == 1:
        return float(reference[0] - front[0, 0])
    if front.shape[1] == 2:
        widths = np.diff(np.append(front[:, 0], reference[0]))
        return float(widths @ (reference[1] - front[:, 1]))
    total = 0.0
    for i, point in enumerate(front):
        # Cut to this point's box, those before it all begin where it does in the first column: one less is left.
        shared = _front(np.maximum(point[1:], front[:i, 1:]))
        own = float(np.prod(reference[1:] - point[1:])) - _volume(shared, reference[1:])
        total += float(reference[0] - point[0]) * own
    return total


FEWEST = 3  # of two points neither is a compromise


def knee(values: Floats) -> int | None:
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
