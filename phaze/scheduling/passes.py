"""One pass of one layer on accelerators: from operator costs to the time it takes.

The time of a pass is the makespan of its operators on the cores, but never less than the time its bytes
need through HBM and through the global buffer: operators that run side by side share memory
(definitions: batches and time).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel, OperatorLatencies, PassCosts
from phaze.hardware.table import ArchitectureTable
from phaze.solvers.scheduling import Operator, ScheduleProblem, ScheduleResult, schedule
from phaze.solvers.scheduling.batch.graph import BatchGraph
from phaze.solvers.scheduling.batch.solve import batch_bounds
from phaze.workload.work import Pass, Unit

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]

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
class Band:
    """The time of a pass is proven to lie between `lower_s` and `upper_s`, both (A,) seconds.

    Where the two meet the time is known exactly. `upper_s` is the length of a real schedule: one that passed
    the schedule checker, or one of the batch solver's, which places operators one by one as a list schedule
    does, each on cores it has found free, and reports when the last one ends. It keeps only that length, so it
    is not checked again at run time; the tests write its starts down and hold them against the checker.
    """

    lower_s: FloatArray
    upper_s: FloatArray


@dataclass(frozen=True, slots=True)
class Effort:
    """How far exact scheduling may go: the seconds left, and the states of one search (a reproducible limit)."""

    left_s: Callable[[], float]
    states: float = math.inf


@dataclass(frozen=True, slots=True)
class _Solved:
    """A schedule, and the limit on states under which it was found."""

    states: float
    result: ScheduleResult


@dataclass(frozen=True)
class TimedPass:
    """A pass with its operator costs over a table of architectures."""

    costs: PassCosts
    table: ArchitectureTable
    graph: BatchGraph  # the operators as the batch solver takes them
    _solved: dict[tuple[object, ...], _Solved] = field(default_factory=dict)

    @classmethod
    def of(cls, costs: PassCosts, table: ArchitectureTable) -> TimedPass:
        """A pass of which nothing is scheduled yet."""
        units = tuple(UNITS_OF[w.unit] for w in costs.pass_.works)
        return cls(costs, table, BatchGraph(units=units, edges=costs.pass_.edges, unblocked=UNBLOCKED))

    def on(self, model: CostModel, table: ArchitectureTable) -> TimedPass:
        """The same pass on other architectures, at a model derived from this one's; schedules are shared."""
        return replace(self, costs=self.costs.on(model), table=table)

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

    def band(self, rows: Rows) -> Band:
        """Bounds on the time of the pass for the architectures at `rows`."""
        if not self.work.works:
            return Band(np.zeros(len(rows)), np.zeros(len(rows)))
        latencies = self.costs.latencies(rows)
        bounds = batch_bounds(self.graph, latencies.single_s, latencies.parallel_s, self.capacity(rows))
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s)
        return Band(np.maximum(bounds.lower_s, floor), np.maximum(bounds.upper_s, floor))

    def exact(self, rows: Rows, band: Band, effort: Effort) -> Band:
        """An open band narrowed to the exact time, as far as the effort allows; all rows are solved.

        Architectures with the same latencies and cores share one answer.
        """
        if not self.work.works:
            return Band(np.zeros(len(rows)), np.zeros(len(rows)))
        latencies, capacity = self.costs.latencies(rows), self.capacity(rows)
        floor = np.maximum(latencies.hbm_s, latencies.buffer_s)
        lower, upper = band.lower_s.copy(), band.upper_s.copy()
        for i in range(len(rows)):
            cores = {unit: int(count[i]) for unit, count in capacity.items()}
            result = self._solve(schedule_problem(self.work, latencies, i, cores), effort)
            lower[i] = max(lower[i], result.lower_bound_s, floor[i])
            upper[i] = max(lower[i], min(upper[i], max(result.makespan_s, floor[i])))
        return Band(lower, upper)

    def _solve(self, problem: ScheduleProblem, effort: Effort) -> ScheduleResult:
        """The schedule of a problem, from memory if it is optimal or was searched as long before."""
        key = (problem.operators, *problem.capacity.values())
        known = self._solved.get(key)
        if known is None or not (known.result.optimal or known.states >= effort.states):
            limit = None if math.isinf(effort.states) else int(effort.states)
            result = schedule(problem, time_limit_s=effort.left_s(), state_limit=limit)
            known = self._solved[key] = _Solved(effort.states, result)
        return known.result


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
