"""One operator graph on many architectures at once: proven lower bounds and real upper bounds of the
makespan.

Arrays of durations are (A, O): architectures by operators, seconds. Inside, blocks of architectures are
turned
to (O, A), so that every loop is over operators and every step over contiguous architectures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.looks import Look, wanted

from . import lower_bounds, phases, upper_bounds
from .graph import BatchGraph
from .search import MOST_OPERATORS, search

BLOCK = 1024
"""Architectures per block: the arrays of 20 operators then stay in a core's second-level cache."""


CLOSED = 1.0 - 1e-12
"""Bounds closer than this are one number: what sums in another order can lose."""

SLOTS = 1 << 16
"""Slots of the table of closed sets that a graph may take: most have a few thousand."""

FEW = 128
"""Beginnings per architecture and level up to which the optimal schedule is searched for among bounds."""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """`lower_s` <= optimal makespan <= `upper_s`, (A,) each; a real schedule has the length `upper_s`."""

    lower_s: Floats
    upper_s: Floats


def batch_critical_path(graph: BatchGraph, latency_s: Floats) -> Floats:
    """Longest path (A,) of latencies (A, O), s: the makespan without core limits."""
    tails = lower_bounds.sweep(graph, np.ascontiguousarray(latency_s.T), forward=False)
    length: Floats = (latency_s.T + tails).max(axis=0, initial=0.0)
    return length


def batch_bounds(
    graph: BatchGraph,
    single_s: Floats,
    parallel_s: Floats,
    capacity: Mapping[str, Integers],
    *,
    rough: bool = False,
    known: BatchBounds | None = None,
    look: Look = wanted,
) -> BatchBounds:
    """Bounds of the optimal makespan on every architecture.

    `single_s`, `parallel_s`: (A, O), inf where a mode is impossible; `capacity`: cores (A,) of every unit.
    `rough`: of the first list schedule alone, in a fraction of the time; where these are `known` they are not
    worked out again. `look` is called between steps, and between the operators of list schedules.
    Counts cores, so pairing is not modelled. Raises ValueError where `capacity` lacks a unit.
    """
    if missing := {unit for row in graph.units for unit in row} - set(capacity):
        raise ValueError(f"capacity: no cores given for {', '.join(sorted(missing))}")
    steps = _steps(graph, rough=rough, begun=known is not None)
    return _stepwise(graph, (single_s, parallel_s), capacity, steps, known, look)


def settled_in_phases(graph: BatchGraph) -> bool:
    """Whether `batch_bounds` knows all that sequences of phases tell."""
    return phases.phase_space(graph) is not None


def bounds_in_many_phases(
    graph: BatchGraph,
    single_s: Floats,
    parallel_s: Floats,
    capacity: Mapping[str, Integers],
    known: BatchBounds,
) -> BatchBounds:
    """What `batch_bounds` tells (`known`), tightened by sequences of phases where these are many: much dearer."""
    return _stepwise(graph, (single_s, parallel_s), capacity, (_in_many_phases,), known)


def _stepwise(
    graph: BatchGraph,
    durations: tuple[Floats, Floats],
    capacity: Mapping[str, Integers],
    steps: Sequence[_Step],
    known: BatchBounds | None,
    look: Look = wanted,
) -> BatchBounds:
    """Bounds, one block of architectures after the other."""
    single_s, parallel_s = durations
    count = len(single_s)
    lower, upper = np.zeros(count), np.zeros(count)
    if graph.size == 0:
        return BatchBounds(lower, upper)
    for begin in range(0, count, BLOCK):
        rows = slice(begin, begin + BLOCK)
        cores = {unit: np.asarray(capacity[unit], dtype=np.int64)[rows] for unit in capacity}
        single = np.ascontiguousarray(single_s[rows].T)
        parallel = np.ascontiguousarray(parallel_s[rows].T)
        first = _unscheduled(graph, single, parallel)
        if known is not None:
            first = known.lower_s[rows].copy(), known.upper_s[rows].copy()
        lower[rows], upper[rows] = _block(graph, single, parallel, cores, steps, first, look)
    return BatchBounds(lower, upper)


def _block(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    steps: Sequence[_Step],
    first: tuple[Floats, Floats],
    look: Look,
) -> tuple[Floats, Floats]:
    """Bounds of one block; architectures leave it as soon as both meet, and equal ones share an answer."""
    lower, upper = first
    lower, open_rows = _met(lower, upper, np.flatnonzero(np.isfinite(lower)))
    one, alike = _distinct(single[:, open_rows], parallel[:, open_rows], cores, open_rows)
    at = open_rows[one]
    some_cores = {unit: count[at] for unit, count in cores.items()}
    chosen = _Rows(graph, single[:, at], parallel[:, at], some_cores, look)
    some = _bounds(chosen, steps, lower[at], upper[at])
    lower[open_rows], upper[open_rows] = some[0][alike], some[1][alike]
    return lower, upper


def _unscheduled(graph: BatchGraph, single: Floats, parallel: Floats) -> tuple[Floats, Floats]:
    """The longest path, and all operators one after the other, as a chain has them anyway."""
    shortest = np.minimum(single, parallel)
    lower = (shortest + lower_bounds.sweep(graph, shortest, forward=False)).max(axis=0)
    upper = np.where(np.isfinite(lower), lower_bounds.add_rows(shortest[list(graph.order)]), np.inf)
    return lower, upper


def _bounds(chosen: _Rows, steps: Sequence[_Step], lower: Floats, upper: Floats) -> _Pair:
    """The bounds of some architectures, tighter than those given."""
    open_rows = np.arange(len(lower))
    for step in steps:
        if not open_rows.size:
            break
        chosen.look()
        lower[open_rows], upper[open_rows] = step(chosen.take(open_rows), lower[open_rows], upper[open_rows])
        lower, open_rows = _met(lower, upper, open_rows)
    return lower, upper


def _met(lower: Floats, upper: Floats, open_rows: Integers) -> tuple[Floats, Integers]:
    """Lower bounds, equal to the upper ones where they differ by rounding alone, and the rows still open."""
    met = lower >= upper * CLOSED
    return np.where(met, upper, lower), open_rows[~met[open_rows]]


def _distinct(
    single: Floats, parallel: Floats, cores: Mapping[str, Integers], rows: Integers
) -> tuple[Integers, Integers]:
    """One position of every kind of architecture, equal in all durations and cores, and the kind of each."""
    counts = np.array([count[rows] for count in cores.values()], dtype=np.float64)
    described = np.ascontiguousarray(np.concatenate([single, parallel, counts]).T)
    if not len(described):
        return rows, rows
    keys = described.view(np.dtype((np.void, described.strides[0])))[:, 0]
    _, first, alike = np.unique(keys, return_index=True, return_inverse=True)
    return first, alike


@dataclass(frozen=True, slots=True)
class _Rows:
    """The architectures that are still open, and how their steps look at whether they are wanted."""

    graph: BatchGraph
    single: Floats
    parallel: Floats
    cores: Mapping[str, Integers]
    look: Look

    def take(self, at: Integers) -> _Rows:
        """Some of them."""
        cores = {unit: count[at] for unit, count in self.cores.items()}
        return _Rows(self.graph, self.single[:, at], self.parallel[:, at], cores, self.look)


_Pair = tuple[Floats, Floats]
_Step = Callable[[_Rows, Floats, Floats], _Pair]


def _steps(graph: BatchGraph, *, rough: bool, begun: bool) -> Sequence[_Step]:
    """Steps that tighten bounds: what phases leave of small graphs is searched for, others have more list schedules.

    `begun`: what `rough` does is done.
    """
    first: Sequence[_Step] = () if begun else (_first_rule,)
    if rough:
        return first
    return (*first, _in_phases, _searched if graph.size <= MOST_OPERATORS else _other_rules)


def _first_rule(rows: _Rows, lower: Floats, upper: Floats) -> _Pair:
    """The list schedule that settles most architectures, and what its length implies."""
    return _by_rules(rows, upper_bounds.RULES[:1], lower, upper)


def _other_rules(rows: _Rows, lower: Floats, upper: Floats) -> _Pair:
    """The other list schedules; shorter ones imply more."""
    return _by_rules(rows, upper_bounds.RULES[1:], lower, upper)


def _in_phases(rows: _Rows, lower: Floats, upper: Floats) -> _Pair:
    """The shortest sequence of phases, where the graph is small enough."""
    return _by_phases(rows, lower, upper, 0)


def _in_many_phases(rows: _Rows, lower: Floats, upper: Floats) -> _Pair:
    """The same of graphs that are not so small."""
    return _by_phases(rows, lower, upper, SLOTS)


def _by_phases(rows: _Rows, lower: Floats, upper: Floats, slots: int) -> _Pair:
    found = phases.bounds_in_phases(rows.graph, rows.single, rows.parallel, rows.cores, slots)
    if found is None:
        return lower, upper
    return np.maximum(lower, found[0]), np.minimum(upper, found[1])


def _searched(rows: _Rows, lower: Floats, upper: Floats) -> _Pair:
    """The best schedule, where few beginnings are in question."""
    best, complete = search(rows.graph, rows.single, rows.parallel, rows.cores, upper, FEW)
    return np.where(complete, best, lower), best


def _by_rules(rows: _Rows, rules: tuple[upper_bounds.Rule, ...], lower: Floats, upper: Floats) -> _Pair:
    shortest = upper.copy()
    for rule in rules:
        np.minimum(
            shortest, rule(rows.graph, rows.single, rows.parallel, rows.cores, rows.look), out=shortest
        )
    at = np.flatnonzero((shortest < upper) & (shortest * CLOSED > lower))
    if not at.size:
        return lower, shortest
    rows.look()
    part = {unit: count[at] for unit, count in rows.cores.items()}
    implied = lower_bounds.lower_bound(
        rows.graph, rows.single[:, at], rows.parallel[:, at], part, shortest[at]
    )
    lower[at] = np.maximum(lower[at], implied)
    return lower, shortest
