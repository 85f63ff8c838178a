"""The exact dynamic program over (layers, stages, devices) for one tensor-parallel width.

A stage runs on t devices, or on one if none of its layers is tensor-parallel (a narrow stage). The devices of
a suffix of the chain follow from its numbers of stages and of narrow stages, so the state is (first layer,
stages, narrow stages), and f[s][n, i] is the smallest achievable maximal load of layers i.. in exactly s
stages, n of them narrow. The first stage of the plan is placed last, together with the data-parallel degree,
because the objective is not separable in its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from phaze.solvers.placement.instance import PlacementProblem, WidthModel
from phaze.solvers.placement.stage_costs import BoolArray, FloatArray, IntArray, StageCosts, stage_costs

# Rounding of a sum of some hundred terms; times closer than this are ties (the contract allows 1e-12).
RELATIVE_TIE = 1e-13
# Slack that keeps a rounded lower bound from cutting a tie off.
_BOUND_SLACK = 1e-12
_ROW_BLOCK = 48


@dataclass(frozen=True)
class Degrees:
    """The data-parallel degrees worth trying: the smallest one of each number of microbatches per pipeline.

    A larger degree with the same number of microbatches has fewer devices per pipeline and a longer resync.
    """

    data_parallel: IntArray
    microbatches: IntArray
    devices_per_pipeline: IntArray
    resync_s_per_byte: FloatArray


def data_parallel_degrees(problem: PlacementProblem) -> Degrees:
    """All degrees d in 1..min(D, m) that are smallest for their value of ceil(m / d): O(sqrt m) of them."""
    total, limit = problem.microbatches_per_batch, min(problem.num_devices, problem.microbatches_per_batch)
    found = [1]
    while (microbatches := -(-total // found[-1])) > 1:
        following = -(-total // (microbatches - 1))
        if following > limit:
            break
        found.append(following)
    d = np.array(found, dtype=np.int64)
    return Degrees(
        d, -(-total // d), problem.num_devices // d, 4 * (d - 1) / problem.link_bandwidth_bytes_per_s / d
    )


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
    """Search of one width: `run` gives the best time, `ties` the plans that reach it, `cuts` their stages."""

    def __init__(self, problem: PlacementProblem, model: WidthModel, degrees: Degrees) -> None:
        """Prepare the costs and bounds of one model of the problem."""
        self._costs: StageCosts = stage_costs(problem, model)
        self._degrees = degrees
        self._layers = len(model.forward_s)
        narrow_layers = model.is_tensor_parallel.count(False)
        uniform = model.tensor_parallel == 1 or narrow_layers in (0, self._layers)
        self._narrow: BoolArray = np.zeros_like(self._costs.narrow) if uniform else self._costs.narrow
        self._wide_devices = 1 if narrow_layers == self._layers else model.tensor_parallel
        self._depth = min(problem.num_devices, self._layers)
        self._most_narrow = _most_narrow([] if uniform else model.is_tensor_parallel, self._depth)
        self._deepest: IntArray = np.triu(self._costs.deepest)
        self._suffix: list[FloatArray] = []
        self._block_ends: dict[int, int] = {}
        self._best_time_s: dict[tuple[int, int], float] = {}
        forward, backward = np.array(model.forward_s), np.array(model.backward_s)
        self._work_s: FloatArray = _prefix(forward + backward)
        recomputed = forward if problem.activation_recomputation else np.zeros_like(forward)
        self._inner_work_s: FloatArray = _prefix(recomputed + forward + backward)
        devices = np.where(model.is_tensor_parallel, self._wide_devices, 1)
        self._device_work_s = float(self._work_s[-1] if uniform else (devices * (forward + backward)).sum())
        self._device_work_s *= self._wide_devices if uniform else 1
        self._time_bound_s, self._fewest_steps = self._bounds()

    @property
    def time_bound_s(self) -> float:
        """A time that no plan of this width beats."""
        return float(self._time_bound_s[0])

    def run(self, incumbent_s: float) -> float:
        """Best time of this width if it ties with the incumbent or beats it, else any larger one.

        The incumbent need not be attained by any plan: it only cuts what cannot tie with it.
        """
        found_s = np.inf
        self._best_time_s.clear()
        start = np.full((max(self._most_narrow) + 1, self._layers + 1), np.inf)
        self._block_ends = dict.fromkeys(range(0, self._layers, _ROW_BLOCK), self._layers)
        start[0, self._layers] = 0.0
        self._suffix = [start]
        for stages in range(1, self._depth + 1):
            bound = self._time_bound_s[stages - 1]
            if np.isinf(bound) or bound * (1 - _BOUND_SLACK) > incumbent_s:
                break
            for narrow in range(self._most_narrow[stages] + 1):
                if self._through(stages, narrow, 0).min() > self._load_limit(stages, incumbent_s):
                    continue
                time_s = float(self._times(stages, narrow).min(initial=np.inf))
                self._best_time_s[stages, narrow] = time_s
                found_s = min(found_s, time_s)
                incumbent_s = min(incumbent_s, time_s)
            self._suffix.append(self._extend(stages, incumbent_s))
        return found_s

    def ties(self, time_s: float) -> Iterator[Plan]:
        """For each number of stages and narrow stages, the plan of fewest devices that ties with `time_s`."""
        cutoff = time_s * (1 + RELATIVE_TIE)
        for (stages, narrow), best in self._best_time_s.items():
            if best > cutoff:
                continue
            row, end = np.argwhere(self._times(stages, narrow) <= cutoff)[0]
            degree = int(self._degrees.data_parallel[row])
            devices = degree * self._devices(stages, narrow)
            yield Plan(devices, stages, degree, self._costs.tensor_parallel, narrow, int(end))

    def cuts(self, plan: Plan) -> list[tuple[int, int, int]]:
        """(first layer, last layer, devices) of each stage of a plan from `ties`, first stage first."""
        first, last, narrow = 0, plan.first_stage_end, plan.narrow_stages
        found = []
        for depth in range(plan.num_stages, 0, -1):
            if depth < plan.num_stages:
                achieved = self._through(depth, narrow, first)
                last = int(np.argmax(achieved == self._suffix[depth][narrow, first]))
            is_narrow = bool(self._narrow[first, last])
            found.append((first, last, 1 if is_narrow else self._wide_devices))
            first, narrow = last + 1, narrow - is_narrow
        return found

    def _devices(self, stages: int, narrow: int) -> int:
        return self._wide_devices * (stages - narrow) + narrow

    def _load_limit(self, stages: int, incumbent_s: float) -> float:
        """No plan with `stages` or more stages and a larger load ties with the incumbent."""
        return float(incumbent_s / self._fewest_steps[stages - 1] * (1 + _BOUND_SLACK))

    def _extend(self, depth: int, incumbent_s: float) -> FloatArray:
        """f[depth] from f[depth - 1]; exact where it is within the load limit, never below the truth elsewhere."""
        limit = self._load_limit(depth, incumbent_s)
        before = self._suffix[-1]
        after = np.full_like(before, np.inf)
        if depth == 1:
            fits = self._costs.deepest[:, -1] >= 1
            last = np.where(fits, self._costs.load_last_s[:, -1], np.inf)
            after[self._narrow[:, -1].astype(np.int64), np.arange(self._layers)] = last
            return after
        planes = self._most_narrow[depth] + 1
        low, high = self._useful_starts(depth, limit, incumbent_s)
        for begin in range(low - low % _ROW_BLOCK, high, _ROW_BLOCK):
            rows = slice(begin, min(begin + _ROW_BLOCK, self._layers))
            ends = slice(begin, self._block_ends[begin])
            loads = self._costs.load_inner_s[rows, ends]
            fits = (self._deepest[rows, ends] >= depth) & (loads <= limit)
            # What does not fit here fits at no larger depth either, where the limit is lower still.
            width = int(np.flatnonzero(fits.any(axis=0)).max(initial=-1)) + 1
            self._block_ends[begin] = begin + width
            loads, fits, is_narrow = loads[:, :width], fits[:, :width], self._narrow[rows, ends][:, :width]
            rest = before[:planes, begin + 1 : begin + 1 + width]
            after[:planes, rows] = _least(np.where(fits & ~is_narrow, loads, np.inf), rest)
            if planes > 1 and (fits & is_narrow).any():
                one_more = _least(np.where(fits & is_narrow, loads, np.inf), rest[:-1])
                np.minimum(after[1:planes, rows], one_more, out=after[1:planes, rows])
        return after

    def _useful_starts(self, depth: int, limit_s: float, incumbent_s: float) -> tuple[int, int]:
        """Range of first layers of a suffix in `depth` stages that neither it nor the rest must overload."""
        if np.isinf(limit_s):
            return 0, self._layers
        # Sums of many terms: a billionth hides their rounding.
        limit_s += 1e-9 * limit_s
        deepest = int(np.count_nonzero(self._time_bound_s * (1 - _BOUND_SLACK) <= incumbent_s))
        low = np.searchsorted(self._work_s, self._work_s[-1] - depth * limit_s - 1e-9 * self._work_s[-1])
        ahead = (deepest - depth) * limit_s + 1e-9 * self._inner_work_s[-1]
        high = np.searchsorted(self._inner_work_s, ahead, side="right")
        return int(low), min(int(high), self._layers)

    def _through(self, depth: int, narrow: int, first: int) -> FloatArray:
        """Smallest maximal load of layers first.. whose first stage ends at each layer (L,)."""
        loads = self._costs.load_last_s if depth == 1 else self._costs.load_inner_s
        ends = np.arange(self._layers)
        fits = (ends >= first) & (self._costs.deepest[first] >= depth)
        left = narrow - self._narrow[first].astype(np.int64)
        rest = np.where(left >= 0, self._suffix[depth - 1][np.maximum(left, 0), ends + 1], np.inf)
        return np.where(fits, np.maximum(loads[first], rest), np.inf)

    def _times(self, stages: int, narrow: int) -> FloatArray:
        """Seconds per batch (degrees with enough devices, last layer of the first stage)."""
        fits = self._degrees.devices_per_pipeline >= self._devices(stages, narrow)
        bottleneck = self._through(stages, narrow, 0)
        resync = self._degrees.resync_s_per_byte[fits, None] * self._costs.parameter_bytes[0]
        time_s: FloatArray = bottleneck * (self._degrees.microbatches[fits, None] + stages - 1) + resync
        return time_s

    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        """At [S - 1], a time that no plan with S or more stages beats, and the fewest pipeline steps of one.

        The last stage starts somewhere; what precedes it is shared at best evenly by the other S - 1 stages.
        """
        last = np.where(self._costs.deepest[:, -1] >= 1, self._costs.load_last_s[:, -1], np.inf)
        times, steps = np.full(self._depth, np.inf), np.full(self._depth, np.inf)
        for stages in range(self._fewest_stages(), self._depth + 1):
            fits = self._degrees.devices_per_pipeline >= self._devices(stages, self._most_narrow[stages])
            others = np.maximum(last[1:], self._inner_work_s[1:-1] / max(stages - 1, 1))
            load = last[0] if stages == 1 else others.min(initial=np.inf)
            # Each of the K devices of a pipeline works for at most the largest load.
            load = np.maximum(load, self._device_work_s / self._degrees.devices_per_pipeline[fits])
            count = self._degrees.microbatches[fits] + stages - 1
            resync = self._degrees.resync_s_per_byte[fits] * self._costs.parameter_bytes[0, 0]
            times[stages - 1] = (load * count + resync).min(initial=np.inf)
            steps[stages - 1] = count.min(initial=np.iinfo(np.int64).max)
        return np.minimum.accumulate(times[::-1])[::-1], np.minimum.accumulate(steps[::-1])[::-1]

    def _fewest_stages(self) -> int:
        """Fewest stages that fit in memory; one more than there may be if none do."""
        starts = np.zeros(self._layers + 1, dtype=np.bool_)
        starts[-1] = True
        for stages in range(1, self._depth + 1):
            starts[:-1] = (self._deepest[:, starts[1:]] >= stages).any(axis=1)
            starts[-1] = False
            if starts[0]:
                return stages
        return self._depth + 1


def _prefix(values: FloatArray) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(values)))


def _least(loads: FloatArray, rest: FloatArray) -> FloatArray:
    """Smallest maximum (planes, rows) of a stage's load (rows, ends) and of what follows it (planes, ends)."""
    least: FloatArray = np.maximum(loads, rest[:, None]).min(axis=2, initial=np.inf)
    return least


def _most_narrow(is_tensor_parallel: Sequence[bool], depth: int) -> list[int]:
    """Most narrow stages among S, at [S] for S up to `depth`.

    Narrow stages lie in runs of layers that are not tensor-parallel, and w wide stages leave w + 1 runs apart.
    """
    runs = sorted(
        (len(list(run)) for sharded, run in groupby(is_tensor_parallel) if not sharded), reverse=True
    )
    longest = [0, *accumulate(runs)]

    most = [0]
    for stages in range(1, depth + 1):
        # One stage more makes room for one narrow stage more, or none.
        wide = stages - most[-1] - 1
        most.append(most[-1] + (most[-1] < longest[min(wide + 1, len(runs))]))
    return most
