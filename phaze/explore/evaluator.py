"""One evaluator for every strategy: bounds and exact values of points, for a table of architectures.

A point is an architecture with a microbatch size, a tensor-parallel width, a recompute choice and a recipe of linear
layers; data and pipeline degrees, stage cuts and operator schedules are optimised inside it (definitions: search).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.digest import digest
from phaze.explore.costed import Costed
from phaze.explore.points import PointBounds
from phaze.explore.setting import Setting
from phaze.placement.plan import Plan
from phaze.placement.planner import Planner
from phaze.scheduling.layers import LayerTimes
from phaze.scheduling.passes import Effort

__all__ = ["Evaluator", "PointBounds", "Setting"]

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
RECHECK = 64


class Evaluator(Costed):
    """Evaluates points of one task on one table of architectures."""

    @property
    def plans_each(self) -> int | None:
        """Plans of a space of plans that every architecture has; None where there is no such space."""
        return None

    def work_s(self, setting: Setting) -> tuple[FloatArray, FloatArray]:
        """Cheap lower bounds on the forward and backward time of all layers together, (A,) each."""
        return self.timed(setting).work(np.arange(len(self.table)))

    def work_bound(self, setting: Setting, work_s: tuple[FloatArray, FloatArray]) -> FloatArray:
        """The cheapest lower bound on the iteration time, (A,) seconds, from `work_s` of the setting's chain.

        It is at most `quick_bound` (rounding aside), and infinite in the same places.
        """
        forward_s, backward_s = work_s
        every = np.arange(len(self.table))
        seconds = self._by_capacity(setting, every, lambda p, at: p.work_bound(forward_s[at], backward_s[at]))
        return np.where(self.takes(setting), seconds, np.inf)

    def quick_bound(self, setting: Setting, rows: Rows, give_up_s: FloatArray | None = None) -> FloatArray:
        """A cheap lower bound on the iteration time, (A,) seconds; infinite where memory or formats do not fit.

        It need not be tight where it is not below `give_up_s` (A,).
        """
        del give_up_s
        times = self.timed(setting).least(rows)
        seconds = self._by_capacity(
            setting, rows, lambda p, at: p.quick_bound(times.take(at), self.rates.take(rows[at]))
        )
        return np.where(self.takes(setting)[rows], seconds, np.inf)

    def path_bound(self, setting: Setting, rows: Rows) -> FloatArray:
        """What all points are screened by, (A,) seconds: at most `quick_bound`, where that is dear; else the same."""
        return self.quick_bound(setting, rows)

    def bounds(self, setting: Setting, rows: Rows, give_up_s: FloatArray) -> PointBounds:
        """Bounds on the iteration time from schedule bounds per layer and the exact partition of each.

        Infinite where the point cannot get below `give_up_s` (A,).
        """
        bounds = PointBounds.none(len(rows))
        at = np.flatnonzero(self._hopeful(setting, rows, give_up_s))
        if len(at):
            times = self.timed(setting).bands(rows[at])
            bounds.put(at, self._place(setting, rows[at], times, give_up_s[at]))
        return bounds

    def _hopeful(self, setting: Setting, rows: Rows, give_up_s: FloatArray) -> NDArray[np.bool_]:
        """Whether the least times of the layers, and bounds on their placement, leave it open to beat `give_up_s`."""
        times = self.timed(setting).least(rows)
        hopeful = self._by_capacity(
            setting, rows, lambda p, at: p.hopeful(times.take(at), self.rates.take(rows[at]), give_up_s[at])
        )
        return hopeful > 0

    def _by_capacity(
        self, setting: Setting, rows: Rows, find: Callable[[Planner, Rows], NDArray[Any]]
    ) -> FloatArray:
        """One figure per architecture, (A,), by the planner of its memory; `find` is given positions in `rows`."""
        found = np.empty(len(rows))
        for capacity, at in self.capacities(rows):
            found[at] = find(self.planner(setting, capacity), at)
        return found

    def exact(self, setting: Setting, rows: Rows, give_up_s: FloatArray, effort: Effort) -> PointBounds:
        """The same from exact schedules; the bounds are equal unless the effort ran out.

        The most uncertain passes are scheduled first; architectures that then cannot get below their
        `give_up_s` any more are let go without scheduling the rest.
        """
        timed = self.timed(setting)
        times = timed.bands(rows)
        alive, solved = np.arange(len(rows)), 0
        for which in timed.open_passes(*times):
            solved += timed.narrow(which, rows, times, alive, effort)
            if solved >= RECHECK:
                hopeful = self._iteration_s(setting, rows[alive], times[0].take(alive), give_up_s[alive])
                alive, solved = alive[np.isfinite(hopeful)], 0
        left = times[0].take(alive), times[1].take(alive)
        bounds = PointBounds.none(len(rows))
        bounds.put(alive, self._place(setting, rows[alive], left, give_up_s[alive]))
        return bounds

    def _iteration_s(
        self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray
    ) -> FloatArray:
        """The least iteration time for these layer times, (A,)."""
        given, shape = (times, give_up_s), (len(rows),)
        return self._recalled(
            "iteration", setting, rows, given, shape, lambda: self._least_s(setting, rows, *given)
        )

    def _least_s(self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray) -> FloatArray:
        return self._by_capacity(
            setting,
            rows,
            lambda p, at: p.iteration_s(times.take(at), self.rates.take(rows[at]), give_up_s[at])[0],
        )

    def _place(
        self, setting: Setting, rows: Rows, times: tuple[LayerTimes, LayerTimes], give_up_s: FloatArray
    ) -> PointBounds:
        """Bounds on the iteration time from (lower, upper) layer times."""
        given, shape = (times, give_up_s), (2, len(rows))
        low, high = self._recalled(
            "place", setting, rows, given, shape, lambda: self._placed(setting, rows, *given)
        )
        return PointBounds(low, high)

    def _recalled(
        self,
        what: str,
        setting: Setting,
        rows: Rows,
        given: object,
        shape: tuple[int, ...],
        work_out: Callable[[], FloatArray],
    ) -> FloatArray:
        """Figures of placements that depend on `given`, the setting and the architectures alone."""
        if self.recall is None:
            return work_out()
        chain, hardware = self.timed(setting).content, (self.capacity_bytes[rows], self.rates.take(rows))
        key = digest(what, chain, self._rules, setting.recompute, hardware, given)
        return self.recall.array(key, shape, work_out)

    @cached_property
    def content(self) -> str:
        """Digest of everything but the architectures that values of points depend on."""
        return digest(self._rules, [(setting, self.timed(setting).content) for setting in self.settings])

    @cached_property
    def _rules(self) -> str:
        """Digest of what placements depend on beside the chain and the architectures."""
        return digest(self.task.workload.numerics, self.task.cluster, self.task.fixed)

    def _placed(
        self, setting: Setting, rows: Rows, times: tuple[LayerTimes, LayerTimes], give_up_s: FloatArray
    ) -> FloatArray:
        lower, upper = times
        low, high = np.empty(len(rows)), np.empty(len(rows))
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            low[at], choice = planner.iteration_s(lower.take(at), rates, give_up_s[at])
            high[at] = low[at]
            open_ = np.flatnonzero(lower.take(at).differs(upper.take(at)) & (choice >= 0))
            if len(open_):
                open_times = upper.take(at[open_])
                high[at[open_]] = planner.value(open_times, rates.take(open_), choice[open_])
        return np.stack([low, high])

    def plans(self, setting: Setting, rows: Rows, known_s: FloatArray, effort: Effort) -> list[Plan | None]:
        """The best plan of each architecture in one setting, with its stages; None where nothing fits.

        `known_s` (A,): iteration times that are known to be reached (infinite: nothing is known).
        """
        plans = self._plans(setting, rows, known_s * (1 + 1e-9), effort)
        # What is known may come from schedules that were searched for longer, perhaps in another process.
        longer = Effort(effort.left_s)
        for limit_s, spent in ((known_s * (1 + 1e-9), longer), (np.full(len(rows), np.inf), effort)):
            left = np.flatnonzero([plan is None for plan in plans] & np.isfinite(known_s))
            if not len(left):
                break
            for i, plan in zip(left, self._plans(setting, rows[left], limit_s[left], spent), strict=True):
                plans[i] = plan
        return plans

    def _plans(self, setting: Setting, rows: Rows, limit_s: FloatArray, effort: Effort) -> list[Plan | None]:
        """The best plan of each architecture; None where nothing fits or gets below `limit_s` (A,)."""
        _, times = self.timed(setting).exact(rows, effort)
        plans: list[Plan | None] = [None] * len(rows)
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            for i, plan in zip(at, planner.plans(times.take(at), rates, limit_s[at]), strict=True):
                plans[i] = plan
        return plans
