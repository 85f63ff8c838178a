"""Exact hypervolume: how much of the space below a reference point a frontier dominates.

By exclusive volumes, as WFG does (While, Bradstreet, Barone, IEEE Trans. Evol. Comput. 16(1), 2012): a point adds
to those before it its own box without the volume of the others cut down to that box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.explore.archive import nondominated

FloatArray = NDArray[np.float64]


def hypervolume(values: FloatArray, reference: FloatArray) -> float:
    """Volume between points (n, k), every column to be minimised, and a reference point (k,).

    In the product of the columns' units; points that are not better than the reference everywhere add nothing.
    """
    inside = values[(values < reference).all(axis=1)]
    return _volume(_front(inside), reference)


def _front(values: FloatArray) -> FloatArray:
    """The non-dominated points, equal ones once, by rising first column."""
    distinct: FloatArray = np.unique(values, axis=0)
    return distinct[nondominated(distinct)]


def _volume(front: FloatArray, reference: FloatArray) -> float:
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
