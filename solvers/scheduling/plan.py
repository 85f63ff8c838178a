"""A schedule in positions: modes, cores and an order, replayed as early as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from .indexed import Core, IndexedProblem


@dataclass(frozen=True, slots=True)
class Plan:
    """Start (s), mode and held cores of every operator, and the makespan (s).

    `cores` is empty for core-parallel operators, which hold every core of the blocked units, and for
    operators that take no time.
    """

    makespan_s: float
    starts: tuple[float, ...]
    parallel: tuple[bool, ...]
    cores: tuple[tuple[Core, ...], ...]


def replay(
    ix: IndexedProblem, sequence: Iterable[int], parallel: Sequence[bool], cores: Sequence[tuple[Core, ...]]
) -> Plan:
    """Start every operator of a (topological) sequence as early as its predecessors and cores allow."""
    starts, ends = [0.0] * ix.size, [0.0] * ix.size
    free: dict[Core, float] = {}
    blocked_until = last_core_end = 0.0
    ready = [0.0] * ix.size
    for i in sequence:
        start = max([ready[i], *(free.get(core, 0.0) for core in cores[i])])
        if ix.core[i]:
            start = max(start, last_core_end if parallel[i] else blocked_until)
        end = start + (ix.parallel[i] if parallel[i] else ix.single[i])
        for core in cores[i]:
            free[core] = end
        if ix.core[i]:
            last_core_end = max(last_core_end, end)
            if parallel[i]:
                blocked_until = end
        starts[i], ends[i] = start, end
        for j in ix.succs[i]:
            ready[j] = max(ready[j], end)
    return Plan(max(ends, default=0.0), tuple(starts), tuple(parallel), tuple(cores))


def choose_cores(ix: IndexedProblem, i: int, busy: set[Core]) -> tuple[Core, ...] | None:
    """Free cores for a single operator, None if it must wait.

    Where pairs matter, plain operators prefer cores that leave complete pairs free.
    """
    if ix.pair is not None:
        return next(iter(core_choices(ix, i, busy)), None)
    chosen = []
    for u in ix.units[i]:
        number = next((k for k in range(ix.capacity[u]) if (u, k) not in busy), None)
        if number is None:
            return None
        chosen.append((u, number))
    return tuple(chosen)


def core_choices(ix: IndexedProblem, i: int, busy: set[Core]) -> list[tuple[Core, ...]]:
    """All choices of free cores that differ by more than a symmetry, where pairs matter."""
    assert ix.pair is not None
    tensor, vector = ix.pair
    pairs = min(ix.capacity[tensor], ix.capacity[vector])
    other = tuple(
        (u, k) for u in ix.units[i] if u not in ix.pair for k in range(ix.capacity[u]) if (u, k) not in busy
    )
    if len({u for u, _ in other}) < len(set(ix.units[i]) - {*ix.pair}):
        return []
    rest = tuple({u: (u, k) for u, k in reversed(other)}.values())
    if {*ix.pair}.isdisjoint(ix.units[i]):
        return [rest]
    whole = next((k for k in range(pairs) if (tensor, k) not in busy and (vector, k) not in busy), None)
    if {*ix.pair} <= set(ix.units[i]):
        return [] if whole is None else [((tensor, whole), (vector, whole), *rest)]
    mine = tensor if tensor in ix.units[i] else vector
    mate = vector if mine == tensor else tensor
    alone = next((k for k in range(pairs, ix.capacity[mine]) if (mine, k) not in busy), None)
    halves = [k for k in range(pairs) if (mine, k) not in busy and (mate, k) in busy]
    numbers = [k for k in (alone, *halves, whole) if k is not None]
    return [((mine, k), *rest) for k in numbers]


def assign_cores(
    ix: IndexedProblem, starts: Sequence[float], ends: Sequence[float], parallel: Sequence[bool]
) -> tuple[tuple[Core, ...], ...]:
    """Lowest free cores for a schedule that respects the core counts (where pairs do not matter)."""
    cores: list[tuple[Core, ...]] = [()] * ix.size
    free_at: list[list[float]] = [[-inf] * min(count, ix.size) for count in ix.capacity]
    for i in sorted(range(ix.size), key=lambda i: (starts[i], ends[i])):
        held = []
        for u in () if parallel[i] else ix.units[i]:
            number = next(k for k, end in enumerate(free_at[u]) if end <= starts[i])
            free_at[u][number] = ends[i]
            held.append((u, number))
        cores[i] = tuple(held)
    return tuple(cores)
