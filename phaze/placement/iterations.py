"""The least iteration time over all degrees and stage cuts: bounds first, exact partitions only where needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.placement.basis import Basis, Rates
from phaze.placement.cluster import Recompute
from phaze.placement.options import NEVER_S
from phaze.placement.plan import Plan, StagePlan
from phaze.scheduling.layers import LayerTimes
from phaze.solvers.placement.partition import (
    PartitionProblem,
    batch_cuts,
    bottlenecks,
    lower_bounds,
    weighted_bottlenecks,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# Options solved together: enough to share the overhead, few enough to profit from what is learnt.
_AT_ONCE = 8


class Iterations:
    """All degrees of (A,) architectures under one basis; `lower` (A, O) tightens until the minimum is known."""

    def __init__(self, basis: Basis, times: LayerTimes, rates: Rates) -> None:
        self._basis = basis
        self._times = times
        self._rates = rates
        self._options = basis.roomy
        self._weight_rate, self._latency = basis.weight_rates(rates, self._options)
        self._problems: dict[tuple[int, int | None], PartitionProblem] = {}
        self.lower: FloatArray = self._seconds(self._average_load())

    def _seconds(self, load_s: FloatArray) -> FloatArray:
        """Iteration times (A, O) from loads of the slowest stage, with the least possible largest stage."""
        weight = self._basis.least_weight[self._options.stages - 1]
        seconds: FloatArray = load_s * self._options.slots + weight * self._weight_rate + self._latency
        return seconds

    def _average_load(self) -> FloatArray:
        """The slowest stage takes at least the average, and at least the slowest layer, (A, O)."""
        found = np.empty((len(self._times.forward_s), len(self._options.stages)))
        for tier in np.unique(self._options.pipeline_tier):
            here = self._options.pipeline_tier == tier
            problem = self._problem(int(tier), None)
            stages = self._options.stages[here]
            # The last stage need not recompute: its forward share is at most `spare` of the slowest load.
            inner = problem.inner_s
            spare = ((inner - problem.plain_s) / np.maximum(problem.plain_s, 1e-300)).max(axis=1)[:, None]
            cut = problem.boundary_s[:, 1:-1].min(axis=1, initial=np.inf)[:, None]
            cut = np.where(np.isfinite(cut), cut, 0.0)
            total = inner.sum(axis=1)[:, None] + 2 * (stages - 1) * cut
            slowest = problem.plain_s.max(axis=1)[:, None]
            several = np.maximum(total / (stages + spare), slowest)
            found[:, here] = np.where(stages == 1, problem.plain_s.sum(axis=1)[:, None], several) * (
                1 - 1e-12
            )
        return found

    def _problem(self, tier: int, in_flight: int | None) -> PartitionProblem:
        key = (tier, in_flight)
        if key not in self._problems:
            self._problems[key] = self._basis.problem(self._times, self._rates, tier, in_flight)
        return self._problems[key]

    def _key(self, option: int) -> tuple[int, int | None]:
        """Which partition problem an option belongs to; a short batch holds fewer microbatches than its depth."""
        o = self._options
        limit = self._basis.memory.limit(int(o.stages[option]), int(o.microbatches[option]))
        return int(o.pipeline_tier[option]), limit

    def solve(self, give_up_s: FloatArray | None = None) -> tuple[FloatArray, IntArray]:
        """(least iteration time (A,), option that reaches it (A,)); exact for the given layer times.

        An architecture that cannot get below its `give_up_s` is told to take infinitely long.
        """
        best = np.full(len(self.lower), np.inf) if give_up_s is None else give_up_s.copy()
        choice = np.full(len(self.lower), -1, dtype=np.int64)
        self._count(best)
        stage = np.zeros(self.lower.shape, dtype=np.int8)
        steps = (self._partitioned, self._weighted)
        while True:
            open_ = (stage < len(steps)) & (self.lower < best[:, None])
            rows = np.flatnonzero(open_.any(axis=1))
            if not len(rows):
                choice[best >= NEVER_S] = -1
                return np.where(choice >= 0, best, np.inf), choice
            wanted = np.where(open_[rows], self.lower[rows], np.inf).argmin(axis=1)
            level = int(stage[rows, wanted].min())
            cheapest = stage[rows, wanted] == level
            group = self._group(wanted[cheapest])
            rows = rows[(open_ & (stage == level))[np.ix_(rows, group)].any(axis=1)]
            at = np.ix_(rows, np.array(group))
            values = np.maximum(steps[level](rows, group), self.lower[at])
            self.lower[at] = values
            stage[at] = np.maximum(stage[at], level + 1)
            if level + 1 == len(steps):
                least = values.argmin(axis=1)
                found = values[np.arange(len(rows)), least]
                better = found < best[rows]
                best[rows[better]], choice[rows[better]] = found[better], group[least[better]]

    def _group(self, wanted: IntArray) -> IntArray:
        """The most wanted options that share one partition problem with the most wanted of all."""
        candidates, count = np.unique(wanted, return_counts=True)
        candidates = candidates[np.argsort(-count, kind="stable")]
        key = self._key(int(candidates[0]))
        same = [int(c) for c in candidates if self._key(int(c)) == key]
        return np.array(same[:_AT_ONCE], dtype=np.int64)

    def hopeful(self, give_up_s: FloatArray) -> NDArray[np.bool_]:
        """Whether bounds without a partition leave it open that an architecture gets below its `give_up_s`, (A,)."""
        self._count(give_up_s)
        return np.asarray((self.lower < give_up_s[:, None]).any(axis=1))

    def _count(self, give_up_s: FloatArray) -> None:
        """Raise the bounds of all options that may get below `give_up_s`: count the layers that repeat."""
        open_ = self.lower < give_up_s[:, None]
        rows = np.flatnonzero(open_.any(axis=1))
        alike: dict[tuple[int, int | None], list[int]] = {}
        for option in np.flatnonzero(open_.any(axis=0)).tolist():
            alike.setdefault(self._key(option), []).append(option)
        for key, group in alike.items():
            stages, which = np.unique(self._options.stages[group], return_inverse=True)
            load_s = lower_bounds(self._problem(*key).select(rows), stages.tolist())[:, which]
            at = np.ix_(rows, np.array(group))
            self.lower[at] = np.maximum(self.lower[at], self._at(load_s, rows, np.array(group)))

    def _partitioned(self, rows: IntArray, group: IntArray) -> FloatArray:
        """Exact loads of the slowest stage, the largest stage's parameters still bounded from below."""
        problem = self._problem(*self._key(int(group[0]))).select(rows)
        return self._at(bottlenecks(problem, self._options.stages[group].tolist()), rows, group) * (1 - 1e-12)

    def _at(self, load_s: FloatArray, rows: IntArray, group: IntArray) -> FloatArray:
        weight = self._basis.least_weight[self._options.stages[group] - 1]
        rate = self._weight_rate[np.ix_(rows, group)]
        seconds: FloatArray = load_s * self._options.slots[group] + weight * rate + self._latency[group]
        return seconds

    def _weighted(self, rows: IntArray, group: IntArray) -> FloatArray:
        """Exact values."""
        o = self._options
        found = weighted_bottlenecks(
            self._problem(*self._key(int(group[0]))).select(rows),
            o.stages[group].tolist(),
            self._basis.parameters,
            o.slots[group].astype(np.float64),
            self._weight_rate[np.ix_(rows, group)],
        )
        value: FloatArray = found.value + self._latency[group]
        return value

    def value(self, choice: IntArray) -> FloatArray:
        """Exact iteration time (A,) of one given option per architecture; infinite where it is -1."""
        seconds = np.full(len(choice), np.inf)
        for option in np.unique(choice[choice >= 0]):
            rows = np.flatnonzero(choice == option)
            seconds[rows] = self._weighted(rows, np.array([option]))[:, 0]
        return seconds

    # -- plans ------------------------------------------------------------------------------------------------

    @cached_property
    def _transfers(self) -> dict[int, FloatArray]:
        return {
            t: self._basis.boundaries(self._rates, t) for t in range(len(self._basis.cluster.network.tiers))
        }

    def plans(self, choice: IntArray) -> list[Plan | None]:
        """The plan behind one option per architecture, (A,); None where it is -1."""
        found: list[Plan | None] = [None] * len(choice)
        for option in np.unique(choice[choice >= 0]).tolist():
            rows = np.flatnonzero(choice == option)
            cuts = batch_cuts(
                self._problem(*self._key(option)).select(rows),
                int(self._options.stages[option]),
                self._basis.parameters,
                np.full(len(rows), float(self._options.slots[option])),
                self._weight_rate[rows, option],
            )
            for row, partition in zip(rows.tolist(), cuts, strict=True):
                found[row] = self._plan(row, option, partition.starts)
        return found

    def _plan(self, row: int, option: int, starts: tuple[int, ...]) -> Plan:
        o, basis = self._options, self._basis
        ends = [*(start - 1 for start in starts[1:]), len(basis.index) - 1]
        ranges = tuple(zip(starts, ends, strict=True))
        transfers = self._transfers[int(o.pipeline_tier[option])]
        stages = stage_plans(basis, ranges, self._times, transfers, int(o.microbatches[option]), row)
        largest = max(s.parameters for s in stages)
        slots = int(o.microbatches[option]) + len(stages) - 1
        step = largest * (float(self._rates.optimizer_s[row]) if basis.training else 0.0)
        reduction = largest * float(self._weight_rate[row, option]) - step + float(self._latency[option])
        slowest = max(s.load_s for s in stages)
        return Plan(
            microbatch=basis.chain.microbatch,
            tensor_parallel=basis.chain.tensor_parallel,
            recompute=_told(basis.recompute, stages),
            data_parallel=int(o.data_parallel[option]),
            microbatches=int(o.microbatches[option]),
            stages=stages,
            reduction_s=reduction,
            optimizer_s=step,
            iteration_s=slowest * slots + reduction + step,
        )


def _told(asked: Recompute, stages: Sequence[StagePlan]) -> Recompute:
    """What the plan recomputes: full only if some stage does."""
    if asked is not Recompute.FULL:
        return asked
    return Recompute.FULL if any(s.recompute for s in stages) else Recompute.NONE


def stage_plans(
    basis: Basis,
    ranges: Sequence[tuple[int, int]],
    times: LayerTimes,
    transfers_s: FloatArray,
    microbatches: int,
    row: int = 0,
) -> tuple[StagePlan, ...]:
    """What the stages of layers first..last, (first, last) each, come to on the architecture at `row` of `times`.

    `transfers_s` (A, L + 1): what a cut costs a stage; see `Basis.boundaries`. `microbatches` of one pipeline.
    """
    memory, index = basis.memory, basis.index
    forward, backward = times.forward_s[row, index], times.backward_s[row, index]
    stages = []
    for depth, (first, last) in zip(range(len(ranges), 0, -1), ranges, strict=True):
        part = slice(first, last + 1)
        held = memory.held(depth, microbatches)
        plain_fits = memory.peak_bytes(first, last, 1, recompute=False) <= memory.memory_bytes
        redo = memory.recompute and (depth > 1 or not plain_fits)
        moved = float(transfers_s[row, first] + transfers_s[row, last + 1])
        again = redo or basis.recomputes_everywhere
        load = float((forward[part] * (2 if again else 1) + backward[part]).sum()) + moved
        stages.append(
            StagePlan(
                first=first,
                last=last,
                recompute=again,
                load_s=load,
                transfer_s=moved,
                parameters=int(basis.parameters[part].sum()),
                memory_bytes=memory.peak_bytes(first, last, held, redo),
            )
        )
    return tuple(stages)
