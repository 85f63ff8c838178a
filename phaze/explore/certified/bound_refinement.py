"""From bounds to values: tighten the most promising points first, then evaluate what is still of interest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.certified.search_pieces import LEAST, BatchPiece, SearchContext
from phaze.explore.certified.search_state import BoundStage, PointPool, Relevance, Undecided, urgency
from phaze.explore.evaluation.evaluator import PointBounds
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.request.search_resources import SearchResources
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING, FEW_STATES

BATCH, EXACT_BATCH = 1024, 256  # points tightened, and scheduled exactly, together


class Refinement:
    """Works on a pool of points until none is left, or time is over.

    `evaluated` and `reached` hold throughput per (candidate number, config number): exact values, and what
    plans reach whose points may have better ones; `columns` what is minimised, and the area, per candidate number.
    `fallen` counts the points that bounds ruled out. `holds_all`: set where no point of the space is left elsewhere.
    """

    def __init__(
        self,
        context: SearchContext,
        relevance: Relevance,
        undecided: Undecided,
        clock: Clock,
        progress: Progress,
        resources: SearchResources,
    ) -> None:
        """Optimistic values of points let go for the slack go to `undecided`."""
        self._context = context
        self._relevance = relevance
        self._undecided = undecided
        self._clock = clock
        self._progress = progress
        self._executor = resources.executor
        self._batch = float(context.task.cluster.global_batch)
        self._best = 0.0
        self.holds_all = False
        self.pool = PointPool.empty()
        self.fallen: Counter[str] = Counter()
        self.evaluated: dict[tuple[int, int], float] = {}
        self.reached: dict[tuple[int, int], float] = {}
        self.columns: dict[int, tuple[list[float], float]] = {}

    def take_in(self, pools: Iterable[PointPool]) -> None:
        """Add points to the pool."""
        self.pool = PointPool.join([p for p in (self.pool, *pools) if len(p)])
        self._drop()

    def tighten(self, most: int = 0) -> None:
        """Schedule bounds and exact partitions of them, until at most that many points are left, or all have them."""
        while len(self.pool) > most and not self._clock.over:
            if not len(at := self._most_promising(BoundStage.PATH, BATCH)):
                return
            self._advance(at, None, BoundStage.PLACEMENT)
            self._report("refining")

    def evaluate(self, most: int = 0) -> None:
        """Exact schedules, first with little effort, and exact partitions, until at most that many points are left."""
        for stage, states in ((BoundStage.PLACEMENT, FEW_STATES), (BoundStage.SEARCHED, math.inf)):
            effort = SolveLimits(self._clock.left, states)
            while len(self.pool) > most and not self._clock.over:
                if not len(at := self._most_promising(stage, EXACT_BATCH)):
                    break
                self._advance(at, effort, BoundStage.SEARCHED)
                self._report("evaluating")

    @property
    def told(self) -> str:
        """The best throughput that is reached, and, where no point waits elsewhere, what none can exceed."""
        if not self._best:
            return f"{len(self.pool):,} points in question"
        best = f"{_digits(self._best)} samples/s"
        if not self.holds_all:
            return f"best {best}"
        bound = max(self._best, float(self.pool.bound.max(initial=0.0)))
        return f"{best}, bound {_digits(bound)}, gap {100 * (bound / self._best - 1):.2g} %"

    # -- what comes next ----------------------------------------------------------------------------------

    def _most_promising(self, stage: BoundStage, most: int) -> Rows:
        """The most urgent points in the config that has the very most to gain: one config's share their costs."""
        at = np.flatnonzero(self.pool.stage == stage)
        if not len(at):
            return at
        points = self.pool.take(at)
        known = self._relevance.known.threshold(points.others)
        gain = np.where(known > 0, points.bound / np.where(known > 0, known, 1.0), np.inf)
        urgent = urgency(points.others, points.bound)
        top = np.flatnonzero(urgent == urgent.max())
        mine = np.flatnonzero(points.config == points.config[top[gain[top].argmax()]])
        order = mine[np.lexsort((-gain[mine], -urgent[mine]))]
        chosen: Rows = at[order[:most]]
        return chosen

    def _drop(self) -> None:
        """Let go of points that cannot matter any more, and count where they fell."""
        pool = self.pool
        if not len(pool):
            return
        keep = self._relevance.matters(pool.others, pool.bound)
        if keep.all():
            return
        fell, near = ~keep, self._relevance.near(pool.others, pool.bound)
        self._undecided.add(pool.others[near], pool.bound[near])
        low = fell & (pool.bound < self._relevance.floor)
        early = int((pool.stage[fell & ~low] == BoundStage.PATH).sum())
        self.fallen["floor"] += int(low.sum())
        self.fallen["critical_path"] += early
        self.fallen["placement"] += int(fell.sum() - low.sum()) - early
        self.pool = pool.take(keep)

    # -- batches ------------------------------------------------------------------------------------------

    def _advance(self, at: Rows, effort: SolveLimits | None, stage: BoundStage) -> None:
        """Tighten a batch, or evaluate it with some effort, and take over what that finds out."""
        met = self._settle(at, self._found(at, effort), stage)
        if met.any():
            left = np.ones(len(self.pool), dtype=np.bool_)
            left[at[met]] = False
            self.pool = self.pool.take(left)
        self._drop()

    def _settle(self, at: Rows, found: PointBounds, stage: BoundStage) -> NDArray[np.bool_]:
        """Whether the bounds of a batch meet, so that its points are evaluated; plans in reach become known."""
        pool = self.pool
        pool.bound[at] = np.minimum(pool.bound[at], self._batch / found.lower_s * (1 + BOUND_ROUNDING))
        # A point that was searched twice and is still open has run out of time: it stays open.
        pool.stage[at] = np.where(pool.stage[at] >= stage, BoundStage.EXHAUSTED, stage)
        met = np.asarray(np.isfinite(found.upper_s) & (found.lower_s == found.upper_s))
        self._learn(pool.take(at), found.upper_s, met)
        return met

    def _learn(self, points: PointPool, upper_s: Floats, met: NDArray[np.bool_]) -> None:
        """Remember throughput that is reached."""
        for i in np.flatnonzero(np.isfinite(upper_s)):
            number, throughput = int(points.number[i]), self._batch / float(upper_s[i])
            into = self.evaluated if met[i] else self.reached
            into[number, int(points.config[i])] = throughput
            others, area = points.others[i].tolist(), float(points.area_mm2[i])
            self.columns[number] = others, area
            if throughput >= self._relevance.floor:
                self._best = max(self._best, throughput)
                self._relevance.known.add(others, throughput, (area, number))

    def _found(self, at: Rows, effort: SolveLimits | None) -> PointBounds:
        """Bounds of a batch of one config, by as many workers as it is worth."""
        points = self.pool.take(at)
        batch = BatchPiece(points.number, int(points.config[0]), self._give_up_s(points), effort)
        if min(self._executor.workers, len(at) // LEAST) < 2:
            return batch.on(self._context)
        parts = list(batch.divided(self._executor.workers))
        bounds = PointBounds(np.empty(len(at)), np.empty(len(at)))
        found = self._executor.map(self._context, [piece for _, piece in parts])
        for (rows, _), part in zip(parts, found, strict=True):
            bounds.lower_s[rows], bounds.upper_s[rows] = part.lower_s, part.upper_s
        return bounds

    def _give_up_s(self, points: PointPool) -> Floats:
        """Iteration time above which a point is dominated by what is known."""
        known = np.maximum(self._relevance.known.threshold(points.others), self._relevance.floor)
        return np.where(
            known > 0, self._batch / np.where(known > 0, known, 1.0) * (1 + BOUND_ROUNDING), np.inf
        )

    def _report(self, what: str) -> None:
        done = len(self.evaluated)
        self._progress.update(what, done, done + len(self.pool), self.told)


def _digits(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
