"""Adding cores where they are missed: from the fewest, one more of the type that critical operators wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phaze.explore.wham.core_grid import CoreGrid, Counts, StageTime
from phaze.explore.wham.stages import StageKind

Worth = tuple[float, ...]
"""The metric, to be maximised; longer tuples compare by their first difference."""
Metric = Callable[[float, float], Worth]
"""From seconds of a stage and TDP in W."""
_REACHED = 1 + 1e-9


class End(StrEnum):
    """Why no more cores were added."""

    CRITICAL_PATH = "critical path"  # the schedule is as long as with unlimited cores
    BUDGET = "budget"  # power, area, reticle or shoreline leave no room for what is missed
    SPACE = "space"  # the space offers no more of what is missed
    NO_GAIN = "no gain"  # more of what is missed does not improve the metric


@dataclass(frozen=True, slots=True)
class Step:
    """One pair of core counts; `added`: the type of core (TC or VC) that was added to get here, "" at the start."""

    counts: Counts
    time: StageTime
    worth: Worth
    added: str


@dataclass(frozen=True, slots=True)
class Growth:
    """The designs that were passed while cores were added, fewest cores first, and why it ended."""

    steps: tuple[Step, ...]
    end: End

    @property
    def best(self) -> Step:
        """The best of them, the smallest of equals."""
        return max(self.steps, key=lambda step: step.worth)


def grow(grid: CoreGrid, kind: StageKind, metric: Metric) -> Growth | None:
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
        if isinstance(following, End):
            return Growth(tuple(steps), following)
        steps.append(following)


def _first(grid: CoreGrid) -> Counts | None:
    """The fewest cores that the space and the budgets allow, tensor and vector cores alike."""
    tensor, vector = grid.numbers.shape
    possible = [(a, b) for a in range(tensor) for b in range(vector) if _allowed(grid, (a, b))]
    return min(possible, key=lambda counts: (sum(counts), counts), default=None)


def _allowed(grid: CoreGrid, counts: Counts) -> bool:
    return bool(grid.fits[counts] and grid.numbers[counts] >= 0)


def _step(grid: CoreGrid, kind: StageKind, metric: Metric, counts: Counts, added: str) -> Step:
    time = grid.stage(kind, counts)
    return Step(counts, time, metric(time.seconds, float(grid.tdp_w[counts])), added)


def _next(grid: CoreGrid, kind: StageKind, metric: Metric, last: Step) -> Step | End:
    """The first addition that pays, the type with the most conflicts first; or why there is none."""
    if last.time.seconds <= last.time.critical_s * _REACHED:
        return End.CRITICAL_PATH
    lost = last.time.lost_s
    ends = []
    for unit in sorted((u for u in lost if lost[u] > 0), key=lambda u: (-lost[u], u)):
        counts = _one_more(grid, last.counts, unit)
        if isinstance(counts, End):
            ends.append(counts)
            continue
        step = _step(grid, kind, metric, counts, unit)
        if step.worth > last.worth:
            return step
        ends.append(End.NO_GAIN)
    return ends[0] if ends else End.NO_GAIN


def _one_more(grid: CoreGrid, counts: Counts, unit: str) -> Counts | End:
    """The next count of one type that the space offers beside the other's, within the budgets."""
    axis = 0 if unit == "TC" else 1
    for k in range(counts[axis] + 1, grid.numbers.shape[axis]):
        more = (k, counts[1]) if axis == 0 else (counts[0], k)
        if not grid.fits[more]:
            return End.BUDGET
        if grid.numbers[more] >= 0:
            return more
    return End.SPACE
