"""From bounds to values: tighten the most promising points first, then evaluate what is still of interest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Rows
from phaze.explore.certified.search_pieces import Looked
from phaze.explore.certified.search_points import SearchPoints
from phaze.explore.certified.search_state import (
    BoundStage,
    Point,
    PointPool,
    Reached,
    Relevance,
    Undecided,
    by_urgency,
    urgency,
)
from phaze.explore.frontier.search_axes import maximised
from phaze.explore.request.search_progress import Clock, Progress
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING, FEW_STATES, PASS_STATES, POINT_STATES, SETTLED_STATES

STEPS = {
    BoundStage.PLACEMENT: FEW_STATES,
    BoundStage.SEARCHED: PASS_STATES,
    BoundStage.LONGER: SETTLED_STATES,
    BoundStage.LONG: math.inf,
}
"""States of one schedule that points of a stage may take: all points take a step before one takes the next, so that
one wide layer does not take all of the time."""

WORTH_BATCH = 128
"""Points of one config that are tightened together while others are still to come: fewer wait for more."""

BATCHES = 64
"""Batches that all points of a large pool are: each looks for its points among all of them."""

LEADING = 32
"""Points that promise more than is reached whose schedules are searched together: one may rule out others."""


class Refinement:
    """Works on a pool of points until none is left, or time is over.

    `evaluated` and `reached` hold what plans reach, by candidate number and config number: that of points that have
    none better, and of others. `fallen` counts the points that bounds ruled out. `holds_all`: set where no point of
    the space is left elsewhere.
    """

    def __init__(
        self,
        points: SearchPoints,
        relevance: Relevance,
        undecided: Undecided,
        clock: Clock,
        progress: Progress,
    ) -> None:
        """Optimistic values of points let go for the slack go to `undecided`."""
        self._points = points
        self._relevance = relevance
        self._undecided = undecided
        self._clock = clock
        self._progress = progress
        self._best = 0.0
        self._learnt: list[Reached] = []
        self._least = 1
        self.holds_all = False
        self.pool = PointPool.empty()
        self.fallen: Counter[str] = Counter()
        self.evaluated: dict[Point, Reached] = {}
        self.reached: dict[Point, Reached] = {}

    def take_in(self, pools: Iterable[PointPool]) -> None:
        """Add points to the pool, where they stand in an order that tells soon which of them are urgent."""
        if not (new := [p for p in pools if len(p)]):
            return
        self.pool = pool = PointPool.join([p for p in (self.pool, *new) if len(p)])
        if self._clock.over:
            return  # nothing is taken out of it any more
        self.pool = pool.take(by_urgency(pool.others, pool.bound))
        self._let_go(np.ones(len(pool), dtype=np.bool_), np.arange(len(pool)))

    def tighten(self, most: int = 0, *, early: bool = False) -> None:
        """Schedule bounds and exact partitions of them, until at most that many points are left, or all have them.

        `early`: no longer than half of the time, as others are still to come.
        """
        self._least = WORTH_BATCH if early else 1
        while len(self.pool) > most and not (self._clock.half_over if early else self._clock.over):
            if not len(at := self._first_rows()):
                return
            self._points.foresee(self._first_in)
            self._advance(at, BoundStage.PATH)
            self._report("refining")

    def evaluate(self, most: int = 0) -> None:
        """Exact schedules, first with little effort, and exact partitions, until at most that many points are left."""
        for stage in STEPS:
            while len(self.pool) > most and not self._clock.over:
                if not len(at := self._most_promising(stage, self._points.exact_batch)):
                    break
                self._advance(at, stage)
                self._report("evaluating")

    def lead(self) -> None:
        """Both for points that promise more than is reached, those that promise most first, all but the last step.

        They decide the gap, and nothing but a better design rules them out.
        """
        while not self._clock.over:
            ahead = np.flatnonzero((self.pool.bound > self._best) & (self.pool.stage < BoundStage.LONG))
            if not len(ahead):
                return
            first = ahead[self.pool.bound[ahead].argmax()]
            stage = BoundStage(int(self.pool.stage[first]))
            alike = (self.pool.stage == stage) & (self.pool.config == self.pool.config[first])
            at = ahead[alike[ahead]]
            most = self._at_once if stage == BoundStage.PATH else LEADING
            self._advance(at[np.argsort(-self.pool.bound[at], kind="stable")[:most]], stage)
            self._report("refining" if stage == BoundStage.PATH else "evaluating")

    @property
    def told(self) -> str:
        """The best that is reached, and, where no point waits elsewhere, what none can exceed."""
        if not self._best:
            return f"{len(self.pool):,} points in question" if len(self.pool) else "the first designs"
        leader = self._points.axes.leader
        best = f"{_digits(maximised(leader, self._best))} {leader.unit}".strip()
        if not self.holds_all:
            return f"best {best}"
        bound = max(self._best, float(self.pool.bound.max(initial=0.0)))
        return (
            f"{best}, bound {_digits(maximised(leader, bound))}, gap {100 * (bound / self._best - 1):.2g} %"
        )

    # -- what comes next ----------------------------------------------------------------------------------

    @property
    def _at_once(self) -> int:
        """Points that are tightened together: more where so many wait that finding them takes longer."""
        return max(self._points.batch, len(self.pool) // BATCHES)

    def _first_in(self, configs: Flags) -> PointPool:
        """What `tighten` takes first of points in some configs, (configs,)."""
        return self.pool.take(self._first_rows(configs))

    def _first_rows(self, configs: Flags | None = None) -> Rows:
        """Positions of what `tighten` takes first, of points in some configs, (configs,), where these are given.

        Points that are not tightened stand in the order in which `take_in` put them: nothing is sorted.
        """
        pool, most = self.pool, self._at_once
        waiting = pool.stage == BoundStage.PATH
        if configs is not None:
            waiting &= configs[pool.config]
        if self._least > 1:
            count = np.bincount(pool.config[waiting], minlength=self._points.configs)
            waiting &= (count >= self._least)[pool.config]
        if pool.others.shape[1] != 1:
            return self._most_promising_of(np.flatnonzero(waiting), most)
        hoped = np.maximum.accumulate(np.where(waiting, pool.bound, 0.0))
        top = np.flatnonzero(waiting & (pool.bound == hoped))
        if not len(top):
            return top
        mine = np.flatnonzero(waiting & (pool.config == pool.config[top[self._gain(top).argmax()]]))
        first: Rows = mine[np.lexsort((-self._gain(mine), -(pool.bound[mine] / hoped[mine])))[:most]]
        return first

    def _most_promising(self, stage: BoundStage, most: int) -> Rows:
        """The most urgent points in the config that has the very most to gain: one config's share their costs."""
        return self._most_promising_of(np.flatnonzero(self.pool.stage == stage), most)

    def _most_promising_of(self, at: Rows, most: int) -> Rows:
        """The same of some of the points."""
        if not len(at):
            return at
        urgent, config = urgency(self.pool.others[at], self.pool.bound[at]), self.pool.config[at]
        top = np.flatnonzero(urgent == urgent.max())
        mine = np.flatnonzero(config == config[top[self._gain(at[top]).argmax()]])
        order = mine[np.lexsort((-self._gain(at[mine]), -urgent[mine]))]
        chosen: Rows = at[order[:most]]
        return chosen

    def _gain(self, at: Rows) -> Floats:
        """How many times what is known points of the pool promise, (A,)."""
        bound, known = self.pool.bound[at], self._relevance.known.threshold(self.pool.others[at])
        return np.where(known > 0, bound / np.where(known > 0, known, 1.0), np.inf)

    def _let_go(self, keep: Flags, at: Rows) -> None:
        """Let go of points that are not to be kept, (N,), and of those that cannot matter any more: these are counted.

        `at`: the points that may have fallen since the last time, beside those that what is reached since rules out.
        """
        pool, rows = self.pool, at[keep[at]]
        if self._learnt:
            may = keep & self._behind_what_is_learnt()
            may[rows] = True
            rows, self._learnt = np.flatnonzero(may), []
        others, bound = pool.others[rows], pool.bound[rows]
        fell = ~self._relevance.matters(others, bound)
        if fell.any():
            near = self._relevance.near(others, bound)
            self._undecided.add(others[near], bound[near])
            self._count(bound[fell], pool.stage[rows[fell]])
            keep[rows[fell]] = False
        if not keep.all():
            self.pool = pool.take(keep)

    def _behind_what_is_learnt(self) -> Flags:
        """Points of the pool that what was learnt may rule out: no better anywhere than the best of it, (N,)."""
        least = np.min([one.others for one in self._learnt], axis=0)
        lead = max(one.lead for one in self._learnt) * self._relevance.slack * (1 + BOUND_ROUNDING)
        found = self.pool.bound <= lead
        for column, value in zip(self.pool.others.T, least.tolist(), strict=True):
            found &= column >= value
        return found

    def _count(self, bound: Floats, stage: NDArray[np.int8]) -> None:
        """Count points that cannot matter where they fell."""
        low = bound < 0
        early = int((stage[~low] == BoundStage.PATH).sum())
        self.fallen["floor"] += int(low.sum())
        self.fallen["critical_path"] += early
        self.fallen["placement"] += len(bound) - int(low.sum()) - early

    # -- batches ------------------------------------------------------------------------------------------

    def _advance(self, at: Rows, stage: BoundStage) -> None:
        """Tighten a batch of points of a stage, or evaluate it, and take over what that finds out."""
        effort = SolveLimits(self._clock.left, STEPS[stage]) if stage in STEPS else None
        met = self._settle(at, self._points.look(self.pool.take(at), self._relevance, effort), stage)
        keep = np.ones(len(self.pool), dtype=np.bool_)
        keep[at[met]] = False
        self._let_go(keep, at)

    def _settle(self, at: Rows, found: Looked, stage: BoundStage) -> Flags:
        """Whether the bounds of a batch meet, so that its points are evaluated; plans in reach become known."""
        pool = self.pool
        pool.bound[at] = np.minimum(pool.bound[at], found.lead)
        pool.others[at] = np.maximum(pool.others[at], found.others)
        pool.stage[at] = stage + 1  # past the last step it has run out of time, and stays open
        found = self._with_plans(pool.take(at), found)
        self._learn(pool.take(at), found)
        return found.met

    def _with_plans(self, points: PointPool, found: Looked) -> Looked:
        """The same with what only plans tell of points whose bounds meet; those that cannot matter fall."""
        if not self._points.asks_plans:
            return found
        met = found.met & self._relevance.matters(points.others, points.bound)
        reached = np.zeros_like(found.reached[0]), np.zeros_like(found.reached[1])
        if met.any():
            at = np.flatnonzero(met)
            effort = SolveLimits(self._clock.left, POINT_STATES)
            reached[0][at], reached[1][at] = self._points.measured(points.take(at), found.value[at], effort)
        return replace(found, met=met & (reached[1] != 0), reached=reached)

    def _learn(self, points: PointPool, found: Looked) -> None:
        """Remember what is reached."""
        others, lead = found.reached
        for i in np.flatnonzero(lead != 0).tolist():
            point = int(points.number[i]), int(points.config[i])
            one = Reached(
                float(found.value[i]), float(lead[i]), tuple(others[i].tolist()), float(points.area_mm2[i])
            )
            (self.evaluated if found.met[i] else self.reached)[point] = one
            if one.lead > 0:
                self._best = max(self._best, one.lead)
                if self._relevance.known.add(one.others, one.lead, self._points.key(point, one)):
                    self._learnt.append(one)

    def _report(self, what: str) -> None:
        done = len(self.evaluated)
        self._progress.update(what, done, done + len(self.pool), self.told)


def _digits(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
