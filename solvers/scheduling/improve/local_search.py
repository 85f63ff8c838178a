"""Better plans and bounds where lists, beams and a long search left a gap: modes by branching, and random moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import NamedTuple

import numpy as np

from ..indexed_problem import IndexedProblem
from ..list_scheduling import list_schedule
from ..machine_code import Background, Names
from ..mode_relaxation import ModeProgram
from ..phases.phases_with_work import PhaseOrder
from ..schedule_plan import Outcome, Plan, SearchLimits, assign_cores, replay
from . import kernel_moves
from .kernel_moves import BEST, KEPT, TRIAL, Graph, Work

SLICE = 50
"""Tries between two looks at the clock."""


class Start(NamedTuple):
    """An order (by starts, s) and modes to begin with; together they need not be a schedule."""

    modes: Sequence[int]
    starts_s: Sequence[float]


class LocalSearchLimits(NamedTuple):
    """When to stop: after so many tries, at a time (`monotonic`), at a makespan (s).

    `heat` is by how much of the makespan a worse schedule may be accepted at first; it shrinks to nothing, with
    tries or, where it is short, with time. `seed` starts the random numbers.
    """

    tries: int
    deadline: float
    enough_s: float = 0.0
    heat: float = 0.015
    seed: int = 1


def improve(ix: IndexedProblem, start: Start, limits: LocalSearchLimits) -> Plan:
    """The best schedule that random moves from a start meet.

    Where cores are paired it searches as if counting them were enough and then makes a list schedule of what it
    found.
    """
    graph = _graph(ix)
    work = _work(ix, graph, start)
    work.random[0] = limits.seed
    kernel_moves.judge(graph, work, 0.0)
    choice = np.flatnonzero(graph.modes > 1).astype(np.int64)
    began = monotonic()
    for done in range(0, limits.tries, SLICE):
        now = monotonic()
        if work.length[BEST] <= limits.enough_s or now >= limits.deadline:
            break
        heat = limits.heat * (1.0 - max(done / limits.tries, (now - began) / (limits.deadline - began)))
        _moves().names["anneal"](graph, work, choice, min(SLICE, limits.tries - done), heat)
    modes, starts = [0] * ix.size, [0.0] * ix.size
    for k, i in enumerate(ix.order):
        modes[i], starts[i] = int(work.mode[BEST, k]), float(work.start[KEPT, k])
    return _plan(ix, modes, starts)


@cache
def _moves() -> Background:
    """The moves, compiled once per process."""
    return Background(_sample, kernel_moves)


def _sample(names: Names) -> None:
    """Call the moves on a problem of two operators in two modes."""
    graph = Graph(
        latency=np.ones((2, 2)),
        demand=np.ones((2, 2, 1), dtype=np.int64),
        modes=np.full(2, 2),
        capacity=np.ones(1, dtype=np.int64),
        first=np.zeros((2, 3), dtype=np.int64),
        near=np.zeros((2, 1), dtype=np.int64),
    )
    names["anneal"](graph, _empty(graph), np.arange(2), 1, 0.0)


def _plan(ix: IndexedProblem, modes: list[int], starts: list[float]) -> Plan:
    if ix.pair is not None:
        priority = [-start for start in starts]
        return min(
            (list_schedule(ix, modes, priority, drain=drain) for drain in (False, True)),
            key=lambda plan: plan.makespan_s,
        )
    ends = [start + ix.latency[i][modes[i]] for i, start in enumerate(starts)]
    rank = {i: k for k, i in enumerate(ix.order)}
    sequence = sorted(range(ix.size), key=lambda i: (starts[i], rank[i]))
    return replay(ix, sequence, modes, assign_cores(ix, starts, ends, modes))


def _graph(ix: IndexedProblem) -> Graph:
    """Operators renumbered in topological order."""
    place = {i: k for k, i in enumerate(ix.order)}
    most = max(map(len, ix.modes))
    latency = np.zeros((ix.size, most))
    demand = np.zeros((ix.size, most, len(ix.capacity)), dtype=np.int64)
    for k, i in enumerate(ix.order):
        latency[k, : len(ix.modes[i])] = ix.latency[i]
        demand[k, : len(ix.modes[i])] = [mode.demand for mode in ix.modes[i]]
    preds: list[list[int]] = [[] for _ in range(ix.size)]
    succs = [[place[j] for j in ix.succs[i]] for i in ix.order]
    for k, row in enumerate(succs):
        for j in row:
            preds[j].append(k)
    return Graph(
        latency=latency,
        demand=demand,
        modes=np.array([len(ix.modes[i]) for i in ix.order], dtype=np.int64),
        capacity=np.array(ix.capacity, dtype=np.int64),
        first=np.array([np.cumsum([0, *map(len, lists)]) for lists in (preds, succs)], dtype=np.int64),
        near=np.array([[j for row in lists for j in row] for lists in (preds, succs)], dtype=np.int64),
    )


def _work(ix: IndexedProblem, graph: Graph, start: Start) -> Work:
    """With a trial in the order of the starts."""
    work = _empty(graph)
    order = ix.order
    work.order[TRIAL] = sorted(range(ix.size), key=lambda k: (start.starts_s[order[k]], k))
    work.mode[TRIAL] = [start.modes[i] for i in order]
    return work


def _empty(graph: Graph) -> Work:
    size, segments = len(graph.modes), 2 * len(graph.modes) + 2
    return Work(
        order=np.tile(np.arange(size), (3, 1)),
        mode=np.zeros((3, size), dtype=np.int64),
        start=np.zeros((3, size)),
        length=np.full(3, np.inf),
        moment=np.zeros(segments),
        used=np.zeros((segments, len(graph.capacity)), dtype=np.int64),
        random=np.ones(1, dtype=np.int64),
    )


NODES = 50
"""Most nodes of the mixed-integer program: more hardly raise its bound."""

TRIES = 3_000
"""Schedules that the local search makes from each start."""

FEW_TRIES, MORE_TRIES = 1_000, 12_000
"""The same from a sequence of phases, and in turns, where nothing else is expected to help: one long search finds what
several short ones do not."""

SEEDS = 7919
"""Distance of the random numbers of one turn from those of the next."""

HEATS = (0.005, 0.015, 0.03)
"""How boldly a plan is varied, in turn: none is best for every problem."""

PART = 0.1
"""Most of the time left that one step may take."""


def suggest(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Raise the bound by the choice of modes alone; improve the plan by local search from the modes chosen."""
    program = ModeProgram(ix, outcome.tighten(ix), outcome.plan.makespan_s)
    mixed = program.mixed()
    integral = program.integral(NODES, _until(limits) - monotonic())
    best = max(mixed.lower_s, integral.lower_s, outcome.lower_s)
    outcome.lower_s = min(best, outcome.plan.makespan_s)
    for found in (integral, mixed):
        _improve(ix, outcome, limits, Start(found.modes, found.starts_s), HEATS[1])


def follow(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits, order: PhaseOrder) -> None:
    """Improve the plan by local search from a sequence of phases."""
    modes = [
        next((m for m, whole in enumerate(row) if whole == alone), 0)
        for row, alone in zip(ix.whole, order.alone, strict=True)
    ]
    _improve(ix, outcome, limits, Start(modes, order.number), HEATS[1], FEW_TRIES)


def polish(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Improve the plan by local search around it."""
    for heat in HEATS:
        _improve(ix, outcome, limits, Start(outcome.plan.modes, outcome.plan.starts), heat)


def vary(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits, turn: int) -> None:
    """Improve the plan by a longer local search around it, until the limits; every turn meets other schedules."""
    start, seed = Start(outcome.plan.modes, outcome.plan.starts), 1 + SEEDS * turn
    _improve(ix, outcome, limits, start, HEATS[1], MORE_TRIES, 1.0, seed)


def _improve(
    ix: IndexedProblem,
    outcome: Outcome,
    limits: SearchLimits,
    start: Start,
    heat: float,
    tries: int = TRIES,
    part: float = PART,
    seed: int = 1,
) -> None:
    if not outcome.over(limits):
        until = _until(limits, part)
        outcome.adopt(improve(ix, start, LocalSearchLimits(tries, until, outcome.lower_s, heat, seed)))


def _until(limits: SearchLimits, part: float = PART) -> float:
    """When a step has to end."""
    now = monotonic()
    return now + part * (limits.deadline - now)
