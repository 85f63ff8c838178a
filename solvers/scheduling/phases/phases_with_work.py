"""Sequences of phases that also owe work, from outside: the problem, memory that grows, limits, and the start of a
schedule that a sequence means."""

from __future__ import annotations

from functools import cache
from itertools import chain
from math import inf
from time import monotonic
from typing import NamedTuple

import numpy as np
from phaze.solvers.arrays import Flags, Floats

from ..indexed_problem import IndexedProblem
from ..machine_code import Background, Names
from ..schedule_bounds import Bounds
from ..schedule_plan import SAME, SearchLimits
from . import kernel_labels, kernel_sets, kernel_trunk
from .kernel_labels import (
    BUDGET,
    COUNTERS,
    DONE,
    EXPANDED,
    GOAL,
    HEAPED,
    MASKS,
    ROOM,
    Graph,
    Pool,
)
from .kernel_sets import NONE, WORD
from .priced_phases import Arrays, PricedPhases, Prices, empty_trunk, steps_of

SLICE_S = 0.02
"""Time between two looks at the clock."""


class PhaseOrder(NamedTuple):
    """Number of the phase of every operator, which grows with time, and whether the operator is alone in it."""

    number: tuple[int, ...]
    alone: tuple[bool, ...]


class PhaseSearch:
    """Sequences of phases that may be shorter than a schedule of `upper_s`; ask with `run`."""

    def __init__(
        self,
        ix: IndexedProblem,
        bounds: Bounds,
        upper_s: float,
        rows: Floats,
        labels: int,
        greed: float = 1.0,
        prices: Prices | None = None,
    ) -> None:
        """`bounds` hold below `upper_s`. `rows` (K, O, M): weightings under which no moment works faster than the
        clock. `labels`: room for so many, a power of two. With a `greed` above 1 a sequence is
        found sooner, which need not be the shortest, and nothing is proven. `prices`: bounds of what is left."""
        self._ix, self._upper_s = ix, upper_s
        self._graph = _graph(ix, bounds, rows, prices)
        self._pool = _pool(self._graph, labels)
        self._pool.greed[0] = greed
        self._found = BUDGET
        kernel_labels.begin(self._graph, self._pool)

    @property
    def expanded(self) -> int:
        """Labels expanded so far."""
        return int(self._pool.tally[EXPANDED])

    @property
    def settled(self) -> bool:
        """Whether more labels would change nothing."""
        return self._found == DONE

    @property
    def lower_s(self) -> float:
        """Proven so far of every schedule, s; `upper_s` if none is shorter."""
        pool = self._pool
        if pool.greed[0] > 1.0:
            return 0.0
        if self.settled and pool.tally[GOAL] != NONE:
            least = float(pool.bound[pool.tally[GOAL]])
        else:
            least = float(pool.key[0]) if pool.tally[HEAPED] else inf
        return min(least * (1.0 - SAME), self._upper_s)

    def run(self, labels: float, limits: SearchLimits) -> None:
        """Expand labels until all is settled, so many are expanded, the bound is at the cutoff, or time is over."""
        slice_ = 1
        while not self.settled and self.expanded < labels and not limits.late:
            if self._found == ROOM:
                return
            began = monotonic()
            budget = int(min(labels, self.expanded + slice_))
            names = _functions().names
            self._found = names["search"](self._graph, self._pool, self._upper_s, budget)
            slice_ = 2 * slice_ if monotonic() - began < SLICE_S / 2 else max(1, slice_ // 2)
            if self.lower_s >= limits.cutoff_s:
                return

    def order(self) -> PhaseOrder | None:
        """The sequence found, if any."""
        pool, row = self._pool, int(self._pool.tally[GOAL])
        if row == NONE:
            return None
        number, alone, later = [0] * self._ix.size, [False] * self._ix.size, 2 * self._ix.size
        while (parent := int(pool.parent[row])) != NONE:
            before, after = self._members(int(pool.at[parent])), self._members(int(pool.at[row]))
            group = self._members(int(pool.group[row])) if pool.group[row] != NONE else before
            for i in reversed([i for i in after if i not in group]):
                later, number[i], alone[i] = later - 1, later, True
            for i in group:
                if i not in before:
                    number[i] = later
            later, row = later - 1, parent
        return PhaseOrder(tuple(number), tuple(alone))

    def _members(self, row: int) -> dict[int, None]:
        """Operators of a set, each after its predecessors."""
        words = self._pool.sets[row].tolist()
        return {i: None for k, i in enumerate(self._ix.order) if words[k // WORD] >> k % WORD & 1}


def arrays_of(ix: IndexedProblem, bounds: Bounds) -> Arrays:
    """Operators off the blocked units take no time: they may run beside any phase."""
    order = ix.order
    place = {i: k for k, i in enumerate(order)}
    near: list[list[list[int]]] = [[[] for _ in order], [[] for _ in order]]
    for k, i in enumerate(order):
        for j in ix.succs[i]:
            near[0][place[j]].append(k)
            near[1][k].append(place[j])
    latency, whole = _modes(ix, bounds)
    core = np.array(ix.core, dtype=np.bool_)
    beside = np.where(whole, inf, latency).min(axis=1, initial=inf)
    alone = np.where(whole, latency, inf).min(axis=1, initial=inf)
    at = list(order)
    flat = [list(chain.from_iterable(lists)) for lists in near]
    return Arrays(
        first=np.array([np.cumsum([0, *map(len, lists)]) for lists in near], dtype=np.int64),
        near=np.array(flat, dtype=np.int64).reshape(2, -1),
        beside=np.where(core, beside, 0.0)[at],
        alone=np.where(core, alone, inf)[at],
    )


def _modes(ix: IndexedProblem, bounds: Bounds) -> tuple[Floats, Flags]:
    """Durations (O, M), inf where there is no such mode, and whether a mode takes the whole chip (O, M)."""
    latency = np.full((ix.size, max(map(len, ix.modes), default=0)), inf)
    whole = np.zeros(latency.shape, dtype=np.bool_)
    for i, row in enumerate(bounds.latency):
        latency[i, : len(row)], whole[i, : len(row)] = row, ix.whole[i]
    return latency, whole


def _graph(ix: IndexedProblem, bounds: Bounds, rows: Floats, prices: Prices | None) -> Graph:
    arrays, at = arrays_of(ix, bounds), list(ix.order)
    latency, _ = _modes(ix, bounds)
    alive = latency < inf
    work = np.where(alive, rows * np.where(alive, latency, 0.0), inf).min(axis=2, initial=inf)
    work = np.ascontiguousarray(np.where(ix.core, work, 0.0)[:, at])
    if prices is None:
        words = -(-ix.size // WORD)
        return Graph(
            *arrays,
            work=work,
            slack=np.zeros(len(work)),
            share=np.zeros((len(work), 0)),
            step=np.zeros(0),
            counted=np.zeros(0, dtype=np.bool_),
            jump=np.zeros(0),
            sets=np.zeros((1, words), dtype=np.int64),
            slots=np.full(1, NONE, dtype=np.int64),
            inner=np.zeros(words, dtype=np.int64),
            after=np.zeros((1 + len(work), 0)),
            last=np.zeros((1 + len(work), ix.size)),
        )
    inner = np.zeros(prices.trunk.sets.shape[1], dtype=np.int64)
    for k in np.flatnonzero(arrays.first[1, 1:] > arrays.first[1, :-1]).tolist():
        inner[k // WORD] |= 1 << k % WORD
    return Graph(
        *arrays,
        work=prices.work,
        slack=prices.slack,
        share=prices.share,
        step=prices.steps.step,
        counted=prices.steps.counted,
        jump=prices.steps.jump,
        sets=prices.trunk.sets,
        slots=prices.trunk.slots,
        inner=inner,
        after=prices.after,
        last=prices.last,
    )


def priced(
    ix: IndexedProblem, bounds: Bounds, rows: Floats, upper_s: float, limits: SearchLimits
) -> Prices | None:
    """Bounds of sets at the best prices found until it is late, and at those of every weighting (K, O, M) alone; None
    where there are too many sets."""
    found = PricedPhases(ix, bounds, arrays_of(ix, bounds), rows, upper_s, _functions().names)
    if found.trunk is None:
        return None
    return found.table([found.best(limits), *np.eye(len(found.weightings))[-len(rows) :]])


def _pool(graph: Graph, labels: int) -> Pool:
    """Room for so many labels and sets, a power of two; memory is only taken where it is written."""
    weightings, size = graph.work.shape
    words, times = -(-size // WORD), 1 + weightings
    pool = Pool(
        sets=np.empty((labels, words), dtype=np.int64),
        rest=np.empty((labels, times)),
        newest=np.empty(labels, dtype=np.int64),
        slots=np.full(2 * labels, NONE, dtype=np.int64),
        at=np.empty(labels, dtype=np.int64),
        link=np.empty(labels, dtype=np.int64),
        parent=np.empty(labels, dtype=np.int64),
        group=np.empty(labels, dtype=np.int64),
        bound=np.empty(labels),
        time=np.empty((labels, times)),
        greed=np.ones(1),
        key=np.empty(labels),
        entry=np.empty(labels, dtype=np.int64),
        tally=np.zeros(COUNTERS, dtype=np.int64),
        mask=np.zeros((MASKS, words), dtype=np.int64),
        end=np.zeros(size),
        order=np.zeros(size, dtype=np.int64),
        tail=np.zeros((2, size)),
        owed=np.zeros(times),
    )
    pool.tally[GOAL] = NONE
    return pool


@cache
def _functions() -> Background:
    """The search, compiled once per process."""
    return Background(_sample, kernel_sets, kernel_trunk, kernel_labels)


def _sample(names: Names) -> None:
    """Search on two operators in a row."""
    arrays = Arrays(
        first=np.array([[0, 0, 1], [0, 1, 1]]), near=np.array([[0], [1]]), beside=np.ones(2), alone=np.ones(2)
    )
    steps, trunk = steps_of(np.ones(1)), empty_trunk(1, 2, 64, 64)
    names["unfold"](*arrays, trunk)
    share, count = np.zeros(len(steps.step)), int(trunk.tally[0])
    cost, length = np.zeros(count), np.zeros(count)
    order = np.arange(count)[::-1].copy()
    names["cheapest"](
        trunk, steps, share, np.zeros(count), order, cost, np.zeros(count, dtype=np.int64), length
    )
    graph = Graph(
        *arrays,
        work=np.ones((1, 2)),
        slack=np.zeros(1),
        share=share[None, :],
        step=steps.step,
        counted=steps.counted,
        jump=steps.jump,
        sets=trunk.sets,
        slots=trunk.slots,
        inner=np.ones(1, dtype=np.int64),
        after=np.zeros((2, count)),
        last=np.zeros((2, 2)),
    )
    pool = _pool(graph, 64)
    names["begin"](graph, pool)
    names["search"](graph, pool, 10.0, 10)
