"""The rows of the convergence benchmark as runs that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean, median

Row = Mapping[str, object]
FLOOR = 1e-4
"""A smaller distance to the optimum is drawn as this one: logarithms know no zero."""


@dataclass(frozen=True)
class Run:
    """One run of a strategy; `history`: (evaluations, seconds, value) of every improvement."""

    strategy: str
    case: tuple[str, str]
    certified: float
    history: tuple[tuple[float, float, float], ...]
    evaluations: int
    runtime_s: float

    @property
    def best(self) -> float:
        """Best value found, 0 for none."""
        return self.history[-1][2] if self.history else 0.0

    def distance_at(self, cost: float, axis: int) -> float:
        """Share of the certified optimum that is missing after so many evaluations (axis 0) or seconds (1)."""
        found = max((step[2] for step in self.history if step[axis] <= cost), default=0.0)
        return 1.0 - found / self.certified

    def reaches(self, share: float) -> tuple[float, float]:
        """Evaluations and seconds after which at most that share is missing; infinite where never."""
        return next(
            (step[:2] for step in self.history if step[2] >= (1 - share) * self.certified), (inf, inf)
        )


def runs(rows: Sequence[Row], space: str) -> dict[str, list[Run]]:
    """The runs in a space by strategy, in the order of the rows."""
    certified = values(rows, space, "certified")["certified"]
    found: dict[str, list[Run]] = {}
    for row in rows:
        if row["space"] == space and "history" in row:
            case = row["space"], row["workload"]
            history = tuple(tuple(step) for step in row["history"])
            run = Run(row["name"], case, certified[case], history, row["evaluations"], row["runtime_s"])
            found.setdefault(run.strategy, []).append(run)
    return found


def values(rows: Sequence[Row], space: str, kind: str) -> dict[str, dict[tuple[str, str], float]]:
    """Values by name and case of one kind of row, where there is one."""
    found: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if row["space"] == space and row["kind"] == kind and row["value"] is not None:
            found.setdefault(row["name"], {})[row["space"], row["workload"]] = row["value"]
    return found


def medians(some: Iterable[Run]) -> dict[tuple[str, str], float]:
    """Median best value over the seeds, by case."""
    by_case: dict[tuple[str, str], list[float]] = {}
    for run in some:
        by_case.setdefault(run.case, []).append(run.best)
    return {case: median(found) for case, found in by_case.items()}


def ratio(ours: Mapping[tuple[str, str], float], theirs: Mapping[tuple[str, str], float]) -> float | None:
    """Geometric mean of ours over theirs, over the cases in which both found something; None where none."""
    both = [log(ours[c] / theirs[c]) for c in ours if ours[c] > 0 and theirs.get(c, 0) > 0]
    return exp(fmean(both)) if both else None


def course(some: Sequence[Run], axis: int) -> list[tuple[float, float]]:
    """(cost, median distance) wherever a run improves; evaluations (axis 0) or seconds (1)."""
    ends = [(run.evaluations, run.runtime_s)[axis] for run in some]
    steps = sorted({step[axis] for run in some for step in run.history} | {max(ends)})
    points = [(cost, max(FLOOR, median(run.distance_at(cost, axis) for run in some))) for cost in steps]
    return [
        point for k, point in enumerate(points) if k in (0, len(points) - 1) or point[1] != points[k - 1][1]
    ]
