"""The best plan over several lines, such as all data-parallel degrees and depths of one chain, proven and checked.

Of each line by branch and bound over limits on the two largest values of its stages, on a dynamic program over
suffixes of the chain: cuts and types together, one table per number of stages.

A box holds the plans whose largest load and largest once-per-batch time lie between two corners. The dynamic
program gives the least power within the upper corner; with the lower corner it bounds every plan of the box.
Both values come from finite tables, so that halving ends: the answer is exact.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.chain.chain_problem import PlacementStatus
from phaze.solvers.placement.mixed.mixed_problem import (
    Goal,
    Line,
    MixedChain,
    MixedResult,
    MixedStage,
    mixed_plan_value,
)


def suffix_values(
    chain: MixedChain, inner: Floats, last: Floats, stages: int, join: np.ufunc
) -> list[Floats]:
    """f[s - 1] (L + 1,): least cost of layers i.. in exactly s stages, for s up to `stages`.

    `inner` (K, L, L), `last` (K, L): cost of a stage on each type, infinite where it is not allowed; the costs
    of stages are joined by `join`, a sum or a maximum.
    """
    below = np.tri(chain.layers, k=-1, dtype=np.bool_)
    groups = np.where(below, np.inf, chain.per_group(inner))
    tables = [np.append(last.min(axis=0), np.inf)]
    for depth in range(2, stages + 1):
        cost = np.where(chain.deepest >= depth, groups, np.inf).min(axis=0)
        tables.append(np.append(join(cost, tables[-1][None, 1:]).min(axis=1), np.inf))
    return tables


@dataclass(frozen=True)
class Within:
    """Plans of one line whose stages keep two limits: the load, and what is done once, both in seconds."""

    line: Line
    load_s: float
    once_s: float

    @cached_property
    def inner_w(self) -> Floats:
        """Power of a stage that is not the last one, infinite where it breaks a limit, (K, L, L)."""
        chain = self.line.chain
        allowed = (chain.inner_s <= self.load_s) & (self.line.once_s <= self.once_s)
        return np.where(allowed, chain.power_w[:, None, None], np.inf)

    @cached_property
    def last_w(self) -> Floats:
        """Power of a last stage that starts with layer i, infinite where it breaks a limit, (K, L)."""
        chain = self.line.chain
        allowed = (chain.last_s <= self.load_s) & (self.line.once_s[:, :, -1] <= self.once_s)
        return np.where(allowed, chain.power_w[:, None], np.inf)

    @cached_property
    def tables(self) -> list[Floats]:
        """Least sum of the stages' powers; see `suffix_values`."""
        return suffix_values(self.line.chain, self.inner_w, self.last_w, self.line.stages, np.add)

    @property
    def mean_power_w(self) -> float:
        """Least mean power of a device within the limits; infinite if no plan keeps them."""
        return float(self.tables[-1][0]) / self.line.stages

    def plan(self) -> tuple[MixedStage, ...]:
        """The plan of least power: the earliest cuts and the type of least power, then load, then number."""
        first, found = 0, []
        for depth in range(self.line.stages, 1, -1):
            cost = np.where(self._fits(first, depth), self.inner_w[:, first], np.inf)
            cost[:, :first] = np.inf
            last = int(np.add(cost.min(axis=0), self.tables[depth - 2][1:]).argmin())
            found.append(self._stage(first, last, cost[:, last], self.line.chain.inner_s[:, first, last]))
            first = last + 1
        chain = self.line.chain
        found.append(self._stage(first, chain.layers - 1, self.last_w[:, first], chain.last_s[:, first]))
        return tuple(found)

    def _fits(self, first: int, depth: int) -> Floats:
        chain = self.line.chain
        return np.asarray(chain.deepest[chain.group, first] >= depth)

    @staticmethod
    def _stage(first: int, last: int, power_w: Floats, load_s: Floats) -> MixedStage:
        return MixedStage(first, last, int(np.lexsort((load_s, power_w))[0]))


TIE = 1e-13
"""Values closer than this, relative, are equal: the rounding of sums of some hundred terms."""

Corner = tuple[float, float]
"""Load and once-per-batch time, s."""


@dataclass(frozen=True)
class LinePlan:
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
        self.found: LinePlan | None = None
        self._line, self._goal, self._most_s = line, goal, most_s
        self._known: dict[Corner, float] = {}

    def run(self) -> LinePlan | None:
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
            self.found = LinePlan(value, time_s, power_w, self._line, stages)

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


_CHECK_TOLERANCE = 1e-10


def place_mixed(
    lines: Sequence[Line], goal: Goal = Goal.TIME, most_s: float = math.inf, below: float = math.inf
) -> MixedResult:
    """The plan of least value, among those that take at most `most_s`, over all lines; of equal ones the first.

    Plans that are not better than `below` are of no interest: infeasible then means that there is none.

    Raises PlanError where the independent checker refutes the plan found: a defect of the search.
    """
    began = time.perf_counter()
    bounds = line_bounds(lines, goal)
    found: LinePlan | None = None
    at, searched, solved = -1, 0, 0
    for k in np.argsort(bounds, kind="stable"):
        best = below if found is None else found.value
        if bounds[k] >= best * (1 - TIE):
            break
        search = LineSearch(lines[k], goal, best, most_s)
        better = search.run()
        searched, solved = searched + 1, solved + search.solved
        if better is not None:
            found, at = better, int(k)
    if found is not None:
        _check(found, goal)
    return _result(found, at, searched, solved, time.perf_counter() - began)


def line_bounds(lines: Iterable[Line], goal: Goal) -> Floats:
    """A lower bound on the value of any plan of each line; infinite where nothing fits in memory.

    No stage is slower than the slowest, and none draws power for less time than it works: time x mean power
    is at least the sum of power x load over the stages, and what is done once is on top.
    """
    known: dict[int, _LineMinima] = {}
    lines = list(lines)
    deepest = {id(line.chain): 0 for line in lines}
    for line in lines:
        deepest[id(line.chain)] = max(deepest[id(line.chain)], line.stages)
    found = []
    for line in lines:
        if id(line.chain) not in known:
            known[id(line.chain)] = _line_minima(line.chain, deepest[id(line.chain)])
        load_s, weight, work_j = (row[line.stages - 1] for row in known[id(line.chain)])
        if math.isinf(load_s):
            found.append(math.inf)
            continue
        once_s, power_w = float(line.rate_s.min()) * weight, float(line.chain.power_w.min())
        if goal is Goal.TIME:
            found.append(line.seconds(load_s, once_s))
        else:
            work_j = max(work_j / line.stages, load_s * power_w)
            found.append(line.slots * work_j + (once_s + line.latency_s) * power_w)
    return np.array(found) * (1 - TIE)


_LineMinima = tuple[list[float], list[float], list[float]]


def _line_minima(chain: MixedChain, stages: int) -> _LineMinima:
    """Least largest load (s), largest weight, and sum of power x load (J), for 1 to `stages` stages."""
    weight = np.broadcast_to(chain.stage_weight, chain.inner_s.shape)
    load_j = chain.inner_s * chain.power_w[:, None, None], chain.last_s * chain.power_w[:, None]
    tables = (
        suffix_values(chain, chain.inner_s, chain.last_s, stages, np.maximum),
        suffix_values(chain, weight, weight[:, :, -1], stages, np.maximum),
        suffix_values(chain, *load_j, stages, np.add),
    )
    loads, weights, works = ([float(f[0]) for f in table] for table in tables)
    return loads, weights, works


def _check(found: LinePlan, goal: Goal) -> None:
    value = mixed_plan_value(found.line, goal, found.stages)
    if not math.isclose(value, found.value, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {found.value}, the checker {value} for the same plan")


def _result(found: LinePlan | None, at: int, searched: int, solved: int, runtime_s: float) -> MixedResult:
    if found is None:
        nothing = PlacementStatus.INFEASIBLE
        return MixedResult(
            nothing, math.inf, math.inf, 0.0, math.inf, math.inf, -1, (), searched, solved, runtime_s
        )
    return MixedResult(
        status=PlacementStatus.OPTIMAL,
        value=found.value,
        lower_bound=found.value,
        gap=0.0,
        time_s=found.time_s,
        mean_power_w=found.power_w,
        line=at,
        stages=found.stages,
        lines_solved=searched,
        solved=solved,
        runtime_s=runtime_s,
    )
