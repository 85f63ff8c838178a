"""The fastest plan of each of many architectures of one memory capacity and one link bandwidth, exact.

Plans of one shape of layers are looked at for all architectures side by side, those first that promise most to
most of them: bounds of all that fit into the memory, then pipelines simulated. It is the model of `Estimator`: what
differs is the axis of architectures.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import numpy as np

from phaze.arrays import Floats, Integers, Rows
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_batches.cut_pipelines import CutPipeline, FittedPlan, GroupTimes
from phaze.parallel.plan_batches.plan_columns import PlanColumns
from phaze.parallel.plan_batches.plan_outline import PlanOutline, PlanTier, plan_tiers
from phaze.parallel.plan_batches.plan_table import PlanTable
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.scheduling.effort import ENDLESS, LimitsOver, SolveLimits
from phaze.scheduling.passes import NEVER_S

T = TypeVar("T")
_AT_ONCE = 2048  # architectures that are bounded together


@dataclass
class FastestTally:
    """Work of a search: plans whose pipelines were simulated, once for every architecture."""

    simulated: int = 0


@dataclass(frozen=True)
class FastestPlans:
    """All plans of one shape on architectures of one capacity and link bandwidth; what they share is kept.

    `probes` tells terms (3 K + 2, P), as of `GroupTimes`, of some architectures, the same for all capacities: bounds of
    what fits are made of what is longest there. `found`: plans that were simulated.
    """

    options: ShapeOptions
    capacity_bytes: float
    link_bytes_per_s: float
    probes: Callable[[], Floats]
    tally: FastestTally = field(default_factory=FastestTally)
    found: list[FittedPlan] = field(default_factory=list)
    _kept: dict[Any, Any] = field(default_factory=dict)

    # -- the search ------------------------------------------------------------------------------------------

    def best(
        self, times: GroupTimes, give_up_s: Floats, limits: SolveLimits = ENDLESS.ends
    ) -> tuple[Floats, Integers]:
        """Least seconds of an iteration (A,), and the plan that takes them by its place in `found`.

        Infinite, with -1, where nothing fits or `give_up_s` (A,) is not beaten. Of plans that take equally long
        the first one. Raises LimitsOver where the limits are over before.
        """
        best, choice = give_up_s.copy(), np.full(len(times), -1, dtype=np.int64)
        for number, tier in enumerate(self.tiers):
            open_ = np.flatnonzero(_least_s(tier.outline, times) < best)
            if len(open_):
                self._improve(number, times, open_, best, choice, limits)
        return np.where(choice != -1, best, inf), choice

    def rough_bound_s(self, times: GroupTimes, give_up_s: Floats) -> Floats:
        """Lower bound of the seconds of an iteration (A,); something no less than `give_up_s` (A,) where it is no less.

        That of `bound_s` where it is less.
        """
        order, found = np.argsort(give_up_s, kind="stable"), np.full(len(times), inf)
        for number, tier in enumerate(self.tiers):
            bound = _least_s(tier.outline, times)
            left = order[bound[order] < np.minimum(found, give_up_s)[order]]
            for start in range(0, len(left), _AT_ONCE):
                rows = left[start : start + _AT_ONCE]
                least = self.columns(number).least_below(times.terms[:, rows], float(give_up_s[rows[-1]]))
                bound[rows] = np.maximum(bound[rows], least)
            np.minimum(found, bound, out=found)
        return found

    def bound_s(self, times: GroupTimes, give_up_s: Floats, limits: SolveLimits = ENDLESS.ends) -> Floats:
        """Lower bound of the seconds of an iteration (A,), from bounds of all that fits; infinite where nothing does.

        Where even the work alone does not get below `give_up_s` (A,), bounds of that; the same of all plans that come
        after the limits.
        """
        found = np.full(len(times), inf)
        for number, tier in enumerate(self.tiers):
            bound = _least_s(tier.outline, times)
            left = np.flatnonzero(bound < np.minimum(found, give_up_s))
            if len(left) and not limits.over:
                with suppress(LimitsOver):
                    known = self.columns(number, limits)
                    bound[left] = np.maximum(bound[left], _least_s(known, times.take(left)))
            np.minimum(found, bound, out=found)
        return found

    def value(self, times: GroupTimes, choice: Integers) -> Floats:
        """Seconds of an iteration of a given plan on each architecture, (A,); infinite where there is none."""
        seconds = np.full(len(times), inf)
        for number in np.unique(choice[choice >= 0]).tolist():
            rows = np.flatnonzero(choice == number)
            seconds[rows] = self.found[number].iteration_s(times.take(rows))
        return seconds

    # -- plans ------------------------------------------------------------------------------------------

    @property
    def tiers(self) -> tuple[PlanTier, ...]:
        """All plans, those first that promise most."""
        return self._for_all("tiers", lambda: plan_tiers(PlanTable.of(self.options, self.link_bytes_per_s)))

    def columns(self, tier: int, limits: SolveLimits = ENDLESS.ends) -> PlanColumns:
        """Columns of a tier that fit. Raises LimitsOver where the limits are over before they are known."""
        key = "columns", tier
        if key not in self._kept:
            sheet, probes = self.tiers[tier].sheet, self.probes()
            self._kept[key] = PlanColumns.of(sheet, self.capacity_bytes, probes, limits.look)
        found: PlanColumns = self._kept[key]
        return found

    def _for_all(self, name: str, work_out: Callable[[], T]) -> T:
        """Value that is worked out once for all capacities."""
        key, kept = (name, self.link_bytes_per_s), self.options.kept
        if key not in kept:
            kept[key] = work_out()
        found: T = kept[key]
        return found

    # -- steps -----------------------------------------------------------------------------------------------

    def _improve(
        self,
        tier: int,
        times: GroupTimes,
        at: Rows,
        best: Floats,
        choice: Integers,
        limits: SolveLimits,
    ) -> None:
        """The plans of a tier on the architectures at some rows; what is better takes its place."""
        queue = _Queue(self.columns(tier, limits).bounds_s(times.terms[:, at]), best[at])
        while (wanted := queue.wanted(best[at])) is not None:
            if limits.over:
                raise LimitsOver
            column, rows = wanted
            self._try(self._fitted(tier, column), times, at[rows], best, choice, limits)

    def _try(
        self,
        one: FittedPlan,
        times: GroupTimes,
        at: Rows,
        best: Floats,
        choice: Integers,
        limits: SolveLimits,
    ) -> None:
        """One plan on the architectures at some rows; where it is better than the best it takes its place."""
        seconds, simulated = one.iterations_within(times.take(at), best[at], limits.look)
        self.tally.simulated += simulated
        better = (seconds < best[at]) & (seconds < NEVER_S)
        for row in np.flatnonzero((seconds == best[at]) & (choice[at] >= 0)).tolist():
            better[row] = one.rank < self.found[int(choice[at[row]])].rank
        if better.any():
            best[at[better]], choice[at[better]] = seconds[better], self._place(one)

    def _place(self, one: FittedPlan) -> int:
        """The place of a plan among those that are found."""
        known: dict[ParallelPlan, int] = self._kept.setdefault("places", {})
        if one.plan not in known:
            known[one.plan] = len(self.found)
            self.found.append(one)
        return known[one.plan]

    def _fitted(self, tier: int, at: int) -> FittedPlan:
        """A plan that fits, by its column, to be simulated."""
        key = "fitted", tier, at
        if key not in self._kept:
            plan = self.columns(tier).plan(at)
            pipeline = CutPipeline.of(self.options, plan, self.link_bytes_per_s)
            self._kept[key] = FittedPlan(pipeline, plan)
        found: FittedPlan = self._kept[key]
        return found


def _least_s(known: PlanOutline | PlanColumns, times: GroupTimes) -> Floats:
    """The least bound of all plans that are known, (A,); infinite where there are none."""
    found = np.full(len(times), inf)
    for start in range(0, len(times) if len(known) else 0, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[part] = known.least_s(times.terms[:, part])
    return found


class _Queue:
    """Plans that fit by their columns, with bounds for every architecture, (n, A)."""

    def __init__(self, bounds_s: Floats, best: Floats) -> None:
        self._column = np.flatnonzero((bounds_s < best).any(axis=1))
        self._bounds_s = bounds_s[self._column]

    def wanted(self, best: Floats) -> tuple[int, Rows] | None:
        """Tier that most architectures which may find something better look at next, with all to which it matters.

        These are done with it.
        """
        open_ = self._bounds_s < best
        rows = np.flatnonzero(open_.any(axis=0))
        if not len(rows):
            return None
        number = int(np.bincount(self._bounds_s[:, rows].argmin(axis=0)).argmax())
        at = np.flatnonzero(open_[number])
        self._bounds_s[number, at] = inf
        return int(self._column[number]), at
