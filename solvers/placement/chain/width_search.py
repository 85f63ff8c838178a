"""The best plans of one width for many architectures, by branch and bound over the number of stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.chain.bounds import Candidates
from phaze.solvers.placement.chain.dp import SuffixTables
from phaze.solvers.placement.chain.time_bound import LONGEST_S, SLACK, TimeBound
from phaze.solvers.placement.chain.width import Width
from phaze.solvers.placement.stage_costs import prefix_sums, stage_loads

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
