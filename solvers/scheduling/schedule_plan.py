"""A schedule in positions, replayed as early as possible; what an exact search may spend and what it has proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from time import monotonic

from .indexed_problem import Core, IndexedProblem
from .schedule_bounds import Bounds, lower_bounds


@dataclass(frozen=True, slots=True)
class Plan:
    """Start (s), mode (position in `IndexedProblem.modes`) and held cores of every operator; makespan (s).

    `cores` is empty for operators in a mode that takes the whole chip, and for those that take no time.
    """

    makespan_s: float
    starts: tuple[float, ...]
    modes: tuple[int, ...]
    cores: tuple[tuple[Core, ...], ...]


def replay(
    ix: IndexedProblem, sequence: Iterable[int], modes: Sequence[int], cores: Sequence[tuple[Core, ...]]
) -> Plan:
    """Start every operator of a (topological) sequence as early as its predecessors and cores allow.

    Where a bandwidth is shared, no operator starts before one that precedes it in the sequence.
    """
    starts, ends = [0.0] * ix.size, [0.0] * ix.size
    free: dict[Core, float] = {}
    blocked_until = last_core_end = 0.0
    ready = [0.0] * ix.size
    draws = Draws(ix)
    for i in sequence:
        whole = ix.whole[i][modes[i]]
        start = max([ready[i], *(free.get(core, 0.0) for core in cores[i])])
        if ix.core[i]:
            start = max(start, last_core_end if whole else blocked_until)
        start = draws.earliest(i, modes[i], start)
        end = start + ix.latency[i][modes[i]]
        for core in cores[i]:
            free[core] = end
        if ix.core[i]:
            last_core_end = max(last_core_end, end)
            if whole:
                blocked_until = end
        starts[i], ends[i] = start, end
        for j in ix.succs[i]:
            ready[j] = max(ready[j], end)
    return Plan(max(ends, default=0.0), tuple(starts), tuple(modes), tuple(cores))


class Draws:
    """Bandwidth drawn over time by operators that start in order."""

    def __init__(self, ix: IndexedProblem) -> None:
        """Nothing is drawn; without a shared bandwidth nothing ever waits."""
        self._ix = ix
        self._shared = ix.problem.bandwidth is not None
        self._running: list[tuple[float, int]] = []
        self._last = 0.0

    def earliest(self, i: int, mode: int, ready_s: float) -> float:
        """First moment from `ready_s` on with enough bandwidth left for an operator; it starts then."""
        if not self._shared:
            return ready_s
        latency_s, demand, _ = self._ix.modes[i][mode]
        start = max(ready_s, self._last)
        self._running = [(end, draw) for end, draw in self._running if end > start]
        while sum(draw for _, draw in self._running) + demand[-1] > self._ix.capacity[-1]:
            start = min(end for end, _ in self._running)
            self._running = [(end, draw) for end, draw in self._running if end > start]
        self._running.append((start + latency_s, demand[-1]))
        self._last = start
        return start


def choose_cores(ix: IndexedProblem, i: int, mode: int, busy: set[Core]) -> tuple[Core, ...] | None:
    """Free cores for an operator in a mode that leaves some to others, None if it must wait.

    Where pairs matter, plain operators prefer cores that leave complete pairs free.
    """
    if ix.pair is not None:
        return next(iter(core_choices(ix, i, busy)), None)
    chosen: list[Core] = []
    for u in ix.units[i]:
        count = ix.modes[i][mode].demand[u]
        free = list(islice((k for k in range(ix.capacity[u]) if (u, k) not in busy), count))
        if len(free) < count:
            return None
        chosen.extend((u, k) for k in free)
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
    ix: IndexedProblem, starts: Sequence[float], ends: Sequence[float], modes: Sequence[int]
) -> tuple[tuple[Core, ...], ...]:
    """Lowest free cores for a schedule that respects the core counts (where pairs do not matter)."""
    cores: list[tuple[Core, ...]] = [()] * ix.size
    most = [sum(u in row for row in ix.units) for u in range(len(ix.unit_names))]
    widest = [max((m.demand[u] for row in ix.modes for m in row), default=0) for u in range(len(most))]
    free_at = [[-inf] * min(ix.capacity[u], most[u] * widest[u]) for u in range(len(most))]
    for i in sorted(range(ix.size), key=lambda i: (starts[i], ends[i])):
        held: list[Core] = []
        for u in () if ix.whole[i][modes[i]] else ix.units[i]:
            free = (k for k, end in enumerate(free_at[u]) if end <= starts[i])
            numbers = list(islice(free, ix.modes[i][modes[i]].demand[u]))
            for number in numbers:
                free_at[u][number] = ends[i]
            held.extend((u, number) for number in numbers)
        cores[i] = tuple(held)
    return tuple(cores)


SAME = 1e-11
"""Relative difference below which two times are one: what ticks and sums of floats can lose."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When to stop: at a time (`time.monotonic`), at a lower bound (s), after a number of expanded states.

    `stopped`: whether somebody wants it to end before that.
    """

    deadline: float
    cutoff_s: float = inf
    states: int | None = None
    stopped: Callable[[], bool] = lambda: False

    @property
    def late(self) -> bool:
        """Whether it is time to stop."""
        return self.stopped() or monotonic() > self.deadline


@dataclass(slots=True)
class Outcome:
    """Best plan, proven bound (s), and counts of what was done."""

    plan: Plan
    lower_s: float
    work: dict[str, int] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether plan and bound meet, up to rounding."""
        return self.lower_s >= self.plan.makespan_s * (1.0 - SAME)

    def over(self, limits: SearchLimits) -> bool:
        """Whether plan and bound meet or a limit is reached."""
        return (
            self.proven
            or self.lower_s >= limits.cutoff_s
            or (limits.states is not None and self.work["states"] >= limits.states)
            or limits.late
        )

    def tighten(self, ix: IndexedProblem) -> Bounds:
        """Bounds under the makespan of the plan, which may raise the proven one."""
        bounds = lower_bounds(ix, self.plan.makespan_s)
        self.lower_s = max(self.lower_s, bounds.lower_s)
        return bounds

    def adopt(self, plan: Plan) -> None:
        """Keep a plan if it is shorter, which rounding may deny."""
        if plan.makespan_s < self.plan.makespan_s:
            self.plan = plan
