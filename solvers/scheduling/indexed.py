"""A problem in numbers: positions instead of names, bit masks instead of sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from .problem import ScheduleProblem

Core = tuple[int, int]
"""Unit position and core number."""


@dataclass(frozen=True)
class IndexedProblem:
    """What the solvers read.

    `parallel[i]` is inf where core-parallel is impossible or not faster (a single operator holds less for
    no longer). Operators that can take no time hold nothing: `units[i]` is empty and `single[i]` 0.
    `core[i]` says whether operator i excludes core-parallel operators. `pair` holds the positions of TC and
    VC where counting cores is not enough, else None.
    """

    problem: ScheduleProblem
    unit_names: tuple[str, ...]
    capacity: tuple[int, ...]
    blocked_units: tuple[int, ...]
    single: tuple[float, ...]
    parallel: tuple[float, ...]
    units: tuple[tuple[int, ...], ...]
    core: tuple[bool, ...]
    preds: tuple[int, ...]
    pair: tuple[int, int] | None

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.single)

    @property
    def order(self) -> tuple[int, ...]:
        """Positions, each after its predecessors."""
        return self.problem.topological_order

    @property
    def succs(self) -> tuple[tuple[int, ...], ...]:
        """Direct successors."""
        return self.problem.successors

    @cached_property
    def shortest(self) -> tuple[float, ...]:
        """The smaller of both durations, s."""
        return tuple(map(min, self.single, self.parallel))

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Bit mask of everything that must end before each operator starts."""
        masks = [0] * self.size
        for i in self.order:
            below = masks[i] | 1 << i
            for j in self.succs[i]:
                masks[j] |= below
        return tuple(masks)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Bit mask of everything that waits for each operator."""
        masks = [0] * self.size
        for i in reversed(self.order):
            for j in self.succs[i]:
                masks[i] |= masks[j] | 1 << j
        return tuple(masks)

    def tails(self, duration: tuple[float, ...]) -> list[float]:
        """Longest time from the end of every operator to the end of the schedule, s."""
        tails = [0.0] * self.size
        for i in reversed(self.order):
            for j in self.succs[i]:
                tails[i] = max(tails[i], duration[j] + tails[j])
        return tails


def index_problem(problem: ScheduleProblem) -> IndexedProblem:
    """Numbers of a (checked) problem."""
    names = tuple(problem.capacity)
    position = {name: u for u, name in enumerate(names)}
    blocked = tuple(u for u, name in enumerate(names) if name not in problem.unblocked)
    single, parallel, units = [], [], []
    for operator in problem.operators:
        one, every = operator.latency_s, operator.parallel_latency_s
        every = inf if every is None or every >= one else every
        free = min(one, every) == 0.0
        single.append(0.0 if free else one)
        parallel.append(inf if free else every)
        units.append(() if free else tuple(position[unit] for unit in operator.units))
    preds = [0] * len(single)
    for i, row in enumerate(problem.successors):
        for j in row:
            preds[j] |= 1 << i
    held = set(blocked)
    return IndexedProblem(
        problem=problem,
        unit_names=names,
        capacity=tuple(problem.capacity.values()),
        blocked_units=blocked,
        single=tuple(single),
        parallel=tuple(parallel),
        units=tuple(units),
        core=tuple(not held.isdisjoint(row) for row in units),
        preds=tuple(preds),
        pair=_pair(problem, position),
    )


def _pair(problem: ScheduleProblem, position: dict[str, int]) -> tuple[int, int] | None:
    """Positions of TC and VC if some operator needs a pair and there is more than one core to choose."""
    if not problem.pairing or max(problem.capacity.get("TC", 0), problem.capacity.get("VC", 0)) < 2:
        return None
    if not any({"TC", "VC"} <= set(operator.units) for operator in problem.operators):
        return None
    return position["TC"], position["VC"]
