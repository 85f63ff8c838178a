"""List schedules for a block of architectures; arrays are (O, A), seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.looks import Look, wanted

from . import large_graphs
from .alone import dispatched_s
from .graph import BatchGraph
from .large_graphs import MANY_OPERATORS
from .lower_bounds import add_rows, sweep

MOST_CORES = 8
"""Cores of one unit a list schedule uses beside each other: few layers are wider, and fewer cores stay
valid."""

FEW = 4
"""Architectures up to which each is better scheduled alone: together every start looks at all operators."""

Rule = Callable[["BatchGraph", Floats, Floats, Mapping[str, Integers], Look], Floats]
"""Makespan (A,) of one way to schedule, from single and core-parallel latencies (O, A) and cores (A,).

It looks between two operators, or two architectures, at whether it is still wanted.
"""


def dispatch(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    sharing: Floats,
    look: Look = wanted,
) -> Floats:
    """Makespan (A,): always start the operator that can start first, of those the one least slack.

    Each runs in the mode that ends it first, except where `sharing` (O, A) is positive: while the cores
    are idle
    such an operator goes to one core if the operators that could start now would take longer one after the
    other.
    """
    priority = _priority(graph, np.minimum(single, parallel))
    large, machine = graph.size >= MANY_OPERATORS, large_graphs.machine()
    if large and machine.is_fast:
        shares, free = np.broadcast_to(sharing > 0.0, single.shape), _free(graph, cores, MOST_CORES)
        return large_graphs.list_schedules(graph, single, parallel, priority, shares, free, look)
    began = monotonic()
    if single.shape[1] <= FEW:
        makespan = _each_alone(graph, single, parallel, cores, sharing, priority, look)
    else:
        state, makespan = _Dispatch(graph, single, parallel, cores, sharing), np.zeros(single.shape[1])
        for _ in range(graph.size):
            look()
            np.maximum(makespan, state.step(priority), out=makespan)
    if large:
        machine.spend(monotonic() - began)
    return makespan


def _each_alone(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    sharing: Floats,
    priority: Floats,
    look: Look,
) -> Floats:
    """The same makespans (A,), one architecture after the other."""
    free = _free(graph, cores, MOST_CORES)
    shares = np.broadcast_to(sharing > 0.0, single.shape)
    makespan = np.empty(single.shape[1])
    for at in range(len(makespan)):
        look()
        one, every, least_slack = (values[:, at].tolist() for values in (single, parallel, priority))
        mine = shares[:, at].tolist() if shares[:, at].any() else None
        idle = {unit: times[:, at].tolist() for unit, times in free.items()}
        makespan[at] = dispatched_s(graph, one, every, idle, mine, least_slack)
    return makespan


class _Dispatch:
    """Cores and operators of every architecture between two starts."""

    def __init__(
        self,
        graph: BatchGraph,
        single: Floats,
        parallel: Floats,
        cores: Mapping[str, Integers],
        sharing: Floats,
        most: int = MOST_CORES,
    ) -> None:
        self.single, self.parallel, self.sharing, self.core = single, parallel, sharing, graph.core
        self.follows = graph.adjacency
        self.columns = np.arange(single.shape[1])
        self.waiting = np.repeat(graph.adjacency.sum(axis=0)[:, None], single.shape[1], axis=1)
        self.ready = np.where(self.waiting > 0.0, np.inf, 0.0)
        self.known = np.zeros_like(single)
        self.blocked_until = np.zeros(single.shape[1])
        self.cores_end = np.zeros(single.shape[1])
        self.serial = np.where(self.core[:, None] & np.isfinite(parallel), parallel, 0.0)
        self.users = {unit: graph.users(unit).astype(bool) for unit in cores if graph.users(unit).any()}
        self.free = _free(graph, cores, most)

    def step_in_phases(self, priority: Floats, phase: Integers, whole: Flags) -> Floats:
        """Start one operator of the first phase not yet started, in its given mode; its end (A,)."""
        waiting = np.where(self.ready < np.inf, phase, np.iinfo(np.int64).max)
        start = np.maximum(self.ready, np.where(whole, self.cores_end, self._single_start()))
        start[waiting > waiting.min(axis=0)] = np.inf
        now = start.min(axis=0)
        chosen = np.where(start <= now, priority, -1.0).argmax(axis=0)
        return self._run(chosen, whole[chosen, self.columns], now)

    def step(self, priority: Floats) -> Floats:
        """Start one operator per architecture; its end (A,)."""
        alone = np.maximum(self.ready, self._single_start())
        whole = np.maximum(self.ready, self.cores_end)
        faster = whole + self.parallel < alone + self.single
        start = np.where(faster, whole, alone)
        now = start.min(axis=0)
        if self.sharing.any():
            queue = add_rows(np.where(self.ready <= now, self.serial, 0.0))
            faster &= ~((self.sharing > 0.0) & (self.single <= queue) & (alone <= now))
        chosen = np.where(start <= now, priority, -1.0).argmax(axis=0)
        return self._run(chosen, faster[chosen, self.columns], now)

    def _single_start(self) -> Floats:
        """Earliest time (O, A) at which each operator finds one core of each of its units."""
        begin = np.where(self.core[:, None], self.blocked_until, 0.0)
        for unit, users in self.users.items():
            begin[users] = np.maximum(begin[users], self.free[unit].min(axis=0))
        return begin

    def _run(self, chosen: Integers, whole: Flags, now: Floats) -> Floats:
        at = (chosen, self.columns)
        end = now + np.where(whole, self.parallel[at], self.single[at])
        self.blocked_until = np.where(whole, end, self.blocked_until)
        self.cores_end = np.where(self.core[chosen], np.maximum(self.cores_end, end), self.cores_end)
        for unit, users in self.users.items():
            columns = np.flatnonzero(users[chosen] & ~whole)
            free = self.free[unit]
            free[free[:, columns].argmin(axis=0), columns] = end[columns]
        follows = self.follows[chosen].T
        self.ready[at] = np.inf
        self.waiting -= follows
        self.known = np.maximum(self.known, follows * end)
        np.copyto(self.ready, self.known, where=(self.waiting == 0.0) & (follows > 0.0))
        return end


def _free(graph: BatchGraph, cores: Mapping[str, Integers], most: int) -> dict[str, Floats]:
    """(C, A) times at which each core of the units in use is next free: 0, or inf where the architecture lacks it."""
    users = {unit: int(graph.users(unit).sum()) for unit in cores}
    widths = {unit: min(int(cores[unit].max()), count, most) for unit, count in users.items() if count}
    return {u: np.where(np.arange(width)[:, None] < cores[u], 0.0, np.inf) for u, width in widths.items()}


def _priority(graph: BatchGraph, duration: Floats) -> Floats:
    """Longest path from the start of every operator: least slack first."""
    return duration + sweep(graph, duration, forward=False)


def eager(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    look: Look = wanted,
) -> Floats:
    """Every operator in the mode that ends it first."""
    return dispatch(graph, single, parallel, cores, np.zeros((1, 1)), look)


def shared(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    look: Look = wanted,
) -> Floats:
    """Operators that could start together share the chip where that is faster."""
    return dispatch(graph, single, parallel, cores, np.ones((1, 1)), look)


def eager_backward(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    look: Look = wanted,
) -> Floats:
    """As `eager` from the end: a schedule of the reversed graph, read backwards, is one of the graph."""
    return eager(graph.reverse, single, parallel, cores, look)


def shared_backward(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    look: Look = wanted,
) -> Floats:
    """From the end, only operators longer than the average share the chip."""
    long = np.where(single >= add_rows(single) / graph.size, 1.0, 0.0)
    return dispatch(graph.reverse, single, parallel, cores, long, look)


def in_phases(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    phase: Integers,
    whole: Flags,
) -> Floats:
    """Makespan (A,) where operators start phase after phase, in given modes (`whole`: core-parallel).

    `phase` (O, A) never falls along an edge. Phases of operators off the cores may overlap others.
    """
    priority = _priority(graph, np.where(whole, parallel, single))
    # Groups are as wide as the graph: fewer cores would hold them up.
    state = _Dispatch(graph, single, parallel, cores, np.zeros((1, 1)), graph.size)
    makespan = np.zeros(single.shape[1])
    for _ in range(graph.size):
        np.maximum(makespan, state.step_in_phases(priority, phase, whole), out=makespan)
    return makespan


RULES: tuple[Rule, ...] = (eager, shared, eager_backward, shared_backward)
"""The first settles most architectures; each of the others shortens schedules that no other does."""
