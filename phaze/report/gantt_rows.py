"""Which row of a Gantt chart every core stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise

from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult

MOST_CORES = 16
"""With more cores than this, neighbours that run the same operators share a row."""

Block = tuple[int, int]
"""First and last of neighbouring rows."""


class Rows:
    """The rows from top to bottom, unit by unit; those that core-parallel operators do not block come last.

    Core-parallel operators decide nothing: thousands of cores that run only those are one row.
    """

    def __init__(self, problem: ScheduleProblem, result: ScheduleResult) -> None:
        """Number the rows and look up those of every operator."""
        units = sorted(problem.capacity, key=lambda unit: unit in problem.unblocked)
        held = {name: cores for name, cores in result.cores.items() if name not in result.parallel}
        guests = _guests(held)
        share = sum(problem.capacity.values()) > MOST_CORES
        row_of: dict[str, int] = {}
        labels: list[str] = []
        blocked = 0
        for unit in units:
            cores = [f"{unit}{k}" for k in range(problem.capacity[unit])]
            for _, group in groupby(cores, lambda core: guests.get(core, []) if share else core):
                same = list(group)
                row_of.update(dict.fromkeys(same, len(labels)))
                labels.append(_label(unit, same))
            blocked = blocked if unit in problem.unblocked else len(labels)
        self.labels = tuple(labels)
        self._every: tuple[Block, ...] = ((0, blocked - 1),)
        self._held = {name: tuple(_blocks({row_of[core] for core in cores})) for name, cores in held.items()}

    def blocks(self, name: str) -> tuple[Block, ...]:
        """Stretches of rows an operator holds: one over all rows it blocks where it is core-parallel."""
        return self._held.get(name) or self._every


def row_px(count: int) -> float:
    """Height of a row: a few rows are tall enough for upright names, many still for names across."""
    return min(max(32.0, 160 / count), max(16.0, 640 / count))


def _guests(held: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The operators on every core that has any."""
    guests: dict[str, list[str]] = {}
    for name, cores in held.items():
        for core in cores:
            guests.setdefault(core, []).append(name)
    return guests


def _label(unit: str, cores: list[str]) -> str:
    """`TC3`, or `TC4-63`."""
    return cores[0] if len(cores) == 1 else f"{cores[0]}-{cores[-1].removeprefix(unit)}"


def _blocks(rows: set[int]) -> Iterator[Block]:
    """The first and last of each run of consecutive numbers."""
    ordered = sorted(rows)
    cuts = [i for i, (a, b) in enumerate(pairwise(ordered), start=1) if b > a + 1]
    for first, last in pairwise([0, *cuts, len(ordered)]):
        if last > first:
            yield ordered[first], ordered[last - 1]
