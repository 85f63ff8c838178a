"""The best plans of placement problems, proven and checked.

For every width a branch and bound over the number of stages, on the dynamic program over (layers, stages,
devices), for blocks of many architectures at once.

The devices of a suffix of the chain follow from its numbers of stages and of narrow stages, so the state is
(first layer, stages, narrow stages), and f[s][n, i] is the smallest achievable maximal load of layers i.. in
exactly s stages, at least n of them narrow. The first stage of a plan is placed last, because the objective is
not separable in its parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.chain.chain_batch import BatchResult, PlacementBatch
from phaze.solvers.placement.chain.chain_bounds import (
    LONGEST_S,
    SLACK,
    Candidates,
    TimeBound,
    WidthBound,
    width_bounds,
)
from phaze.solvers.placement.chain.chain_checker import PlanError, plan_time
from phaze.solvers.placement.chain.chain_problem import (
    PlacementProblem,
    PlacementResult,
    PlacementStatus,
    Stage,
)
from phaze.solvers.placement.chain.chain_widths import Width
from phaze.solvers.placement.stage_costs import DepthArray, prefix_sums, stage_loads

# Numbers handled at once: they stay in the cache.
CHUNK = 32_768


class SuffixTables:
    """f[s] of R architectures, extended stage by stage from the end of the chain.

    `tables[s]` (planes, L + 1, R); what lies behind the last layer is infinite.
    """

    def __init__(self, width: Width, inner_s: Floats, last_s: Floats, deepest: DepthArray) -> None:
        """Start with one stage.

        `inner_s` (L, L, R), `last_s` (L, R): loads, the last one infinite where it does not fit; `deepest`
        (L, L, R), or (L, L, 1) if memory is the same for all.
        """
        layers, architectures = last_s.shape
        self._devices = width.devices
        self._layers = layers
        self._loads: Floats = np.where(deepest >= 1, inner_s, np.inf)
        self._deepest = deepest
        # Lengths of stages that may fit the load limit, to be lowered with it.
        self._lengths = layers - 1
        self._least_s: Floats = self._loads.min(axis=1)
        runs = width.devices.narrow & (np.arange(layers)[:, None] + np.arange(layers) < layers - 1)
        runs[:, 0] = False
        self._narrow_starts = [np.flatnonzero(row) for row in runs if row.any()]
        planes = int(width.devices.most_narrow_behind[width.depth]) + 1
        self._behind: Floats = np.full((planes, 2 * layers, architectures), np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(self._behind[:, 1:], layers, axis=1)
        self._windows: Floats = windows.transpose(0, 3, 1, 2)
        first = np.full((width.devices.most_narrow_behind[1] + 1, layers, architectures), np.inf)
        first[0] = last_s
        narrow = width.devices.narrow[np.arange(layers)[::-1], np.arange(layers)]
        first[1:, narrow] = last_s[narrow]
        self.tables: list[Floats] = [first[:0], first]

    def first_stage(self) -> Floats:
        """Largest loads (planes, ends, R) of all layers in one stage more, by the last layer of the first one."""
        stages = len(self.tables)
        self._forget_what_fits_no_more(stages)
        before, loads = self.tables[-1][:, 1 : self._lengths + 1], self._loads[: self._lengths, 0]
        planes = self._devices.most_narrow[stages] + 1
        found = np.full((planes, *loads.shape), np.inf)
        np.maximum(loads, before[:planes], out=found[: len(before)])
        ends, planes = np.flatnonzero(self._devices.narrow[: self._lengths, 0]), min(len(before), planes - 1)
        fewer = np.maximum(loads[ends], before[:planes, ends])
        found[1 : planes + 1, ends] = np.minimum(found[1 : planes + 1, ends], fewer)
        return found

    def extend(self, limit_s: Floats, starts: slice) -> bool:
        """One stage more, for suffixes that start in a range of layers; exact up to a load limit (R,).

        Returns whether there are stages within the limit at all.
        """
        stages = len(self.tables)
        before = self.tables[-1]
        self._behind[: len(before), : self._layers] = before
        within = (self._least_s[: self._lengths] <= limit_s).any(axis=1)
        self._lengths = int(np.flatnonzero(within).max(initial=-1)) + 1
        shape = (self._devices.most_narrow_behind[stages] + 1, self._layers, limit_s.size)
        after = np.full(shape, np.inf)
        self._any_stage(after[: len(before)], starts)
        self._narrow_stage(after, min(len(before), len(after) - 1))
        self.tables.append(after)
        return bool(within.any())

    def _any_stage(self, after: Floats, starts: slice) -> None:
        rows = starts.stop - starts.start
        step = max(1, CHUNK // max(1, len(after) * rows * after.shape[2]))
        for begin in range(0, self._lengths, step):
            lengths = slice(begin, min(begin + step, self._lengths))
            chosen = slice(starts.start, min(starts.stop, self._layers - 1 - begin))
            if chosen.start >= chosen.stop:
                break
            both = np.maximum(self._loads[lengths, chosen], self._windows[: len(after), lengths, chosen])
            np.minimum(after[:, chosen], both.min(axis=1), out=after[:, chosen])

    def _narrow_stage(self, after: Floats, planes: int) -> None:
        for place, chosen in enumerate(self._narrow_starts[: self._lengths] if planes else []):
            both = np.maximum(self._loads[place, chosen], self._behind[:planes, chosen + place + 1])
            after[1 : planes + 1, chosen] = np.minimum(after[1 : planes + 1, chosen], both)

    def _forget_what_fits_no_more(self, stages: int) -> None:
        deepest, loads = self._deepest[: self._lengths], self._loads[: self._lengths]
        loads.reshape(deepest.size, -1)[np.flatnonzero(deepest == stages - 1)] = np.inf


# Rounding of a sum of some hundred terms; times closer than this are ties (the contract allows 1e-12).
RELATIVE_TIE = 1e-13


@dataclass(frozen=True, order=True)
class Plan:
    """A candidate of one width, ordered by preference among equal times."""

    devices_used: int
    num_stages: int
    data_parallel: int
    tensor_parallel: int
    narrow_stages: int
    first_stage_end: int


class WidthSearch:
    """Search of one width; `found_s` (R,): best times that tie with the incumbents or beat them, else larger ones."""

    def __init__(
        self, width: Width, bounds: list[TimeBound], candidates: Candidates, incumbent_s: Floats
    ) -> None:
        """Search plans of more and more stages until none can tie with the incumbents (R,)."""
        self._width, self._bounds, self._candidates = width, bounds, candidates
        # The least of S stages or more, (n, depth, R) for the ranges of narrow stages.
        self._bound_s = np.minimum.accumulate(candidates.bound_s[:, ::-1], axis=1)[:, ::-1]
        self._recompute = width.problem.activation_recomputation
        forward_s, plain_s = candidates.forward_s, candidates.forward_s + candidates.backward_s
        self._work_s = prefix_sums(plain_s.T).T
        self._inner_work_s = prefix_sums((plain_s + forward_s).T).T if self._recompute else self._work_s
        self._inner_s, last_s = stage_loads(
            width.transfers, forward_s, candidates.backward_s, recompute=self._recompute
        )
        self._deepest = width.memory.deepest(candidates.memory_bytes)
        starts = np.arange(width.layers)
        last_s = np.where(self._deepest[starts[::-1], starts] >= 1, last_s, np.inf)
        self._suffixes = SuffixTables(width, self._inner_s, last_s, self._deepest)
        self._best_s: list[Floats] = []
        self._incumbent_s = incumbent_s.copy()
        self._search(last_s)
        self.found_s: Floats = np.min([best.min(axis=0) for best in self._best_s], axis=0)

    def ties(self, row: int, time_s: float) -> Iterator[Plan]:
        """For each number of stages and narrow stages, the plan of fewest devices that ties with `time_s`."""
        cutoff, degrees = time_s * (1 + RELATIVE_TIE), self._width.degrees
        for stages, best_s in enumerate(self._best_s, start=1):
            for narrow in np.flatnonzero(best_s[:, row] <= cutoff).tolist():
                devices = int(self._width.devices.of(stages, narrow))
                count = int(degrees.admitting(devices))
                loads = self._through(stages, narrow, 0, row)
                resync_s = degrees.resync_s_per_byte[:count, None] * self._width.first_bytes
                times = loads * (degrees.microbatches[:count, None] + stages - 1) + resync_s
                index, end = np.argwhere(times <= cutoff)[0].tolist()
                degree = int(degrees.data_parallel[index])
                width = self._width.model.tensor_parallel
                yield Plan(degree * devices, stages, degree, width, narrow, end)

    def cuts(self, row: int, plan: Plan) -> list[tuple[int, int, int]]:
        """(first layer, last layer, devices) of each stage of a plan from `ties`, first stage first."""
        first, last, narrow = 0, plan.first_stage_end, plan.narrow_stages
        found = []
        for depth in range(plan.num_stages, 0, -1):
            if depth < plan.num_stages:
                best_s = self._suffixes.tables[depth][narrow, first, row]
                last = int(np.argmax(self._through(depth, narrow, first, row) == best_s))
            is_narrow = bool(self._width.devices.narrow[last - first, first])
            found.append((first, last, 1 if is_narrow else self._width.devices.wide))
            first, narrow = last + 1, max(narrow - is_narrow, 0)
        return found

    def _search(self, last_s: Floats) -> None:
        everything = np.full(last_s.shape[1], np.inf)
        self._add_times(1, last_s[None, :1], self._width.first_bytes[-1:], everything)
        for stages in range(2, self._width.depth + 1):
            promising = self._bound_s[:, stages - 1 :] <= np.minimum(self._incumbent_s, LONGEST_S)
            if not promising[:, 0].any():
                break
            limit_s = self._load_limit(stages, promising[:, 0])
            if stages > 2:
                further = promising.any(axis=0).sum(axis=0)
                if not self._suffixes.extend(limit_s, self._useful_starts(stages - 1, limit_s, further)):
                    break
            loads_s = self._suffixes.first_stage()
            self._add_times(stages, loads_s, self._width.first_bytes[: loads_s.shape[1]], limit_s)

    def _load_limit(self, stages: int, promising: Flags) -> Floats:
        """Loads (R,) above which no plan of so many stages or more ties; `promising` (n, R) ranges of narrow ones."""
        device_time_s = self._candidates.device_time_s
        limit_s = np.zeros_like(self._incumbent_s)
        for bound, rows in zip(self._bounds, promising, strict=True):
            if rows.any():
                found_s = bound.load_limit(stages, self._incumbent_s, device_time_s)
                np.maximum(limit_s, found_s, where=rows, out=limit_s)
        return limit_s

    def _useful_starts(self, stages: int, limit_s: Floats, further: Integers) -> slice:
        """First layers of suffixes of so many stages that overload neither them nor the `further` ones at most."""
        # Sums of many terms: a billionth hides their rounding.
        slack_s = SLACK * self._inner_work_s[-1]
        low = np.count_nonzero(self._work_s < self._work_s[-1] - stages * limit_s - slack_s, axis=0)
        high = np.count_nonzero(self._inner_work_s <= further * limit_s + slack_s, axis=0)
        return slice(max(1, int(low.min())), min(int(high.max()), self._width.layers))

    def _add_times(self, stages: int, loads_s: Floats, reduced_bytes: Floats, limit_s: Floats) -> None:
        """Note the best times for largest loads (planes, ends, R) of which the first stage reduces bytes (ends,)."""
        least_s = loads_s.min(axis=1)
        best_s = np.full_like(least_s, np.inf)
        degrees, devices = self._width.degrees, self._width.devices.of(stages, np.arange(len(loads_s)))
        for narrow, count in enumerate(degrees.admitting(devices).tolist()):
            chosen = np.flatnonzero(np.isfinite(least_s[narrow]) & (least_s[narrow] <= limit_s))
            if not count or not chosen.size:
                continue
            steps = degrees.microbatches[:count, None] + stages - 1
            resync = degrees.resync_s_per_byte[:count, None]
            possible_s = least_s[narrow, chosen] * steps + resync * reduced_bytes[0]
            degree, column = np.nonzero(possible_s <= self._incumbent_s[chosen] * (1 + SLACK))
            row = chosen[column]
            times = loads_s[narrow][:, row] * steps[degree, 0] + resync[degree, 0] * reduced_bytes[:, None]
            np.minimum.at(best_s[narrow], row, times.min(axis=0))
        self._best_s.append(best_s)
        np.minimum(self._incumbent_s, best_s.min(axis=0), out=self._incumbent_s)

    def _through(self, stages: int, narrow: int, first: int, row: int) -> Floats:
        """Smallest largest load of layers first.. whose first stage ends at each layer (L,)."""
        loads, before = np.full(self._width.layers, np.inf), self._suffixes.tables[stages - 1]
        if stages == 1:
            loads[-1] = self._suffixes.tables[1][narrow, first, row]
            return loads
        count = self._width.layers - 1 - first
        fits = self._deepest[:count, first, row % self._deepest.shape[2]] >= stages
        planes = np.maximum(narrow - self._width.devices.narrow[:count, first].astype(np.int64), 0)
        fits &= planes < len(before)
        rest = before[np.minimum(planes, len(before) - 1), np.arange(first + 1, first + 1 + count), row]
        loads[first:-1] = np.where(fits, np.maximum(self._inner_s[:count, first, row], rest), np.inf)
        return loads


# Stage loads of one width handled at once.
BLOCK = 1_000_000

# A plan and its stages, as (first layer, last layer, devices).
PlanWithStages = tuple[Plan, list[tuple[int, int, int]]]


def blocks(batch: PlacementBatch) -> Iterator[Integers]:
    """Architectures of similar memory, few enough for the cache."""
    order = np.argsort(batch.device_memory_bytes, kind="stable")
    size = max(1, BLOCK // len(batch.problem.layer_ids) ** 2)
    for begin in range(0, order.size, size):
        yield order[begin : begin + size]


def best_plans(
    bounds: list[WidthBound], rows: Integers, most_bytes: float
) -> Iterator[tuple[int, PlanWithStages, float]]:
    """(architecture, its best plan, seconds per batch) of those for which a plan fits."""
    widths = [(bound, bound.candidates(rows, most_bytes)) for bound in bounds]
    # The most promising width first, so that its time cuts the others short.
    widths.sort(key=lambda width: float(np.minimum(width[1].least_s, LONGEST_S).sum()))
    best_s, searches = np.full(rows.size, np.inf), []
    for bound, candidates in widths:
        chosen = np.flatnonzero(candidates.least_s <= np.minimum(best_s, LONGEST_S))
        if chosen.size:
            search = WidthSearch(bound.width, bound.times, candidates[chosen], best_s[chosen])
            best_s[chosen] = np.minimum(best_s[chosen], search.found_s)
            searches.append((search, chosen))
    for row in np.flatnonzero(np.isfinite(best_s)).tolist():
        yield int(rows[row]), _preferred(searches, row, float(best_s[row])), float(best_s[row])


def _preferred(searches: list[tuple[WidthSearch, Integers]], row: int, best_s: float) -> PlanWithStages:
    """The plan of an architecture that is preferred among those with the best time."""
    found = []
    for search, chosen in searches:
        place = int(np.searchsorted(chosen, row))
        if place < chosen.size and chosen[place] == row:
            found += [(plan, search.cuts(place, plan)) for plan in search.ties(place, best_s)]
    return min(found)


# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10


def place(problem: PlacementProblem) -> PlacementResult:
    """Minimise the time per batch over width, degree, number of stages and cuts.

    Equal times are resolved towards fewest devices, then fewest stages, then smallest degree, smallest width.

    Raises:
        PlanError: the independent checker refutes the plan found, which is a bug of the search.
    """
    return place_batch(PlacementBatch.of(problem)).plans[0]


def place_batch(batch: PlacementBatch) -> BatchResult:
    """The best plan of every architecture, equal to what `place` finds for it alone.

    Raises:
        PlanError: as for `place`.
    """
    began = time.perf_counter()
    bounds = width_bounds(batch)
    nothing = PlacementResult(PlacementStatus.INFEASIBLE, None, math.inf, None, None, None, (), 0.0)
    results = [nothing] * batch.architectures
    for rows in blocks(batch):
        for row, found, best_s in best_plans(bounds, rows, float(batch.device_memory_bytes[rows].max())):
            results[row] = _checked(batch.one(row), found, best_s)
    runtime_s = time.perf_counter() - began
    each_s = runtime_s / max(1, batch.architectures)
    return BatchResult(tuple(replace(result, runtime_s=each_s) for result in results), runtime_s)


def _checked(problem: PlacementProblem, found: PlanWithStages, best_s: float) -> PlacementResult:
    plan, cuts = found
    stages = tuple(Stage(problem.layer_ids[i : j + 1], devices) for i, j, devices in cuts)
    time_s = plan_time(problem, plan.tensor_parallel, plan.data_parallel, stages)
    if not math.isclose(time_s, best_s, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {best_s} s, the checker {time_s} s for the same plan")
    return PlacementResult(
        status=PlacementStatus.OPTIMAL,
        time_per_batch_s=time_s,
        lower_bound_s=time_s,
        num_stages=plan.num_stages,
        data_parallel=plan.data_parallel,
        tensor_parallel=plan.tensor_parallel,
        stages=stages,
        runtime_s=0.0,
    )
