"""Adding cores where they are missed: from the fewest, one more of the type that critical operators wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.explore.strategies.wham.core_latencies import CoreGrid, Counts, StageKind, StageTime
from phaze.tolerances import SAME

StageWorth = tuple[float, ...]
"""The metric, to be maximised; longer tuples compare by their first difference."""
StageMetric = Callable[[float, float], StageWorth]
"""From seconds of a stage and TDP in W."""
_REACHED = 1 + SAME


class GrowthEnd(StrEnum):
    """Why no more cores were added."""

    CRITICAL_PATH = "critical path"  # the schedule is as long as with unlimited cores
    BUDGET = "budget"  # power, area, reticle or shoreline leave no room for what is missed
    SPACE = "space"  # the space offers no more of what is missed
    NO_GAIN = "no gain"  # more of what is missed does not improve the metric


@dataclass(frozen=True, slots=True)
class GrowthStep:
    """One pair of core counts; `added`: the type of core (TC or VC) that was added to get here, "" at the start."""

    counts: Counts
    time: StageTime
    worth: StageWorth
    added: str


@dataclass(frozen=True, slots=True)
class Growth:
    """The designs that were passed while cores were added, fewest cores first, and why it ended."""

    steps: tuple[GrowthStep, ...]
    end: GrowthEnd

    @property
    def best(self) -> GrowthStep:
        """The best of them, the smallest of equals."""
        return max(self.steps, key=lambda step: step.worth)


def grow_cores(grid: CoreGrid, kind: StageKind, metric: StageMetric) -> Growth | None:
    """Add cores until the schedule is the critical path, a budget is reached or nothing is gained.

    The forward and the backward pass are scheduled on the same cores, so an addition serves both (WHAM's mirrored
    conflict resolution) and their conflicts count together. None where no counts keep the budgets.
    """
    start = _first(grid)
    if start is None:
        return None
    steps = [_step(grid, kind, metric, start, "")]
    while True:
        following = _next(grid, kind, metric, steps[-1])
        if isinstance(following, GrowthEnd):
            return Growth(tuple(steps), following)
        steps.append(following)


def _first(grid: CoreGrid) -> Counts | None:
    """The fewest cores that the space and the budgets allow, tensor and vector cores alike."""
    tensor, vector = grid.numbers.shape
    possible = [(a, b) for a in range(tensor) for b in range(vector) if grid.allows((a, b))]
    return min(possible, key=lambda counts: (sum(counts), counts), default=None)


def _step(grid: CoreGrid, kind: StageKind, metric: StageMetric, counts: Counts, added: str) -> GrowthStep:
    """One pair of core counts, and what it is worth."""
    time = grid.stage(kind, counts)
    return GrowthStep(counts, time, metric(time.seconds, float(grid.tdp_w[counts])), added)


def _next(grid: CoreGrid, kind: StageKind, metric: StageMetric, last: GrowthStep) -> GrowthStep | GrowthEnd:
    """The first addition that pays, the type with the most conflicts first; or why there is none."""
    if last.time.seconds <= last.time.critical_s * _REACHED:
        return GrowthEnd.CRITICAL_PATH
    lost = last.time.lost_s
    ends = []
    for unit in sorted((u for u in lost if lost[u] > 0), key=lambda u: (-lost[u], u)):
        counts = _one_more(grid, last.counts, unit)
        if isinstance(counts, GrowthEnd):
            ends.append(counts)
            continue
        step = _step(grid, kind, metric, counts, unit)
        if step.worth > last.worth:
            return step
        ends.append(GrowthEnd.NO_GAIN)
    return ends[0] if ends else GrowthEnd.NO_GAIN


def _one_more(grid: CoreGrid, counts: Counts, unit: str) -> Counts | GrowthEnd:
    """The next count of one type that the space offers beside the other's, within the budgets."""
    axis = 0 if unit == "TC" else 1
    for k in range(counts[axis] + 1, grid.numbers.shape[axis]):
        more = (k, counts[1]) if axis == 0 else (counts[0], k)
        if not grid.fits[more]:
            return GrowthEnd.BUDGET
        if grid.numbers[more] >= 0:
            return more
    return GrowthEnd.SPACE
