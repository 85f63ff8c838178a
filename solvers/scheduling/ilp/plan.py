"""From the orders that a solver chose to a plan, and the groups of operators that overflow a resource in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb

from ..indexed import Core, IndexedProblem
from ..plan import Plan, assign_cores, replay

MOST_GROUPS = 1000
"""Groups looked through at most to foresee an overflow: a thousand rows still cost HiGHS little."""


def follow(ix: IndexedProblem, modes: list[int], cores: list[tuple[Core, ...]], before: list[int]) -> Plan:
    """Everything as early as a full set of precedences (masks) allows."""
    starts, ends, done = [0.0] * ix.size, [0.0] * ix.size, 0
    left = list(ix.order)
    while left:
        i = next(i for i in left if not before[i] & ~done)
        starts[i] = max((ends[j] for j in range(ix.size) if before[i] >> j & 1), default=0.0)
        ends[i] = starts[i] + ix.latency[i][modes[i]]
        done |= 1 << i
        left.remove(i)
    return Plan(max(ends), tuple(starts), tuple(modes), tuple(cores))


def with_cores(ix: IndexedProblem, plan: Plan) -> Plan:
    """The plan with cores by name, as early as they allow."""
    ends = _ends(ix, plan)
    cores = plan.cores if ix.pair is not None else assign_cores(ix, plan.starts, ends, plan.modes)
    sequence = sorted(range(ix.size), key=lambda i: (plan.starts[i], ends[i]))
    return replay(ix, _topological(ix, sequence), plan.modes, cores)


def crowded(ix: IndexedProblem, plan: Plan) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Resource and least groups of (operator, mode) that overflow it at one moment, each group once.

    Where a resource overflows and operators alike hold it, all groups that ever could overflow it, if they are few.
    Operators that take the whole chip are ordered against all others already.
    """
    ends = _ends(ix, plan)
    for u, capacity in enumerate(ix.capacity):
        held = [ix.modes[i][m].demand[u] for i, m in enumerate(plan.modes)]
        users = [i for i in range(ix.size) if held[i] and not ix.whole[i][plan.modes[i]]]
        groups: dict[tuple[int, ...], None] = {}
        for moment in sorted({plan.starts[i] for i in users}):
            running = [i for i in users if plan.starts[i] <= moment < ends[i]]
            groups.update(dict.fromkeys(_covers(running, held, capacity)))
        if groups and len({held[i] for i in users}) == 1:
            groups.update(dict.fromkeys(_unordered(ix, users, capacity // held[users[0]] + 1)))
        for group in groups:
            yield u, tuple((i, plan.modes[i]) for i in group)


def _unordered(ix: IndexedProblem, users: list[int], size: int) -> list[tuple[int, ...]]:
    """Groups of a size without precedence inside; none if they are many."""
    if comb(len(users), size) > MOST_GROUPS:
        return []
    related = [ix.ancestors[i] | ix.descendants[i] for i in range(ix.size)]
    groups = combinations(users, size)
    return [g for g in groups if not any(related[i] >> j & 1 for i, j in combinations(g, 2))]


def _covers(running: list[int], held: list[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """Least groups whose demand exceeds the capacity: every one of equal demands, else the largest first."""
    if sum(held[i] for i in running) <= capacity:
        return
    if len({held[i] for i in running}) == 1:
        yield from combinations(running, capacity // held[running[0]] + 1)
        return
    group, total = [], 0
    for i in sorted(running, key=lambda i: (-held[i], i)):
        group.append(i)
        total += held[i]
        if total > capacity:
            break
    yield tuple(sorted(group))


def _ends(ix: IndexedProblem, plan: Plan) -> list[float]:
    return [
        start + ix.latency[i][m] for i, (start, m) in enumerate(zip(plan.starts, plan.modes, strict=True))
    ]


def _topological(ix: IndexedProblem, sequence: list[int]) -> list[int]:
    """The sequence with every operator moved behind its predecessors, which rounding may have undone."""
    placed, done, left = [], 0, list(sequence)
    while left:
        i = next(i for i in left if not ix.preds[i] & ~done)
        placed.append(i)
        done |= 1 << i
        left.remove(i)
    return placed
