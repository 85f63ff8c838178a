"""One workload of several on a table of architectures: what each could reach, proven step by step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING

# Bounds are sums of some thousand rounded terms; they are relaxed by this much so that rounding never prunes.


def roofline_throughput(evaluator: Evaluator) -> Floats:
    """Throughput (A,) in samples/s of model FLOPs at peak, which nothing exceeds."""
    cluster = evaluator.task.cluster
    peak = fastest_flops_per_s(evaluator.table, evaluator.task, evaluator.task.recipe) * cluster.devices
    return np.asarray(cluster.global_batch * peak / evaluator.model_flops * (1 + BOUND_ROUNDING))


def throughput_bound(evaluator: Evaluator, rows: Rows) -> Floats:
    """Throughput (A,) that no point of the architectures at `rows` exceeds; 0 where nothing fits in memory."""
    least = iteration_bounds(evaluator, rows).min(axis=0)
    return np.asarray(evaluator.task.cluster.global_batch / least * (1 + BOUND_ROUNDING))


def iteration_bounds(evaluator: Evaluator, rows: Rows) -> Floats:
    """At most the iteration times of all configs on the architectures at `rows`, (configs, A) seconds.

    Configs of the highest roofline come first. Where one of them takes less than the roofline, or the work, of another
    one leaves, that says enough of the other: no layer is costed for it, or no plan fitted.
    """
    configs = evaluator.configs
    found = np.stack([evaluator.roofline_s(config)[rows] for config in configs])
    least = np.full(len(rows), np.inf)
    for k in np.argsort(found.sum(axis=1), kind="stable").tolist():
        at = np.flatnonzero(found[k] < least)
        if len(at):
            found[k, at] = evaluator.iteration_bound(configs[k], rows[at], least[at])
            least[at] = np.minimum(least[at], found[k, at])
    return found


class WorkloadBounds:
    """Bounds and reached throughputs of one workload; they tighten where they are asked to.

    A point that cannot reach the throughput that is needed is given up for good, so what is needed of an
    architecture must never fall from one call to the next.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        rows = np.arange(len(evaluator.table))
        self._evaluator = evaluator
        self._configs = evaluator.configs
        self._batch = float(evaluator.task.cluster.global_batch)
        shape = (len(self._configs), len(rows))
        self._lower_s = iteration_bounds(evaluator, rows)
        self._placed = np.zeros(shape, dtype=bool)
        self._tried = np.zeros(shape, dtype=bool)
        self._reached_s = np.full(len(rows), np.inf)
        self._chosen = np.full(len(rows), -1)

    def hoped(self, at: Rows) -> Floats:
        """Throughput (A,) that the architectures at `at` cannot exceed; 0 where they are given up."""
        return np.asarray(self._batch / self._lower_s[:, at].min(axis=0) * (1 + BOUND_ROUNDING))

    def reached(self, at: Rows) -> Floats:
        """Throughput (A,) that some plan reaches; 0 where none is known."""
        return np.asarray(self._batch / self._reached_s[at])

    def exact(self, at: Rows) -> NDArray[np.bool_]:
        """Whether no point is better than what is reached, (A,)."""
        reached = self._reached_s[at]
        return np.asarray(np.isfinite(reached) & (self._lower_s[:, at].min(axis=0) >= reached))

    def config(self, row: int) -> TrainingConfig | None:
        """The config of the best plan known."""
        return self._configs[self._chosen[row]] if self._chosen[row] >= 0 else None

    def tighten(self, at: Rows, needed: Floats) -> None:
        """Schedule bounds and exact partitions until the most promising point of each has them.

        Architectures whose most promising point cannot reach `needed` (A,) samples/s are left alone.
        """
        give_up_s = self._seconds(needed)
        while True:
            first = self._lower_s[:, at].argmin(axis=0)
            waiting = (self._lower_s[first, at] < give_up_s) & ~self._placed[first, at]
            if not waiting.any():
                return
            k = int(np.bincount(first[waiting]).argmax())
            mine = np.flatnonzero(waiting & (first == k))
            rows = at[mine]
            found = self._evaluator.bounds(self._configs[k], rows, give_up_s[mine])
            self._placed[k, rows] = True
            self._take_over(k, rows, found.lower_s, found.upper_s)

    def settle(self, at: Rows, needed: Floats, effort: SolveLimits) -> None:
        """Exact schedules in the order of what points promise, until none can be better or reach `needed`."""
        while True:
            limit = np.minimum(self._seconds(needed), self._reached_s[at] * (1 + BOUND_ROUNDING))
            open_ = (self._lower_s[:, at] < limit) & ~self._tried[:, at]
            if not open_.any():
                return
            first = np.where(open_, self._lower_s[:, at], np.inf).argmin(axis=0)
            waiting = open_.any(axis=0)
            k = int(np.bincount(first[waiting]).argmax())
            mine = np.flatnonzero(waiting & (first == k))
            rows = at[mine]
            found = self._evaluator.exact(self._configs[k], rows, limit[mine], effort)
            self._tried[k, rows] = True
            self._take_over(k, rows, found.lower_s, found.upper_s)

    def _seconds(self, needed: Floats) -> Floats:
        """Iteration time above which less than the needed throughput is reached."""
        seconds = self._batch / np.where(needed > 0, needed, 1.0) * (1 + BOUND_ROUNDING)
        return np.asarray(np.where(needed > 0, seconds, np.inf))

    def _take_over(self, k: int, rows: Rows, lower_s: Floats, upper_s: Floats) -> None:
        self._lower_s[k, rows] = np.maximum(self._lower_s[k, rows], lower_s)
        better = rows[upper_s < self._reached_s[rows]]
        self._reached_s[better] = upper_s[upper_s < self._reached_s[rows]]
        self._chosen[better] = k
