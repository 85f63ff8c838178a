"""The best plan of one line: branch and bound over limits on the two largest values of its stages.

A box holds the plans whose largest load and largest once-per-batch time lie between two corners. The dynamic
program gives the least power within the upper corner; with the lower corner it bounds every plan of the box.
Both values come from finite tables, so that halving ends: the answer is exact.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.mixed.problem import Goal, Line, MixedStage
from phaze.solvers.placement.mixed.recurrence import Within, suffix_values

TIE = 1e-13
"""Values closer than this, relative, are equal: the rounding of sums of some hundred terms."""

Corner = tuple[float, float]
"""Load and once-per-batch time, s."""


@dataclass(frozen=True)
class Found:
    """A plan of a line: the value of the goal, the seconds per batch, the mean power in W."""

    value: float
    time_s: float
    power_w: float
    line: Line
    stages: tuple[MixedStage, ...]


class LineSearch:
    """Search on one line for a plan whose value is below `best` and that takes at most `most_s`."""

    def __init__(self, line: Line, goal: Goal, best: float, most_s: float) -> None:
        """Nothing is found yet; `solved` counts runs of the dynamic program."""
        self.best, self.solved = best, 0
        self.found: Found | None = None
        self._line, self._goal, self._most_s = line, goal, most_s
        self._known: dict[Corner, float] = {}

    def run(self) -> Found | None:
        """The best plan, or None if there is none that is better."""
        power_w, order = float(self._line.chain.power_w.min()), count()
        low, high = self._corners()
        if not math.isfinite(low[0]):
            return None
        self._least_power_w((low[0], high[1]))
        boxes = [(self._value(low, power_w), next(order), power_w, low, high)]
        while boxes:
            bound, _, power_w, low, high = heapq.heappop(boxes)
            if bound >= self._enough:
                break
            high = self._clipped(low, high, power_w)
            power_w = self._least_power_w(high)
            if self._value(low, power_w) >= self._enough:
                continue
            for lower, upper in self._halves(low, high):
                heapq.heappush(boxes, (self._value(lower, power_w), next(order), power_w, lower, upper))
        return self.found

    @property
    def _enough(self) -> float:
        """Plans that can do no better than this are of no interest."""
        return self.best * (1 - TIE)

    def _value(self, corner: Corner, power_w: float) -> float:
        seconds = self._line.seconds(*corner)
        return seconds * power_w if self._goal is Goal.ENERGY else seconds

    @cached_property
    def _tables(self) -> tuple[Floats, Floats]:
        """Every load and every once-per-batch time that a stage can have."""
        chain = self._line.chain
        above = np.triu(np.ones((chain.layers, chain.layers), dtype=np.bool_))
        loads = np.concatenate([chain.inner_s[:, above].ravel(), chain.last_s.ravel()])
        return loads[np.isfinite(loads)], self._line.once_s[:, above].ravel()

    def _corners(self) -> tuple[Corner, Corner]:
        """The least and the largest that either value can be."""
        line, chain = self._line, self._line.chain
        loads, once = self._tables
        least = [
            float(suffix_values(chain, inner, last, line.stages, np.maximum)[-1][0])
            for inner, last in ((chain.inner_s, chain.last_s), (line.once_s, line.once_s[:, :, -1]))
        ]
        return (least[0], least[1]), (float(loads.max(initial=0.0)), float(once.max()))

    def _clipped(self, low: Corner, high: Corner, power_w: float) -> Corner:
        """The upper corner without plans that are too slow or no better than the best one."""
        line = self._line
        best_s = self.best / power_w if self._goal is Goal.ENERGY else self.best
        room = (min(best_s, self._most_s) - line.seconds(*low)) * (1 + TIE)
        return min(high[0], low[0] + room / line.slots), min(high[1], low[1] + room)

    def _least_power_w(self, limits: Corner) -> float:
        """Least mean power within two limits; the plan that has it is kept if it is the best so far."""
        if limits not in self._known:
            within = Within(self._line, *limits)
            self._known[limits] = within.mean_power_w
            self.solved += 1
            if math.isfinite(within.mean_power_w):
                self._consider(within.plan(), within.mean_power_w)
        return self._known[limits]

    def _consider(self, stages: tuple[MixedStage, ...], power_w: float) -> None:
        corner = largest(self._line, stages)
        time_s, value = self._line.seconds(*corner), self._value(corner, power_w)
        if value < self.best and time_s <= self._most_s * (1 + TIE):
            self.best = value
            self.found = Found(value, time_s, power_w, self._line, stages)

    def _halves(self, low: Corner, high: Corner) -> Iterator[tuple[Corner, Corner]]:
        """Two boxes that hold the same plans; none where the corners meet."""
        gaps = (self._line.slots * (high[0] - low[0]), high[1] - low[1])
        kind = int(gaps[1] > gaps[0])
        if gaps[kind] <= 4 * TIE * self._line.seconds(*high):
            return
        values, middle = self._tables[kind], 0.5 * (low[kind] + high[kind])
        below = float(np.max(values, where=values <= middle, initial=-np.inf))
        above = float(np.min(values, where=values > middle, initial=np.inf))
        if below >= low[kind]:
            yield low, _with(high, kind, below)
        if above <= high[kind]:
            yield _with(low, kind, above), high


def largest(line: Line, stages: tuple[MixedStage, ...]) -> Corner:
    """The largest load and the largest once-per-batch time of a plan's stages."""
    chain, end = line.chain, stages[-1]
    loads = [chain.inner_s[s.device_type, s.first, s.last] for s in stages[:-1]]
    once = [line.once_s[s.device_type, s.first, s.last] for s in stages]
    return float(max([*loads, chain.last_s[end.device_type, end.first]])), float(max(once))


def _with(corner: Corner, kind: int, value: float) -> Corner:
    return (value, corner[1]) if kind == 0 else (corner[0], value)
