"""List schedules of many architectures, one after the other: what numba compiles.

The rule is that of `upper_bounds.dispatch`, and every sum is made of the same numbers in the same order, so that a
makespan is the same to the last bit. A start looks at the operators that are ready.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers


class Operators(NamedTuple):
    """O operators of K kinds: those of a kind hold the same `units` (K, U), and wait for core-parallel ones or not.

    `core` (K,) says which wait. What follows o is `follows[first[o] : first[o + 1]]`; `before` (O,) counts those that o
    follows.
    """

    kind: Integers
    units: Flags
    core: Flags
    first: Integers
    follows: Integers
    before: Integers


class Times(NamedTuple):
    """Seconds of operators on architectures (A, O) in both modes, priorities, and which may leave cores to others."""

    single: Floats
    parallel: Floats
    priority: Floats
    shares: Flags


class State(NamedTuple):
    """What changes from start to start.

    `waiting` (O,): operators before each that have not ended; `queue` (O,): those that are ready; `ready` (O,): since
    when, inf where they are not; `known` (O,): when the last one before each ended; `begins` (K,): when operators of a
    kind find a core of each of their units.
    """

    waiting: Integers
    queue: Integers
    ready: Floats
    known: Floats
    begins: Floats


def list_schedules(operators: Operators, times: Times, free: Floats, makespan: Floats) -> None:
    """Fill makespans (A,); `free` (A, U, C): when the cores of every unit are free, inf where there is none."""
    size = len(operators.kind)
    waiting, queue = np.empty(size, np.int64), np.empty(size, np.int64)
    state = State(waiting, queue, np.empty(size), np.empty(size), np.empty(len(operators.core)))
    for a in range(len(makespan)):
        one = Times(times.single[a], times.parallel[a], times.priority[a], times.shares[a])
        makespan[a] = _makespan(operators, one, free[a], state)


def _makespan(operators: Operators, times: Times, free: Floats, state: State) -> float:
    """Makespan of one architecture."""
    waiting, queue, ready, known, begins = state
    count, length, blocked_until, cores_end = 0, 0.0, 0.0, 0.0
    for o in range(len(waiting)):
        waiting[o], known[o], ready[o] = operators.before[o], 0.0, inf
        if waiting[o] == 0:
            queue[count], ready[o] = o, 0.0
            count += 1
    for _ in range(len(waiting)):
        _find_cores(operators, free, blocked_until, begins)
        now, place, whole = _first(operators, times, state, count, cores_end)
        if place < 0:
            return inf
        chosen = queue[place]
        kind = operators.kind[chosen]
        if whole and times.shares[chosen] and max(ready[chosen], begins[kind]) <= now:
            whole = times.single[chosen] > _others_s(operators, times, ready, now)
        if whole:
            end = blocked_until = now + times.parallel[chosen]
        else:
            end = now + times.single[chosen]
            for unit in range(len(free)):
                if operators.units[kind, unit]:
                    free[unit, free[unit].argmin()] = end
        if operators.core[kind]:
            cores_end = max(cores_end, end)
        length = max(length, end)
        count -= 1
        queue[place], ready[chosen] = queue[count], inf
        for p in range(operators.first[chosen], operators.first[chosen + 1]):
            o = operators.follows[p]
            waiting[o] -= 1
            known[o] = max(known[o], end)
            if waiting[o] == 0:
                ready[o], queue[count] = known[o], o
                count += 1
    return length


def _find_cores(operators: Operators, free: Floats, blocked_until: float, begins: Floats) -> None:
    """Fill the earliest times at which operators of every kind find cores."""
    for k in range(len(operators.core)):
        begins[k] = blocked_until if operators.core[k] else 0.0
        for unit in range(len(free)):
            if operators.units[k, unit]:
                begins[k] = max(begins[k], free[unit].min())


def _first(
    operators: Operators, times: Times, state: State, count: int, cores_end: float
) -> tuple[float, int, bool]:
    """When the operator that can start first does, of those the one with least slack; its place among the ready ones,
    -1 where none can ever start, and whether it is faster on all cores."""
    now, place, whole = inf, -1, False
    for p in range(count):
        o = state.queue[p]
        alone = max(state.ready[o], state.begins[operators.kind[o]])
        every = max(state.ready[o], cores_end)
        faster = every + times.parallel[o] < alone + times.single[o]
        start = every if faster else alone
        if start > now or start == inf:
            continue
        if start == now:
            other = state.queue[place]
            rank, least = times.priority[o], times.priority[other]
            if rank < least or (rank == least and o > other):
                continue
        now, place, whole = start, p, faster
    return now, place, whole


def _others_s(operators: Operators, times: Times, ready: Floats, now: float) -> float:
    """Seconds that all operators that could start now take one after the other, each on all cores."""
    total = 0.0
    for o in range(len(ready)):
        if ready[o] <= now and operators.core[operators.kind[o]] and times.parallel[o] < inf:
            total += times.parallel[o]
    return total
