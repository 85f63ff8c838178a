"""The smallest time per batch: branch and bound over limits on the work of a stage.

A box fixes the models, the data-parallel degree and the depth, and holds all plans whose largest forward,
backward ... works lie between a lower and an upper corner. The dynamic program tells whether a plan stays below
the upper corner, and finds the one of fewest devices; the time of the lower corner bounds all plans of the box.
Works take finitely many values, so that halving ends: the answer is exact.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.general.degree import Degree
from phaze.solvers.placement.general.fewest import PlacedStage
from phaze.solvers.placement.general.pipeline import Pipeline
from phaze.solvers.placement.general.table import TIE


@dataclass(frozen=True)
class Found:
    """A plan: its time, what it uses, and its stages with their options (numbers in the degree's table)."""

    time_s: float
    devices: int
    stages: int
    degree: Degree
    plan: tuple[PlacedStage, ...]
    options: tuple[int, ...]

    @property
    def preference(self) -> tuple[int, int, int]:
        """Among equal times the smallest one is best."""
        return self.devices, self.stages, self.degree.data_parallel


@dataclass(frozen=True)
class _Box:
    """Plans of one degree and depth; corners are (kinds,)."""

    degree: Degree
    line: Pipeline
    lower: Floats
    upper: Floats

    @property
    def depth(self) -> int:
        """Stages on the longest path."""
        return len(self.line.held)

    @property
    def empty(self) -> bool:
        """No work lies between the corners."""
        return bool((self.lower > self.upper * (1 + TIE)).any())

    def halves(self) -> Iterator[_Box]:
        """Two boxes that hold the same plans, the one of less work first; a half without plans is left out."""
        gaps = (self.upper - self.lower) * self.line.weights.max(axis=0)
        gaps[self.upper <= self.lower * (1 + 4 * TIE)] = 0.0
        kind = int(gaps.argmax())
        if not gaps[kind]:
            return
        values = self.degree.table.work[kind][self.degree.deepest(self.line) > 0]
        middle = (self.lower[kind] + self.upper[kind]) / 2 * (1 + TIE)
        below, above = values[values <= middle], values[values > middle]
        if below.size and below.max() >= self.lower[kind]:
            yield replace(self, upper=_replaced(self.upper, kind, below.max()))
        if above.size and above.min() <= self.upper[kind] * (1 + TIE):
            yield replace(self, lower=_replaced(self.lower, kind, above.min()))


def _replaced(corner: Floats, kind: int, value: float) -> Floats:
    changed = corner.copy()
    changed[kind] = value
    return changed


class Search:
    """Best-first search over degrees and boxes; `best` is the plan so far."""

    def __init__(self, degrees: Iterable[Iterator[Degree]]) -> None:
        """Queue the first of each row of degrees; a row is in order of the bounds."""
        self.best: Found | None = None
        self._order = count()
        self._queue: list[tuple[float, int, _Box | tuple[Degree, Iterator[Degree]]]] = []
        for row in degrees:
            self._push_next(row)

    def run(self) -> Found | None:
        """The plan of least time, then fewest devices, then fewest stages, then smallest degree."""
        while self._queue:
            bound_s, _, item = heapq.heappop(self._queue)
            if bound_s > self._cutoff_s:
                break
            if isinstance(item, _Box):
                self._explore(item)
            else:
                degree, following = item
                self._open(degree)
                self._push_next(following)
        return self.best

    @property
    def _cutoff_s(self) -> float:
        """A slower plan is worse than the best one, a faster one better or as good."""
        return self._best_s * (1 + TIE)

    @property
    def _best_s(self) -> float:
        return math.inf if self.best is None else self.best.time_s

    def _push(self, box: _Box) -> None:
        heapq.heappush(self._queue, (box.line.seconds(box.lower), next(self._order), box))

    def _push_next(self, row: Iterator[Degree]) -> None:
        """Queue the next degree of a row, the rest behind it."""
        for degree in row:
            bounds = [degree.line(depth).seconds(degree.least_work(depth)) for depth in degree.depths]
            if bounds:
                heapq.heappush(self._queue, (min(bounds), next(self._order), (degree, row)))
                return

    def _open(self, degree: Degree) -> None:
        """Queue a box for every depth that a pipeline can have within the best time."""
        boxes = [self._box(degree, depth) for depth in degree.depths]
        boxes = [box for box in boxes if not box.empty]
        if boxes and degree.held_by_depth:
            # One run for all depths: their stages hold the same numbers of microbatches.
            upper = np.max([box.upper for box in boxes], axis=0)
            pipelines = degree.pipelines(boxes[-1].line, upper)
            boxes = [box for box in boxes if pipelines.fewest(box.depth) is not None]
        for box in boxes:
            self._push(box)

    def _box(self, degree: Degree, depth: int) -> _Box:
        line = degree.line(depth)
        lower = degree.least_work(depth)
        most = degree.table.work.max(axis=(1, 2), initial=0.0)
        return self._clipped(_Box(degree, line, lower, np.maximum(most, lower)))

    def _clipped(self, box: _Box) -> _Box:
        """The box without plans that are slower than the best one."""
        room_s = self._cutoff_s - box.line.seconds(box.lower)
        return replace(box, upper=np.minimum(box.upper, box.lower + room_s / box.line.least_weight))

    def _explore(self, box: _Box) -> None:
        """Find a plan in a box, and halve the box unless it is empty or all its plans are as good as the best."""
        box = self._clipped(box)
        if box.empty:
            return
        pipelines = box.degree.pipelines(box.line, box.upper)
        if pipelines.fewest(box.depth) is None:
            return
        self._consider(box, box.degree.tightened(pipelines.plan(box.depth)))
        fastest_s, slowest_s = box.line.seconds(box.lower), box.line.seconds(box.upper)
        if fastest_s < self._best_s * (1 - TIE) or slowest_s > self._cutoff_s:
            for half in box.halves():
                self._push(half)

    def _consider(self, box: _Box, plan: tuple[PlacedStage, ...]) -> None:
        line = box.degree.line(max(placed.depth for placed in plan))
        options = box.degree.options(plan, line, box.upper)
        work = box.degree.table.work[:, options, [placed.stage for placed in plan]]
        time_s = line.seconds(work.max(axis=1))
        classes = box.degree.table.classes
        devices = sum(classes[placed.device_class].devices for placed in plan)
        total = box.degree.data_parallel * devices // box.degree.problem.virtual_stages
        found = Found(time_s, total, len(plan), box.degree, plan, tuple(options))
        if (
            self.best is None
            or time_s < self._best_s * (1 - TIE)
            or (time_s <= self._cutoff_s and found.preference < self.best.preference)
        ):
            self.best = found
