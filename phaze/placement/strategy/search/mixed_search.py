"""The best strategy of a shape on pipelines whose devices choose among some architectures, each its own.

Strategies are looked at in the order of bounds: of devices that have the best of every architecture. One that is looked
at is worked out for every architecture, with as few blocks recomputed on each device as its memory asks for; then
choices for all devices are simulated: each architecture on all of them, and, for every limit on what a device has to
do, the least power that keeps it. Cuts that no plan space names come from the program that chooses cuts and
architectures together (`mixed_cuts`). The best of all is improved device by device in the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.placement.strategy.search.mixed_cuts import Cutting, Line
from phaze.placement.strategy.search.mixed_pipeline import Architectures, MixedPipeline, mixed_pipelines
from phaze.placement.strategy.search.options import ROUNDING, ShapeOptions
from phaze.placement.strategy.search.outline import Tier, least_of_each_s
from phaze.placement.strategy.search.sheet import Sheet
from phaze.placement.strategy.strategy import Strategy, changed
from phaze.scheduling.passes import NEVER_S
from phaze.solvers.placement.mixed import Goal


@dataclass(frozen=True)
class MixedFound:
    """A strategy as it fits, and the architecture of every device of a pipeline, (p,).

    `value`: seconds of an iteration, or joules of a device where power counts.
    """

    strategy: Strategy
    rows: tuple[int, ...]
    iteration_s: float
    value: float


@dataclass
class MixedTally:
    """Strategies of the space with every cut that was made for them, and those that bounds did not rule out."""

    strategies: int = 0
    looked_at: int = 0


@dataclass(frozen=True)
class MixedSearch:
    """Strategies of one shape, tier by tier (as of `Across`), on devices of some architectures (K,).

    `most_s`: iterations that take longer are of no use. `over`: whether time is up.
    """

    options: ShapeOptions
    tiers: Sequence[Tier]
    architectures: Architectures
    goal: Goal
    most_s: float = inf
    over: Callable[[], bool] = lambda: False
    tally: MixedTally = field(default_factory=MixedTally)

    def best(self, first: Strategy | None = None, below: float = inf) -> MixedFound | None:
        """The best of all whose value is less than `below`; None where there is none, or time was up before.

        `first`: a strategy to begin with, whatever it recomputes.
        """
        best: MixedFound | None = None
        if first is not None and (own := self._better(self._whole(first), None, below)):
            best = self._improved(own)
        queue = self._queue()
        while queue and not self.over():
            bound, _, some = heapq.heappop(queue)
            if bound >= (below if best is None else best.value):
                break
            if isinstance(some, Line):
                for strategy in self._cut(some):
                    heapq.heappush(queue, (bound, self.tally.strategies, strategy))
                    self.tally.strategies += 1
            else:
                best = self._better(some, best, below)
        return None if best is None else self._improved(best)

    def least(self) -> float:
        """What no mixed pipeline of the shape is better than, for next to nothing."""
        least = (float(tier.outline.least_s(self._terms)[0]) for tier in self.tiers)
        seconds = min(least, default=inf)
        if seconds > self.most_s:
            return inf
        if self.goal is Goal.TIME:
            return seconds
        share = self.options.least_share * (1 - ROUNDING)
        return max(seconds * float(self.architectures.power_w.min()), share * self._joules)

    def _whole(self, strategy: Strategy) -> Strategy:
        """A strategy as the shape has it before anything is fitted."""
        shape = self.options.shape
        return replace(strategy, recompute=shape.recompute, recomputed=shape.recomputed)

    # -- in order of bounds ----------------------------------------------------------------------------------

    def _queue(self) -> list[tuple[float, int, Strategy | Line]]:
        """Every strategy of the shape by its bound, and every pipeline whose cuts are open."""
        found: list[tuple[float, int, Strategy | Line]] = []
        for tier in self.tiers:
            for bound, strategy in zip(self._bounds(tier.sheet).tolist(), tier.sheet.strategies, strict=True):
                found.append((bound, self.tally.strategies, strategy))
                self.tally.strategies += 1
        for place, line in enumerate(self.cutting.lines(self.goal)):
            found.append((line.bound, -1 - place, line))
        heapq.heapify(found)
        return found

    def _bounds(self, sheet: Sheet) -> Floats:
        """What no mixed pipeline of each strategy is better than, (S,)."""
        seconds: Floats = least_of_each_s(sheet, self._terms)[:, 0]
        seconds = np.where(seconds <= self.most_s, seconds, inf)
        if self.goal is Goal.TIME:
            return seconds
        stages = np.array([s.pipeline_parallel / s.schedule.weight_copies for s in sheet.strategies])
        shared = sheet.each / stages * self._joules * (1 - ROUNDING)
        found: Floats = np.maximum(seconds * self.architectures.power_w.min(), shared)
        return found

    @property
    def _terms(self) -> Floats:
        """The best that any of the architectures has of each term, (3 K + 2, 1)."""
        found: Floats = self.architectures.times.terms.min(axis=1)[:, None]
        return found

    @cached_property
    def _joules(self) -> float:
        """Of all passes of a microbatch, at the least: however devices differ, somebody does each, at its power."""
        chips, (_, kinds) = self.architectures, self.options.kinds
        rows = chips.times.rows[:, 0] + chips.times.rows[:, 2] + self.options.again * chips.times.rows[:, 1]
        return float((rows * chips.power_w[:, None]).min(axis=0)[kinds].sum())

    @cached_property
    def cutting(self) -> Cutting:
        """The program that chooses cuts and architectures together."""
        return Cutting(self.options, self.architectures)

    def _cut(self, line: Line) -> Iterator[Strategy]:
        """The strategies of a pipeline with the cut that suits these architectures, where the space has another."""
        stages = self.cutting.stages(line, self.goal, self.most_s)
        if not stages or stages in {s.stages for s in self.options.strategies(line.depth)}:
            return
        count = self.options.layouts.microbatches(line.pipeline)
        for one in self.options.space.schedules_of(line.pipeline, count):
            yield changed(one, stages=stages)

    # -- one strategy ----------------------------------------------------------------------------------------

    def _better(self, strategy: Strategy, best: MixedFound | None, below: float) -> MixedFound | None:
        """The best of what ranks may divide and which are neighbours under a strategy, or what was known."""
        self.tally.looked_at += 1
        for one in mixed_pipelines(self.options, strategy, self.architectures):
            choices = one.choices(self.goal)
            found = self._chosen(one, choices, below if best is None else best.value)
            best = found or best
        return best

    def _chosen(self, one: MixedPipeline, choices: Rows, below: float) -> MixedFound | None:
        """The best of some choices of architectures for the places of a pipeline, (N, places)."""
        if not len(choices):
            return None
        seconds = one.iteration_s(choices)
        values = np.where((seconds <= self.most_s) & (seconds < NEVER_S), seconds, inf)
        if self.goal is Goal.ENERGY:
            values = values * self.architectures.power_w[one.devices(choices)].mean(axis=1)
        at = int(values.argmin())
        if not values[at] < below:
            return None
        rows = one.devices(choices[at])
        return MixedFound(one.fitted(rows), tuple(rows.tolist()), float(seconds[at]), float(values[at]))

    def _improved(self, best: MixedFound) -> MixedFound:
        """The same with other architectures, one device after the other, until none is better."""
        strategy = self._whole(best.strategy)
        (one,) = (
            one
            for one in mixed_pipelines(self.options, strategy, self.architectures)
            if (one.strategy.zero, one.strategy.order) == (strategy.zero, strategy.order)
        )
        while not self.over():
            found = self._chosen(one, one.neighbours(best.rows), best.value * (1 - ROUNDING))
            if found is None:
                break
            best = found
        return best
