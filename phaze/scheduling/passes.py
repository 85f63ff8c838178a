"""One pass of one layer on accelerators: from operator costs to the time it takes.

The time of a pass is the makespan of its operators on the cores, but never less than the time its bytes
need through HBM and through the global buffer: operators that run side by side share memory
(definitions: batches and time).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel, OperatorLatencies, PassCosts
from phaze.cost.serial_blocks import SerialBlocks
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.memo import Memo
from phaze.scheduling.effort import ENDLESS, SolveLimits
from phaze.scheduling.known import KnownRows
from phaze.scheduling.solved import SolvedSchedules
from phaze.solvers.scheduling import Operator, ScheduleProblem
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.batch.search import search
from phaze.solvers.scheduling.batch.solve import (
    BatchBounds,
    batch_bounds,
    bounds_in_many_phases,
    settled_in_phases,
)
from phaze.workload.work import Pass, Unit

__all__ = ["SolveLimits", "TimeBounds", "TimedPass", "bound_together", "schedule_problem"]


PHASED_TOGETHER = 32
"""Architectures whose sequences of phases are worked out between two looks at the limits."""

NEVER_S = 1e30
"""Stands for infinitely long where sums must stay finite."""
UNITS_OF = {
    Unit.TENSOR: ("TC",),
    Unit.VECTOR: ("VC",),
    Unit.TENSOR_VECTOR: ("TC", "VC"),
    Unit.LINK: ("LINK",),
}
# A core-parallel operator blocks tensor and vector cores, not the link (definitions).
UNBLOCKED = frozenset({"LINK"})


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """The time of a pass is proven to lie between `lower_s` and `upper_s`, both (A,) seconds.

    Where the two meet the time is known exactly. `upper_s` is the length of a real schedule: one that passed
    the schedule checker, or one of the batch solver's, which places operators one by one as a list schedule
    does, each on cores it has found free, and reports when the last one ends. It keeps only that length, so it
    is not checked again at run time; the tests write its starts down and hold them against the checker.
    """

    lower_s: Floats
    upper_s: Floats


@dataclass(frozen=True)
class TimedPass:
    """A pass with its operator costs over a table of architectures."""

    costs: PassCosts
    table: ArchitectureTable
    solved: SolvedSchedules
    blocks: SerialBlocks
    _optimal: dict[bytes, float] = field(default_factory=dict)
    _rough: KnownRows = field(default_factory=KnownRows)
    _proven: KnownRows = field(default_factory=KnownRows)
    _phased: KnownRows = field(default_factory=KnownRows)

    @classmethod
    def of(cls, costs: PassCosts, table: ArchitectureTable, memo: Memo | None = None) -> TimedPass:
        """A pass of which this search has scheduled nothing yet."""
        units = tuple(UNITS_OF[w.unit] for w in costs.pass_.works)
        graph = BatchGraph(units=units, edges=costs.pass_.edges, unblocked=UNBLOCKED)
        return cls(costs, table, SolvedSchedules(graph, memo), SerialBlocks.of(costs.pass_))

    def on(self, model: CostModel, table: ArchitectureTable) -> TimedPass:
        """The same pass on other architectures, at a model derived from this one's; schedules are shared."""
        return replace(self, costs=self.costs.on(model), table=table)

    @property
    def graph(self) -> BatchGraph:
        """The operators as the batch solver takes them."""
        return self.solved.graph

    @property
    def work(self) -> Pass:
        """The operators."""
        return self.costs.pass_

    def capacity(self, rows: Rows) -> dict[str, NDArray[np.int64]]:
        """Cores per unit type, (A,) each."""
        return {
            "TC": self.table["tensor_cores"][rows].astype(np.int64),
            "VC": self.table["vector_cores"][rows].astype(np.int64),
            "LINK": np.ones(len(rows), dtype=np.int64),
        }

    def least_s(self, rows: Rows) -> Floats:
        """Lower bound of the time of the pass, (A,) seconds, without a schedule: cheaper than `bounds`."""
        latencies = self.costs.latencies(rows)
        cores = self.table["tensor_cores"][rows], self.table["vector_cores"][rows]
        found = self.blocks.least_s(latencies.single_s, latencies.parallel_s, *cores)
        return np.maximum(found, np.maximum(latencies.hbm_s, latencies.buffer_s))

    def bounds(self, rows: Rows, *, rough: bool = False, limits: SolveLimits = ENDLESS.ends) -> TimeBounds:
        """Bounds on the time of the pass for the architectures at `rows`; `rough`: looser, and cheap.

        They are kept for every combination of hardware: chains of several shapes have equal passes.
        Raises LimitsOver where the time is over before they are known.
        """
        if not self.work.works:
            return TimeBounds(np.zeros(len(rows)), np.zeros(len(rows)))
        if rough:
            latencies, capacity = self.costs.latencies(rows), self.capacity(rows)
            return _floored(self._first_bounds(rows, latencies, capacity, limits), latencies)

        def work_out(new: Rows) -> Floats:
            latencies, capacity = self.costs.latencies(rows[new]), self.capacity(rows[new])

            def bands() -> Floats:
                durations = latencies.single_s, latencies.parallel_s
                first = self._first_bounds(rows[new], latencies, capacity, limits)
                tight = batch_bounds(self.graph, *durations, capacity, known=first, look=limits.look)
                found = _floored(tight, latencies)
                return np.stack([found.lower_s, found.upper_s], axis=1)

            return self.solved.recalled((latencies, capacity), (len(new), 2), bands)

        found = self._proven.get(self.costs.factors.shown(rows), work_out)
        return TimeBounds(found[:, 0], found[:, 1])

    def missing(self, rows: Rows) -> dict[Hashable, int]:
        """Combinations of hardware of which no bounds are known, each with one of its positions in `rows`."""
        return self._rough.missing(self.costs.factors.shown(rows))

    def keep(self, first: Mapping[Hashable, Floats], found: Mapping[Hashable, Floats]) -> None:
        """Remember bounds, (2,) seconds, of some of them: those of one list schedule, and what `bounds` tells."""
        self._rough.keep(first)
        self._proven.keep(found)

    def _first_bounds(
        self,
        rows: Rows,
        latencies: OperatorLatencies,
        capacity: dict[str, NDArray[np.int64]],
        limits: SolveLimits,
    ) -> BatchBounds:
        """Bounds from one list schedule, kept for every combination of hardware."""

        def work_out(new: Rows) -> Floats:
            some, cores = latencies.take(new), {unit: count[new] for unit, count in capacity.items()}
            durations = some.single_s, some.parallel_s
            bounds = batch_bounds(self.graph, *durations, cores, rough=True, look=limits.look)
            return np.stack([bounds.lower_s, bounds.upper_s], axis=1)

        found = self._rough.get(self.costs.factors.shown(rows), work_out)
        return BatchBounds(found[:, 0], found[:, 1])

    def exact(self, rows: Rows, bounds: TimeBounds, limits: SolveLimits) -> TimeBounds:
        """An open band narrowed to the exact time, as far as the effort allows; all rows are solved.

        What comes after that keeps the bounds that are known. Architectures with the same latencies and cores share
        one answer.
        """
        if not self.work.works:
            return TimeBounds(np.zeros(len(rows)), np.zeros(len(rows)))
        latencies, capacity = self.costs.latencies(rows), self.capacity(rows)
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s)
        bounds = self._in_phases(rows, latencies, capacity, bounds, limits)
        length = self._searched(latencies, capacity, bounds.upper_s, limits)
        length = np.where(bounds.lower_s == bounds.upper_s, bounds.upper_s, length)
        lower = np.maximum(np.maximum(bounds.lower_s, length), floor)
        upper = lower.copy()
        left = np.flatnonzero(np.isnan(length))
        lower[left] = np.maximum(bounds.lower_s, floor)[left]
        upper[left] = np.maximum(lower, bounds.upper_s)[left]
        if not self.solved.may_tell(limits):
            return TimeBounds(lower, upper)
        problems = [
            schedule_problem(
                self.work, latencies, i, {unit: int(count[i]) for unit, count in capacity.items()}
            )
            for i in left.tolist()
        ]
        found = self.solved.solve(problems, latencies.take(left), limits)
        for i, makespan in zip(left.tolist(), found, strict=True):
            lower[i] = max(bounds.lower_s[i], makespan.lower_s, floor[i])
            upper[i] = max(lower[i], min(bounds.upper_s[i], max(makespan.upper_s, floor[i])))
        return TimeBounds(lower, upper)

    def _in_phases(
        self,
        rows: Rows,
        latencies: OperatorLatencies,
        capacity: dict[str, NDArray[np.int64]],
        bounds: TimeBounds,
        limits: SolveLimits,
    ) -> TimeBounds:
        """Bounds tightened by sequences of phases, kept for every combination of hardware.

        Beyond the limits by those that are known.
        """
        if not len(rows) or settled_in_phases(self.graph):
            return bounds
        keys = self.costs.factors.shown(rows)
        new = np.array(list(self._phased.missing(keys).values()), dtype=np.intp)
        for begin in range(0, len(new), PHASED_TOGETHER):
            if limits.over:
                break
            at = new[begin : begin + PHASED_TOGETHER]
            some, cores = latencies.take(at), {unit: count[at] for unit, count in capacity.items()}
            known = BatchBounds(bounds.lower_s[at], bounds.upper_s[at])
            tight = bounds_in_many_phases(self.graph, some.single_s, some.parallel_s, cores, known)
            found = np.stack([tight.lower_s, tight.upper_s], axis=1)
            self._phased.keep(dict(zip([keys[i] for i in at.tolist()], found, strict=True)))
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s)
        lower, upper = self._phased.known(keys, np.stack([bounds.lower_s, bounds.upper_s], axis=1)).T
        upper = np.minimum(bounds.upper_s, np.maximum(upper, floor))
        return TimeBounds(np.minimum(np.maximum(bounds.lower_s, lower), upper), upper)

    def _searched(
        self,
        latencies: OperatorLatencies,
        capacity: dict[str, NDArray[np.int64]],
        upper_s: Floats,
        limits: SolveLimits,
    ) -> Floats:
        """Optimal makespans, (A,) s, of all architectures at once; NaN where that takes too long for one of them."""
        cores = np.stack(list(capacity.values()), axis=1).astype(np.float64)
        asked = np.concatenate([latencies.single_s, latencies.parallel_s, cores], axis=1)
        keys = [row.tobytes() for row in asked]
        if limits.over:
            return np.array([self._optimal.get(key, np.nan) for key in keys])
        new = {key: i for i, key in enumerate(keys) if key not in self._optimal}
        at = np.array(list(new.values()), dtype=np.intp)
        found, complete = search(
            self.graph,
            latencies.single_s[at].T,
            latencies.parallel_s[at].T,
            {unit: count[at] for unit, count in capacity.items()},
            upper_s[at],
        )
        self._optimal.update(zip(new, np.where(complete, found, np.nan).tolist(), strict=True))
        return np.array([self._optimal[key] for key in keys])


def bound_together(passes: Sequence[TimedPass], rows: Rows) -> None:
    """Work out what `bounds` of passes will be asked for at some rows: of equal graphs at once, as of one on more rows.

    Operators that differ in size alone, in layers of another width or batch, make equal graphs.
    """
    alike: dict[BatchGraph, list[TimedPass]] = {}
    for one in {id(p): p for p in passes}.values():
        if one.work.works:
            alike.setdefault(one.graph, []).append(one)
    for some in alike.values():
        if len(some) > 1:
            _bound_alike(some, rows)


def _bound_alike(passes: Sequence[TimedPass], rows: Rows) -> None:
    """The same of passes of one graph."""
    new = [p.missing(rows) for p in passes]
    wanted = [(p, keys, rows[list(keys.values())]) for p, keys in zip(passes, new, strict=True) if keys]
    if not wanted:
        return
    latencies = [p.costs.latencies(some) for p, _, some in wanted]
    cores = [p.capacity(some) for p, _, some in wanted]
    given = (
        passes[0].graph,
        np.concatenate([one.single_s for one in latencies]),
        np.concatenate([one.parallel_s for one in latencies]),
        {unit: np.concatenate([one[unit] for one in cores]) for unit in cores[0]},
    )
    first = batch_bounds(*given, rough=True)
    found = batch_bounds(*given, known=first)
    floors = np.concatenate([np.maximum(one.hbm_s, one.buffer_s) for one in latencies])
    rough = np.stack([first.lower_s, first.upper_s], axis=1)
    both = np.stack([np.maximum(found.lower_s, floors), np.maximum(found.upper_s, floors)], axis=1)
    ends = np.cumsum([len(keys) for _, keys, _ in wanted])[:-1]
    for (p, keys, _), before, some in zip(wanted, np.split(rough, ends), np.split(both, ends), strict=True):
        p.keep(dict(zip(keys, before, strict=True)), dict(zip(keys, some, strict=True)))


def _floored(bounds: BatchBounds, latencies: OperatorLatencies) -> TimeBounds:
    """Bounds that are no less than what the bytes of the pass take."""
    floor = np.maximum(latencies.hbm_s, latencies.buffer_s)
    return TimeBounds(np.maximum(bounds.lower_s, floor), np.maximum(bounds.upper_s, floor))


def schedule_problem(
    work: Pass, latencies: OperatorLatencies, position: int, capacity: dict[str, int]
) -> ScheduleProblem:
    """The scheduling problem of one architecture of some latencies; a collective without links takes `NEVER_S`."""
    operators = tuple(
        Operator(
            id=str(i),
            units=UNITS_OF[w.unit],
            latency_s=min(float(latencies.single_s[position, i]), NEVER_S),
            parallel_latency_s=None if w.unit is Unit.LINK else float(latencies.parallel_s[position, i]),
        )
        for i, w in enumerate(work.works)
    )
    edges = tuple((str(a), str(b)) for a, b in work.edges)
    return ScheduleProblem(operators=operators, edges=edges, capacity=capacity, unblocked=UNBLOCKED)
