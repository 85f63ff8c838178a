"""Beginnings of schedules on many architectures: rows of arrays, and all rows with one more operator started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Flags, Floats, Integers

from .graph import BatchGraph
from .lower_bounds import add_rows, sweep

RIVALS = 2
"""Rows that each of its kind is held against."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A kind of cores: who uses it (O,), how many there are (A,), and the work (A, O) of each operator per core.

    `blocked`: core-parallel operators keep others off it.
    """

    users: Flags
    cores: Integers
    work: Floats
    blocked: bool


@dataclass(frozen=True, slots=True)
class Instances:
    """A graph, operators in topological order, on A architectures; times (A, O) in s.

    `tail`: least time from the end of an operator to that of the schedule; `follows` (O, O): 1 where the column is
    a direct successor of the row; `core` (O,): whether core-parallel operators exclude it.
    """

    single: Floats
    parallel: Floats
    tail: Floats
    follows: NDArray[np.int8]
    core: Flags
    units: tuple[Unit, ...]

    @property
    def size(self) -> int:
        """Operators."""
        return len(self.core)

    @classmethod
    def of(
        cls, graph: BatchGraph, single: Floats, parallel: Floats, cores: Mapping[str, Integers]
    ) -> Instances:
        """Durations (O, A) as the batch solvers have them."""
        order = list(graph.order)
        units, tail = [], np.zeros_like(single)
        for name, count in cores.items():
            users = graph.users(name)
            if not users.any():
                continue
            blocked = name not in graph.unblocked
            alone = np.where(users[:, None] > 0.0, single / count, 0.0)
            work = np.where(users[:, None] > 0.0, np.minimum(alone, parallel), 0.0) if blocked else alone
            for i in range(graph.size):
                np.maximum(tail[i], add_rows(work[graph.below[i]]), out=tail[i])
            units.append(Unit(users[order] > 0.0, count, _turned(work, order), blocked))
        tail = sweep(graph, np.minimum(single, parallel), forward=False, least=tail)
        follows = graph.adjacency[np.ix_(order, order)].astype(np.int8)
        return cls(
            _turned(single, order),
            _turned(parallel, order),
            _turned(tail, order),
            follows,
            graph.core[order],
            tuple(units),
        )


def _turned(times: Floats, order: list[int]) -> Floats:
    return np.ascontiguousarray(times[order].T)


@dataclass(frozen=True, slots=True)
class Beginnings:
    """R rows: the architecture of each, and what its started operators leave behind, in s.

    `waiting` (R, O): predecessors not yet started, -1 for started operators; `ready` (R, O): end of the others;
    `free`: per unit, when each core that may be needed is next free (R, C); `blocked`: end of the last
    core-parallel operator; `busy`: end of the last operator on cores; `now`, `last`: start and position of the
    operator started last; `left`: per unit, work of operators not yet started; `bound`: no end of it is earlier.
    """

    instance: Integers
    waiting: NDArray[np.int8]
    ready: Floats
    free: tuple[Floats, ...]
    blocked: Floats
    busy: Floats
    now: Floats
    last: Integers
    left: tuple[Floats, ...]
    makespan: Floats
    bound: Floats

    def take(self, rows: Integers) -> Beginnings:
        """Some of the rows, copied."""
        return Beginnings(
            self.instance[rows],
            self.waiting[rows],
            self.ready[rows],
            tuple(free[rows] for free in self.free),
            self.blocked[rows],
            self.busy[rows],
            self.now[rows],
            self.last[rows],
            tuple(left[rows] for left in self.left),
            self.makespan[rows],
            self.bound[rows],
        )


def roots(instances: Instances) -> Beginnings:
    """Nothing started yet, one row per architecture."""
    count = len(instances.single)
    zeros = np.zeros(count)
    widths = [min(int(u.cores.max()), int(u.users.sum())) for u in instances.units]
    free = (
        np.where(np.arange(w) < u.cores[:, None], 0.0, np.inf)
        for u, w in zip(instances.units, widths, strict=True)
    )
    return Beginnings(
        np.arange(count),
        np.repeat(instances.follows.sum(axis=0, dtype=np.int8)[None], count, axis=0),
        np.zeros_like(instances.single),
        tuple(free),
        zeros,
        zeros,
        zeros,
        np.full(count, -1),
        tuple(u.work.sum(axis=1) for u in instances.units),
        zeros,
        zeros,
    )


def expand(instances: Instances, rows: Beginnings, best: Floats) -> Beginnings:
    """Every row with every operator that may start, in either mode; bounds reach `best` (A,) in none.

    Of rows with the same operators started, those that leave everything later than another are let go.
    """
    row, operator, whole, start, end = _starts(instances, rows, best)
    found = _started(instances, rows.take(row), operator, whole, start, end)
    alive = np.flatnonzero(_bound(instances, found) < best[found.instance])
    return found.take(np.sort(alive[_undominated(found.take(alive))]))


def _starts(
    instances: Instances, rows: Beginnings, best: Floats
) -> tuple[Integers, Integers, Flags, Floats, Floats]:
    """Starts that may come next: row, operator, whether it is core-parallel, start and end, one value each."""
    begin = np.maximum(rows.ready, rows.now[:, None])
    alone = np.where(instances.core, np.maximum(begin, rows.blocked[:, None]), begin)
    for unit, free in zip(instances.units, rows.free, strict=True):
        np.maximum(alone, free.min(axis=1)[:, None], out=alone, where=unit.users)
    latest = np.where(
        rows.waiting == 0, best[rows.instance][:, None] - instances.tail[rows.instance], -np.inf
    )
    single, parallel = instances.single[rows.instance], instances.parallel[rows.instance]
    behind = np.arange(instances.size) > rows.last[:, None]
    modes = []
    for start, time in ((alone, single), (np.maximum(begin, rows.busy[:, None]), parallel)):
        # Operators that start together do so in one order; a mode that takes more and lasts as long is useless.
        may = (start + time < latest) & ((start > rows.now[:, None]) | behind)
        if time is parallel:
            may &= parallel < single
        row, operator = np.nonzero(may)
        chosen = start[row, operator]
        modes.append(
            (row, operator, np.full(len(row), time is parallel), chosen, chosen + time[row, operator])
        )
    one, every = modes
    return tuple(np.concatenate(pair) for pair in zip(one, every, strict=True))  # type: ignore[return-value]


def _started(
    instances: Instances,
    rows: Beginnings,
    operator: Integers,
    whole: Flags,
    start: Floats,
    end: Floats,
) -> Beginnings:
    """Rows with one operator started each; rows are changed in place."""
    number, core = np.arange(len(operator)), instances.core[operator]
    after = instances.follows[operator]
    np.subtract(rows.waiting, after, out=rows.waiting)
    rows.waiting[number, operator] = -1
    np.maximum(rows.ready, after * end[:, None], out=rows.ready)
    for unit, free, left in zip(instances.units, rows.free, rows.left, strict=True):
        some = np.flatnonzero(unit.users[operator] & ~whole)
        free[some, free[some].argmin(axis=1)] = end[some]
        np.subtract(left, unit.work[rows.instance, operator], out=left)
    return replace(
        rows,
        blocked=np.where(whole, end, rows.blocked),
        busy=np.where(core, np.maximum(rows.busy, end), rows.busy),
        now=start,
        last=operator,
        makespan=np.maximum(rows.makespan, end),
        bound=np.maximum(rows.bound, end + instances.tail[rows.instance, operator]),
    )


def _bound(instances: Instances, rows: Beginnings) -> Floats:
    """Raise the bounds of rows, in place: by what is left for the cores, and by every operator still to start."""
    for unit, free, left in zip(instances.units, rows.free, rows.left, strict=True):
        floor = np.maximum(rows.now, rows.blocked) if unit.blocked else rows.now
        taken = np.where(np.isfinite(free), np.maximum(free - floor[:, None], 0.0), 0.0).sum(axis=1)
        np.maximum(rows.bound, floor + taken / unit.cores[rows.instance] + left, out=rows.bound)
    least = np.minimum(instances.single, instances.parallel) + instances.tail
    begin = np.maximum(rows.ready, rows.now[:, None])
    soonest = np.where(rows.waiting >= 0, begin + least[rows.instance], 0.0).max(axis=1)
    np.maximum(rows.bound, soonest, out=rows.bound)
    return rows.bound


def _undominated(rows: Beginnings) -> Integers:
    """Positions of the rows, without those that have started the same operators as another and leave nothing earlier.

    Each is held against the first few of its kind alone.
    """
    started = (rows.waiting < 0) @ (1 << np.arange(rows.waiting.shape[1]))
    state = _state(rows)
    order = np.lexsort((state.sum(axis=1, where=np.isfinite(state)), started, rows.instance))
    number, kept = np.arange(len(order)), np.ones(len(order), dtype=np.bool_)
    new = np.append(True, (np.diff(rows.instance[order]) != 0) | (np.diff(started[order]) != 0))[: len(order)]
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    for further in range(RIVALS):
        at = number[(first + further < number) & kept]
        at = at[kept[first[at] + further]]
        a, b = order[first[at] + further], order[at]
        # Of operators that start together, only those behind the last one may still be started.
        free = (rows.now[a] < rows.now[b]) | (rows.last[a] <= rows.last[b])
        kept[at[free & (state[a] <= state[b]).all(axis=1)]] = False
    return order[kept]


def _state(rows: Beginnings) -> Floats:
    """All that the future of a row depends on, beside what is started, as times that are better when earlier."""
    now = rows.now[:, None]
    return np.concatenate(
        [
            now,
            np.maximum(rows.blocked[:, None], now),
            np.maximum(rows.busy[:, None], now),
            rows.makespan[:, None],
            *(np.sort(np.maximum(free, now), axis=1) for free in rows.free),
            np.where(rows.waiting >= 0, np.maximum(rows.ready, now), 0.0),
        ],
        axis=1,
    )
