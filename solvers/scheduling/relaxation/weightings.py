"""Weightings of operators and modes for the bounds of a search, from the linear relaxation of their modes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from ...arrays import Floats
from ..bounds import Bounds
from ..indexed import IndexedProblem
from .program import ModeProgram

LATER = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of the operators, those nearest to the end, that one weighting each is made for."""


def weightings(ix: IndexedProblem, bounds: Bounds) -> Floats:
    """Weights of every operator and mode (rows, O, M): one row for the problem, more for its later parts.

    What runs at one moment never weighs more than 1, so the least weight times duration of what is left, summed
    up, bounds the time left.
    """
    rank = np.argsort(np.argsort(bounds.tails, kind="stable"))
    return np.array([_weighting(ix, bounds, rank < share * ix.size) for share in LATER])


def _weighting(
    ix: IndexedProblem, bounds: Bounds, counted: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Floats:
    """The best weighting for some operators, as if all others took no time."""
    latency = tuple(
        row if counts else tuple(value if value == inf else 0.0 for value in row)
        for row, counts in zip(bounds.latency, counted.tolist(), strict=True)
    )
    mixed = ModeProgram(ix, replace(bounds, latency=latency), bounds.lower_s).mixed()
    return mixed.share
