"""One operator graph on many architectures at once: proven lower bounds and real upper bounds of the
makespan.

Arrays of durations are (A, O): architectures by operators, seconds. Inside, blocks of architectures are
turned
to (O, A), so that every loop is over operators and every step over contiguous architectures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from . import batch_lower, batch_phases, batch_upper

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BLOCK = 1024
"""Architectures per block: the arrays of 20 operators then stay in a core's second-level cache."""


CLOSED = 1.0 - 1e-12
"""Bounds closer than this are one number: what sums in another order can lose."""


@dataclass(frozen=True)
class BatchGraph:
    """Operators by position: the units each holds one core of, and (before, after) edges.

    A core-parallel operator excludes every operator that needs a unit outside `unblocked`.
    Raises ValueError where an edge points nowhere or the edges have a cycle.
    """

    units: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[int, int], ...]
    unblocked: frozenset[str] = frozenset({"LINK"})

    def __post_init__(self) -> None:
        """Check positions and order once."""
        for k, edge in enumerate(self.edges):
            if not all(0 <= end < self.size for end in edge):
                raise ValueError(f"edges[{k}]: {edge} names no operator; there are {self.size}")
        if len(self.order) < self.size:
            raise ValueError("edges: the precedence graph has a cycle")

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.units)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Direct successors of every operator."""
        found: list[set[int]] = [set() for _ in self.units]
        for before, after in self.edges:
            found[before].add(after)
        return tuple(tuple(sorted(row)) for row in found)

    @cached_property
    def reverse(self) -> BatchGraph:
        """The graph with every edge turned round."""
        return BatchGraph(self.units, tuple((after, before) for before, after in self.edges), self.unblocked)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Positions, each after its predecessors."""
        waiting = self.adjacency.sum(axis=0).astype(int).tolist()
        order = [i for i, count in enumerate(waiting) if count == 0]
        for i in order:
            for j in self.successors[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    order.append(j)
        return tuple(order)

    @cached_property
    def adjacency(self) -> FloatArray:
        """(O, O): 1 where the column follows the row directly."""
        matrix = np.zeros((self.size, self.size))
        for i, row in enumerate(self.successors):
            matrix[i, list(row)] = 1.0
        return matrix

    @cached_property
    def below(self) -> tuple[list[int], ...]:
        """Everything that follows each operator, directly or not."""
        reach: list[set[int]] = [set() for _ in self.units]
        for i in reversed(self.order):
            for j in self.successors[i]:
                reach[i] |= reach[j] | {j}
        return tuple(sorted(row) for row in reach)

    @cached_property
    def above(self) -> tuple[list[int], ...]:
        """Everything that precedes each operator, directly or not."""
        return tuple([i for i in range(self.size) if j in self.below[i]] for j in range(self.size))

    @cached_property
    def core(self) -> NDArray[np.bool_]:
        """(O,): whether the operator excludes core-parallel ones."""
        return np.array([not self.unblocked.issuperset(row) for row in self.units], dtype=bool)

    @cached_property
    def phases(self) -> batch_phases.PhaseSpace | None:
        """Sets of operators between which phases lie, None where there are too many."""
        return batch_phases.phase_space(self)

    def users(self, unit: str) -> FloatArray:
        """(O,): 1 where the operator holds a core of the unit."""
        return np.array([float(unit in row) for row in self.units])


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """`lower_s` <= optimal makespan <= `upper_s`, (A,) each; a real schedule has the length `upper_s`."""

    lower_s: FloatArray
    upper_s: FloatArray


def batch_critical_path(graph: BatchGraph, latency_s: FloatArray) -> FloatArray:
    """Longest path (A,) of latencies (A, O), s: the makespan without core limits."""
    tails = batch_lower.sweep(graph, np.ascontiguousarray(latency_s.T), forward=False)
    length: FloatArray = (latency_s.T + tails).max(axis=0, initial=0.0)
    return length


def batch_bounds(
    graph: BatchGraph, single_s: FloatArray, parallel_s: FloatArray, capacity: Mapping[str, IntArray]
) -> BatchBounds:
    """Bounds of the optimal makespan on every architecture.

    `single_s`, `parallel_s`: (A, O), inf where a mode is impossible; `capacity`: cores (A,) of every unit.
    Counts cores, so pairing is not modelled. Raises ValueError where `capacity` lacks a unit.
    """
    if missing := {unit for row in graph.units for unit in row} - set(capacity):
        raise ValueError(f"capacity: no cores given for {', '.join(sorted(missing))}")
    count = len(single_s)
    lower, upper = np.zeros(count), np.zeros(count)
    if graph.size == 0:
        return BatchBounds(lower, upper)
    for begin in range(0, count, BLOCK):
        rows = slice(begin, begin + BLOCK)
        cores = {unit: np.asarray(capacity[unit], dtype=np.int64)[rows] for unit in capacity}
        single = np.ascontiguousarray(single_s[rows].T)
        lower[rows], upper[rows] = _block(graph, single, np.ascontiguousarray(parallel_s[rows].T), cores)
    return BatchBounds(lower, upper)


def _block(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Bounds of one block; architectures leave it as soon as both meet."""
    shortest = np.minimum(single, parallel)
    lower = (shortest + batch_lower.sweep(graph, shortest, forward=False)).max(axis=0)
    upper = np.full(lower.shape, np.inf)
    open_rows = np.flatnonzero(np.isfinite(lower))
    for step in (_first_rule, _in_phases, _other_rules):
        if not open_rows.size:
            break
        some = _Rows(
            graph,
            single[:, open_rows],
            parallel[:, open_rows],
            {unit: count[open_rows] for unit, count in cores.items()},
        )
        lower[open_rows], upper[open_rows] = step(some, lower[open_rows], upper[open_rows])
        met = lower >= upper * CLOSED
        lower = np.where(met, upper, lower)
        open_rows = open_rows[~met[open_rows]]
    return lower, upper


@dataclass(frozen=True, slots=True)
class _Rows:
    """The architectures that are still open."""

    graph: BatchGraph
    single: FloatArray
    parallel: FloatArray
    cores: Mapping[str, IntArray]


_Pair = tuple[FloatArray, FloatArray]


def _first_rule(rows: _Rows, lower: FloatArray, upper: FloatArray) -> _Pair:
    """The list schedule that settles most architectures, and what its length implies."""
    return _by_rules(rows, batch_upper.RULES[:1], lower, upper)


def _other_rules(rows: _Rows, lower: FloatArray, upper: FloatArray) -> _Pair:
    """The other list schedules; shorter ones imply more."""
    return _by_rules(rows, batch_upper.RULES[1:], lower, upper)


def _in_phases(rows: _Rows, lower: FloatArray, upper: FloatArray) -> _Pair:
    """The shortest sequence of phases, where the graph is small enough."""
    if rows.graph.phases is None:
        return lower, upper
    low, high = batch_phases.bounds_in_phases(
        rows.graph, rows.graph.phases, rows.single, rows.parallel, rows.cores
    )
    return np.maximum(lower, low), np.minimum(upper, high)


def _by_rules(
    rows: _Rows, rules: tuple[batch_upper.Rule, ...], lower: FloatArray, upper: FloatArray
) -> _Pair:
    shortest = upper.copy()
    for rule in rules:
        np.minimum(shortest, rule(rows.graph, rows.single, rows.parallel, rows.cores), out=shortest)
    at = np.flatnonzero((shortest < upper) & (shortest * CLOSED > lower))
    part = {unit: count[at] for unit, count in rows.cores.items()}
    implied = batch_lower.lower_bound(
        rows.graph, rows.single[:, at], rows.parallel[:, at], part, shortest[at]
    )
    lower[at] = np.maximum(lower[at], implied)
    return lower, shortest
