"""One workload of several on a table of architectures: what each could reach, proven step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers, Rows
from phaze.explore.evaluation.evaluator import Evaluator, PointBounds
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.scheduling.effort import Patience
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING

# Bounds are sums of some thousand rounded terms; they are relaxed by this much so that rounding never prunes.


def roofline_throughput(evaluator: Evaluator, table: ArchitectureTable | None = None) -> Floats:
    """Throughput (A,) in samples/s of model FLOPs at peak, which nothing exceeds; of another table, if one is given."""
    task = evaluator.task
    peak = fastest_flops_per_s(evaluator.table if table is None else table, task, task.recipe) * task.devices
    return np.asarray(task.cluster.global_batch * peak / evaluator.model_flops * (1 + BOUND_ROUNDING))


def throughput_bound(evaluator: Evaluator, rows: Rows, needed: Floats | None = None) -> Floats:
    """Throughput (A,) that no point of the architectures at `rows` exceeds; 0 where nothing fits in memory.

    Where it is below what is `needed` (A,), it is only known to be that.
    """
    batch = evaluator.task.cluster.global_batch
    least = iteration_bounds(evaluator, rows, None if needed is None else seconds_at(batch, needed))
    return np.asarray(batch / least.min(axis=0) * (1 + BOUND_ROUNDING))


def seconds_at(batch: float, needed: Floats) -> Floats:
    """Iteration time (A,) above which less than a throughput is reached; infinite where none is needed."""
    seconds = batch / np.where(needed > 0, needed, 1.0) * (1 + BOUND_ROUNDING)
    return np.asarray(np.where(needed > 0, seconds, np.inf))


def iteration_bounds(evaluator: Evaluator, rows: Rows, limit_s: Floats | None = None) -> Floats:
    """At most the iteration times of all configs on the architectures at `rows`, (configs, A) seconds.

    Configs of the highest roofline come first. Where one of them takes less than the roofline, or the work, of another
    one leaves, that says enough of the other: no layer is costed for it, or no plan fitted. So it is where they leave
    more than `limit_s` (A,), beyond which nothing is of interest.
    """
    configs = evaluator.configs
    found = np.stack([evaluator.roofline_s(config)[rows] for config in configs])
    least = np.full(len(rows), np.inf) if limit_s is None else limit_s.copy()
    for k in np.argsort(found.sum(axis=1), kind="stable").tolist():
        at = np.flatnonzero(found[k] < least)
        if len(at):
            found[k, at] = np.maximum(found[k, at], evaluator.work_bound(configs[k], rows[at]))
            at = at[found[k, at] < least[at]]
        if len(at):
            found[k, at] = evaluator.iteration_bound(configs[k], rows[at], least[at])
            least[at] = np.minimum(least[at], found[k, at])
    return found


class WorkloadBounds:
    """Bounds and reached throughputs of one workload on architectures by number; they tighten where they are asked to.

    A point that cannot reach the throughput that is needed is given up for good, so what is needed of an
    architecture must never fall from one call to the next.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._configs = evaluator.configs
        self._batch = float(evaluator.task.cluster.global_batch)
        self._places: dict[int, int] = {}
        self._lower_s = np.zeros((len(self._configs), 0))
        self._placed = np.zeros(self._lower_s.shape, dtype=bool)
        self._tried = np.zeros(self._lower_s.shape)  # states of a search that were granted
        self._reached_s = np.zeros(0)
        self._chosen = np.zeros(0, dtype=np.int64)

    def on(self, numbers: Integers, table: ArchitectureTable) -> BoundedArchitectures:
        """Architectures that are asked about together, each number once; new ones are bounded first."""
        evaluator = self._evaluator.on(table)
        new = np.array([i for i, n in enumerate(numbers.tolist()) if n not in self._places], dtype=np.intp)
        if len(new):
            self._places |= {int(numbers[i]): len(self._places) + k for k, i in enumerate(new)}
            self._lower_s = np.concatenate([self._lower_s, iteration_bounds(evaluator, new)], axis=1)
            none = np.zeros((len(self._configs), len(new)))
            self._placed = np.concatenate([self._placed, none.astype(bool)], axis=1)
            self._tried = np.concatenate([self._tried, none], axis=1)
            self._reached_s = np.append(self._reached_s, np.full(len(new), np.inf))
            self._chosen = np.append(self._chosen, np.full(len(new), -1))
        return BoundedArchitectures(self, evaluator, np.array([self._places[n] for n in numbers.tolist()]))

    def found(self, number: int) -> tuple[float, TrainingConfig | None]:
        """Throughput of the best plan that is known of an architecture, and its config."""
        at = self._places[number]
        chosen = self._chosen[at]
        return self._batch / float(self._reached_s[at]), self._configs[chosen] if chosen >= 0 else None


@dataclass(frozen=True)
class BoundedArchitectures:
    """Some architectures, (A,), at their places in the bounds of a workload; `evaluator`: on them alone."""

    bounds: WorkloadBounds
    evaluator: Evaluator
    places: Rows

    @property
    def hoped(self) -> Floats:
        """Throughput (A,) that they cannot exceed; 0 where they are given up."""
        least = self._lower_s.min(axis=0)
        return np.asarray(self._batch / least * (1 + BOUND_ROUNDING))

    @property
    def reached(self) -> Floats:
        """Throughput (A,) that some plan reaches; 0 where none is known."""
        return np.asarray(self._batch / self.bounds._reached_s[self.places])

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Whether no point is better than what is reached, (A,)."""
        reached = self.bounds._reached_s[self.places]
        return np.asarray(np.isfinite(reached) & (self._lower_s.min(axis=0) >= reached))

    @property
    def _batch(self) -> float:
        return self.bounds._batch

    @property
    def _lower_s(self) -> Floats:
        return self.bounds._lower_s[:, self.places]

    def tighten(self, at: Rows, needed: Floats, limits: SolveLimits) -> None:
        """Schedule bounds and exact partitions of the most promising point of each of some, as far as limits allow.

        Architectures whose most promising point cannot reach `needed` (A,) samples/s are left alone.
        """
        places, give_up_s = self.places[at], self._seconds(needed)
        lower_s = self.bounds._lower_s[:, places]
        first = lower_s.argmin(axis=0)
        waiting = (lower_s.min(axis=0) < give_up_s) & ~self.bounds._placed[first, places]
        for k in np.unique(first[waiting]).tolist():
            if limits.over:
                return
            mine = np.flatnonzero(waiting & (first == k))
            self._tighten(k, at[mine], give_up_s[mine], limits)

    def _tighten(self, k: int, at: Rows, give_up_s: Floats, limits: SolveLimits) -> None:
        """The same of some points of one config."""
        config, places = self.evaluator.configs[k], self.places[at]
        found = self.evaluator.bounds(config, at, give_up_s, Patience(limits, limits))
        self.bounds._placed[k, places] = True
        self._take_over(k, places, found)

    def settle(self, at: Rows, needed: Floats, effort: SolveLimits) -> None:
        """Exact schedules in the order of what points promise, until none can be better or reach `needed`.

        Or until the time of the effort is over: what is known then is true, if not all there is to know.
        Points are tightened before: most of them fall without a proven schedule of every pass.
        """
        places = self.places[at]
        while True:
            limit = np.minimum(self._seconds(needed), self.bounds._reached_s[places] * (1 + BOUND_ROUNDING))
            lower_s = self.bounds._lower_s[:, places]
            open_ = (lower_s < limit) & (self.bounds._tried[:, places] < effort.states)
            if not open_.any() or effort.over:
                return
            first = np.where(open_, lower_s, np.inf).argmin(axis=0)
            waiting = open_.any(axis=0)
            k = int(np.bincount(first[waiting]).argmax())
            mine = np.flatnonzero(waiting & (first == k))
            fresh = mine[~self.bounds._placed[k, places[mine]]]
            if len(fresh):
                self._tighten(k, at[fresh], limit[fresh], SolveLimits(effort.left_s))
                continue
            found = self.evaluator.exact(self.evaluator.configs[k], at[mine], limit[mine], effort)
            tried = self.bounds._tried[k, places[mine]]
            self.bounds._tried[k, places[mine]] = np.maximum(tried, effort.states)
            self._take_over(k, places[mine], found)

    def _seconds(self, needed: Floats) -> Floats:
        """Iteration time above which less than the needed throughput is reached."""
        return seconds_at(self._batch, needed)

    def _take_over(self, k: int, places: Rows, found: PointBounds) -> None:
        known = self.bounds
        known._lower_s[k, places] = np.maximum(known._lower_s[k, places], found.lower_s)
        settled = found.lower_s == found.upper_s  # exact, or not to be reached
        known._tried[k, places[settled]] = np.inf
        better = found.upper_s < known._reached_s[places]
        known._reached_s[places[better]] = found.upper_s[better]
        known._chosen[places[better]] = k
