"""All plans of a space in the order of their bounds, which are worked out as far as they are asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_search.screened_plans import ScreenedPlans

_AT_LEAST = 32
"""Columns whose plans are bounded together."""

_SHARE = 4
"""Columns that were bounded for each one more that is bounded together, though the first may rule it out."""


class PlansInOrder:
    """Plans that wait, those of the least bound first, each times how much slower its pipeline is.

    Columns of pipelines in all their cuts are bounded only where what is known of them without cuts does not tell that
    others come first.
    """

    def __init__(self, plans: ScreenedPlans, slowdown: Callable[[ParallelPlan], float]) -> None:
        """No plan is bounded yet."""
        self._plans = plans
        self._slower = plans.figures(slowdown)
        least_s = plans.least_s * self._slower
        self._columns: Integers = np.argsort(least_s, kind="stable")
        self._least_s: Floats = least_s[self._columns]
        self._opened = 0
        self._bounds_s: Floats = np.zeros(0)
        self._places: Integers = np.zeros(0, dtype=np.int64)
        self.taken = 0

    def least_s(self, below: float) -> float:
        """The least bound of all that wait, or one that is as low and no less than `below`; infinite of none."""
        while self._closed_s < min(self._known_s, below):
            self._open(max(_AT_LEAST, self._opened // _SHARE))
        return min(self._known_s, self._closed_s)

    def take(self, most: int, below: float) -> list[int]:
        """Places of the first of those whose bounds are known and lower, one at least, that many at most."""
        most = min(most, max(int(np.searchsorted(self._bounds_s, below)), 1))
        places: list[int] = self._places[:most].tolist()
        self._bounds_s, self._places = self._bounds_s[most:], self._places[most:]
        self.taken += len(places)
        return places

    @property
    def _known_s(self) -> float:
        """The least bound that is known."""
        return float(self._bounds_s[0]) if len(self._bounds_s) else np.inf

    @property
    def _closed_s(self) -> float:
        """At least the bounds of columns that are not bounded."""
        return float(self._least_s[self._opened]) if self._opened < len(self._least_s) else np.inf

    def _open(self, count: int) -> None:
        """Bound the plans of more columns; equal ones are in the order of their places."""
        columns = np.sort(self._columns[self._opened : self._opened + count])
        self._opened += len(columns)
        bounds_s, places, own = self._plans.opened(columns)
        bounds_s = np.concatenate([self._bounds_s, bounds_s * self._slower[own]])
        places = np.concatenate([self._places, places])
        order = np.lexsort((places, bounds_s))
        self._bounds_s, self._places = bounds_s[order], places[order]
