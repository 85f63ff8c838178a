"""List schedules for a block of architectures; arrays are (O, A), seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .batch import BatchGraph

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

MOST_CORES = 8
"""Cores of one unit a list schedule uses beside each other: few layers are wider, and fewer cores stay valid."""

Rule = Callable[["BatchGraph", FloatArray, FloatArray, Mapping[str, IntArray]], FloatArray]
"""Makespan (A,) of one way to schedule, from single and core-parallel latencies (O, A) and cores (A,)."""


def dispatch(
    graph: BatchGraph,
    duration: FloatArray,
    whole: BoolArray,
    priority: FloatArray,
    cores: Mapping[str, IntArray],
) -> FloatArray:
    """Makespan (A,): always start the operator that can start first, of those the one of highest priority.

    `whole` (O, A) marks core-parallel operators.
    """
    state = _Dispatch(graph, duration, whole, cores)
    makespan = np.zeros(duration.shape[1])
    for _ in range(graph.size):
        start = state.earliest()
        now = start.min(axis=0)
        chosen = np.where(start <= now, priority, -1.0).argmax(axis=0)
        np.maximum(makespan, state.start(chosen, now), out=makespan)
    return makespan


class _Dispatch:
    """Cores and operators of every architecture between two starts."""

    def __init__(
        self, graph: BatchGraph, duration: FloatArray, whole: BoolArray, cores: Mapping[str, IntArray]
    ) -> None:
        self.duration, self.whole, self.core = duration, whole, graph.core
        self.follows = graph.adjacency
        self.columns = np.arange(duration.shape[1])
        self.waiting = np.repeat(graph.adjacency.sum(axis=0)[:, None], duration.shape[1], axis=1)
        self.ready = np.where(self.waiting > 0.0, np.inf, 0.0)
        self.known = np.zeros_like(duration)
        self.blocked_until = np.zeros(duration.shape[1])
        self.cores_end = np.zeros(duration.shape[1])
        self.users = {unit: graph.users(unit).astype(bool) for unit in cores if graph.users(unit).any()}
        self.free = {unit: _free_times(cores[unit], int(users.sum())) for unit, users in self.users.items()}

    def earliest(self) -> FloatArray:
        """Earliest start (O, A) given everything started so far; inf where not yet possible or already started."""
        begin = np.zeros_like(self.ready)
        for unit, users in self.users.items():
            begin[users] = np.maximum(begin[users], self.free[unit].min(axis=0))
        begin[self.core] = np.maximum(begin[self.core], self.blocked_until)
        begin = np.where(self.whole, self.cores_end, begin)
        return np.maximum(begin, self.ready)

    def start(self, chosen: IntArray, now: FloatArray) -> FloatArray:
        """Run one operator per architecture from `now`; its end (A,)."""
        at = (chosen, self.columns)
        end = now + self.duration[at]
        whole, core = self.whole[at], self.core[chosen]
        self.blocked_until = np.where(whole, end, self.blocked_until)
        self.cores_end = np.where(core, np.maximum(self.cores_end, end), self.cores_end)
        for unit, users in self.users.items():
            columns = np.flatnonzero(users[chosen] & ~whole)
            free = self.free[unit]
            free[free[:, columns].argmin(axis=0), columns] = end[columns]
        self.ready[at] = np.inf
        self.waiting[at] = np.inf
        follows = self.follows[chosen].T
        self.waiting -= follows
        self.known = np.where(follows > 0.0, np.maximum(self.known, end), self.known)
        np.copyto(self.ready, self.known, where=(self.waiting == 0.0) & (follows > 0.0))
        return end


def _free_times(count: IntArray, users: int) -> FloatArray:
    """(C, A) times at which each core is next free: 0, or inf where the architecture lacks it."""
    width = min(int(count.max()), users, MOST_CORES)
    return np.where(np.arange(width)[:, None] < count, 0.0, np.inf)


def _priority(graph: BatchGraph, duration: FloatArray) -> FloatArray:
    """Longest path from the start of every operator: least slack first."""
    from .batch_lower import sweep

    return duration + sweep(graph, duration, forward=False)


def fastest(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray]
) -> FloatArray:
    """Every operator in its faster mode."""
    shortest = np.minimum(single, parallel)
    return dispatch(graph, shortest, parallel < single, _priority(graph, shortest), cores)


def alone(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray]
) -> FloatArray:
    """Every operator on one core where it can."""
    shortest = np.minimum(single, parallel)
    duration = np.where(np.isinf(single), parallel, single)
    return dispatch(graph, duration, np.isinf(single), _priority(graph, shortest), cores)


def slack(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray]
) -> FloatArray:
    """Core-parallel only where a single core would make the operator critical."""
    from .batch_lower import sweep

    shortest = np.minimum(single, parallel)
    heads, priority = sweep(graph, shortest, forward=True), _priority(graph, shortest)
    length = priority.max(axis=0)
    whole = (parallel < single) & (heads + single + priority - shortest > length * (1.0 + 1e-12))
    return dispatch(graph, np.where(whole, parallel, single), whole, priority, cores)


def sinks(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray]
) -> FloatArray:
    """Operators that nothing waits for on one core, beside the rest in its faster mode."""
    shortest = np.minimum(single, parallel)
    last = (graph.adjacency.sum(axis=1) == 0.0)[:, None] & np.isfinite(single)
    whole = (parallel < single) & ~last
    return dispatch(graph, np.where(whole, parallel, single), whole, _priority(graph, shortest), cores)


RULES: tuple[Rule, ...] = (fastest, slack, alone, sinks)
"""In the order of their cost-benefit: most architectures are settled by the first."""
