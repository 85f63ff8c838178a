"""A problem in numbers: positions instead of names, bit masks instead of sets, demands instead of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .schedule_problem import Mode, Operator, ScheduleProblem

Core = tuple[int, int]
"""Unit position and core number."""

PARTS = 1 << 40
"""Whole parts of the shared bandwidth. Draws are rounded down, so that three thirds make one; 1000 concurrent
operators may together exceed the bandwidth by 1e-9 of it, which the checker allows."""


class IndexedMode(NamedTuple):
    """A way to run an operator: duration (s), demand of every resource, position among `Operator.modes`."""

    latency_s: float
    demand: tuple[int, ...]
    position: int


@dataclass(frozen=True)
class IndexedProblem:
    """Scheduling problem as the solvers read it.

    Resources are the units and then, where there is a shared bandwidth, its parts. A core-parallel mode
    demands all of every blocked unit, and is then `whole`. `modes[i]` leaves out what another mode of the
    operator beats (no longer, no demand larger); an operator that can take no time has one mode without
    demands.
    `core[i]` says whether operator i excludes core-parallel operators. `pair` holds the positions of TC and
    VC where counting cores is not enough, else None.
    """

    problem: ScheduleProblem
    capacity: tuple[int, ...]
    blocked_units: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    modes: tuple[tuple[IndexedMode, ...], ...]
    core: tuple[bool, ...]
    preds: tuple[int, ...]
    pair: tuple[int, int] | None

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.modes)

    @property
    def order(self) -> tuple[int, ...]:
        """Positions, each after its predecessors."""
        return self.problem.topological_order

    @property
    def succs(self) -> tuple[tuple[int, ...], ...]:
        """Direct successors."""
        return self.problem.successors

    @property
    def unit_names(self) -> tuple[str, ...]:
        """Names of the units, in the order of the resources."""
        return tuple(self.problem.capacity)

    @cached_property
    def whole(self) -> tuple[tuple[bool, ...], ...]:
        """Per operator and mode: whether it leaves no core to any operator that needs a blocked unit."""
        return tuple(
            tuple(
                core and all(mode.demand[u] == self.capacity[u] for u in self.blocked_units) for mode in row
            )
            for core, row in zip(self.core, self.modes, strict=True)
        )

    @cached_property
    def latency(self) -> tuple[tuple[float, ...], ...]:
        """Duration of every operator in every mode, s."""
        return tuple(tuple(mode.latency_s for mode in row) for row in self.modes)

    @cached_property
    def shortest(self) -> tuple[float, ...]:
        """Duration in the fastest mode, s."""
        return tuple(min(row) for row in self.latency)

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

    def tails(self, duration: Sequence[float]) -> list[float]:
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
    parts = () if problem.bandwidth is None else (PARTS,)
    capacity = (*problem.capacity.values(), *parts)
    units, modes = [], []
    for operator in problem.operators:
        needed = tuple(position[unit] for unit in operator.units)
        rows = _modes(problem, operator, needed, capacity, blocked)
        free = rows[0].latency_s == 0.0
        units.append(() if free else needed)
        modes.append((IndexedMode(0.0, (0,) * len(capacity), rows[0].position),) if free else rows)
    preds = [0] * len(modes)
    for i, row in enumerate(problem.successors):
        for j in row:
            preds[j] |= 1 << i
    return IndexedProblem(
        problem=problem,
        capacity=capacity,
        blocked_units=blocked,
        units=tuple(units),
        modes=tuple(modes),
        core=tuple(not set(blocked).isdisjoint(row) for row in units),
        preds=tuple(preds),
        pair=_pair(problem, position),
    )


def _modes(
    problem: ScheduleProblem,
    operator: Operator,
    needed: tuple[int, ...],
    capacity: tuple[int, ...],
    blocked: tuple[int, ...],
) -> tuple[IndexedMode, ...]:
    """Modes that no other one beats, fastest first, then least demand."""
    rows = sorted(
        IndexedMode(mode.latency_s, _demand(problem, mode, needed, capacity, blocked), k)
        for k, mode in enumerate(operator.modes)
    )
    kept: list[IndexedMode] = []
    for row in rows:
        if not any(all(a <= b for a, b in zip(other.demand, row.demand, strict=True)) for other in kept):
            kept.append(row)
    return tuple(kept)


def _demand(
    problem: ScheduleProblem,
    mode: Mode,
    needed: tuple[int, ...],
    capacity: tuple[int, ...],
    blocked: tuple[int, ...],
) -> tuple[int, ...]:
    """Demand of a mode on every resource."""
    held = [0] * len(capacity)
    for u in blocked if mode.cores is None else needed:
        held[u] = capacity[u] if mode.cores is None else mode.cores
    if problem.bandwidth:
        held[-1] = int(mode.bandwidth / problem.bandwidth * PARTS)
    return tuple(held)


def _pair(problem: ScheduleProblem, position: dict[str, int]) -> tuple[int, int] | None:
    """Positions of TC and VC if some operator needs a pair and there is more than one core to choose."""
    if not problem.pairing or max(problem.capacity.get("TC", 0), problem.capacity.get("VC", 0)) < 2:
        return None
    if not any({"TC", "VC"} <= set(operator.units) for operator in problem.operators):
        return None
    return position["TC"], position["VC"]
