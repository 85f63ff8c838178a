"""What a certified search found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from phaze.explore.archive import Archive, FloatArray
from phaze.explore.setting import Setting

Point = tuple[int, Setting]
S = TypeVar("S")


@dataclass
class Outcome:
    """Everything a search found out; points are candidate numbers with settings, throughput in samples per second.

    `settings`: points per candidate. `in_budget`: candidates that keep the budgets. `pruned_by`: how many of their
    points fell at which stage.
    `frontier`: what no evaluated point beats, down to the floor. `undecided`: other columns (N, k) and optimistic
    throughput (N,) of points that may lie beyond it; none after a finished search.
    """

    settings: int
    in_budget: int
    pruned_by: dict[str, int]
    evaluated: dict[Point, float]
    frontier: Archive
    undecided: tuple[FloatArray, FloatArray]

    @property
    def finished(self) -> bool:
        """Whether the frontier is that of the whole space."""
        return not len(self.undecided[1])

    def best_per_candidate(self) -> dict[int, tuple[float, Setting]]:
        """Throughput and setting of the best evaluated point of every candidate looked at."""
        return best_per_candidate(self.evaluated)


def best_per_candidate(evaluated: dict[tuple[int, S], float]) -> dict[int, tuple[float, S]]:
    """The best of the points of every candidate, with its setting; the first of equal ones."""
    best: dict[int, tuple[float, S]] = {}
    for (number, setting), throughput in evaluated.items():
        if number not in best or throughput > best[number][0]:
            best[number] = throughput, setting
    return best
