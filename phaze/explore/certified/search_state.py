"""State of a certified search: points that no bound has ruled out, what they must promise to matter, and in the
end the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Rows
from phaze.explore.frontier.pareto_archive import Archive


class BoundStage(IntEnum):
    """How far a point got: bounded, or its schedules searched for longer and longer."""

    PATH = 0
    PLACEMENT = 1
    SEARCHED = 2
    LONGER = 3
    LONG = 4
    EXHAUSTED = 5  # searched until time was over


@dataclass(frozen=True, slots=True)
class PointPool:
    """N points, one value each: candidate number, number of the config, the columns that are minimised (N, k),
    area in mm2, what leads at best, and stage.
    """

    number: NDArray[np.int64]
    config: NDArray[np.int16]
    others: Floats
    area_mm2: Floats
    bound: Floats
    stage: NDArray[np.int8]

    def __len__(self) -> int:
        """How many."""
        return len(self.number)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> PointPool:
        """Some of the points."""
        return PointPool(*(getattr(self, f.name)[which] for f in fields(self)))

    @staticmethod
    def empty(k: int = 0) -> PointPool:
        """No points, with k columns that are minimised."""
        none = np.zeros(0)
        return PointPool(
            none.astype(np.int64), none.astype(np.int16), np.zeros((0, k)), none, none, none.astype(np.int8)
        )

    @staticmethod
    def join(parts: Iterable[PointPool]) -> PointPool:
        """Several pools as one."""
        if not (pools := list(parts)):
            return PointPool.empty()
        return PointPool(*(np.concatenate([getattr(p, f.name) for p in pools]) for f in fields(PointPool)))


_AT_ONCE = 256


@dataclass
class Relevance:
    """Relevance: what a point must promise to be of interest.

    `known`: what some plan reaches. `slack`: 1 + gap; a point that is better by less does not matter. A point that
    leads with 0 does not fit, one with less than that is below a floor: neither ever matters.
    """

    known: Archive
    slack: float = 1.0

    def least(self, others: Floats) -> Floats:
        """Optimistic lead below which a point of those other columns (A, k) cannot matter, (A,)."""
        return self.known.threshold(others) * self.slack

    def matters(self, others: Floats, lead: Floats) -> Flags:
        """Whether points of those optimistic values can matter, (A,)."""
        return (lead > 0) & ~self.known.dominates(others, lead / self.slack)

    def near(self, others: Floats, lead: Floats) -> Flags:
        """Whether points of those optimistic values cannot matter for the slack alone, (A,)."""
        if self.slack == 1.0:
            return np.zeros(len(lead), dtype=bool)
        open_ = (lead > 0) & ~self.known.dominates(others, lead)
        return open_ & ~self.matters(others, lead)


class Undecided:
    """Optimistic values of points that nothing has ruled out; of them only those that no other one dominates."""

    def __init__(self, archive: Archive) -> None:
        """`archive` is empty."""
        self._archive = archive
        self._others: list[list[float]] = []
        self._throughput: list[float] = []

    def add(self, others: Floats, throughput: Floats) -> None:
        """Add points of those optimistic values: other columns (A, k), and what leads (A,)."""
        if not len(throughput):
            return
        order = np.argsort(-throughput, kind="stable")
        while len(order := order[~self._archive.dominates(others[order], throughput[order])]):
            for i in order[:_AT_ONCE]:
                row, value = others[i].tolist(), float(throughput[i])
                if self._archive.add(row, value, (0.0, len(self._throughput))):
                    self._others.append(row)
                    self._throughput.append(value)
            order = order[_AT_ONCE:]

    def beyond(self, known: Archive) -> tuple[Floats, Floats]:
        """Other columns (N, k) and optimistic throughput (N,) of what the points of an archive do not dominate."""
        throughput, others = np.array(self._throughput), np.array(self._others)
        if not len(throughput):
            return others.reshape(0, 0), throughput
        left = ~self._archive.dominates(others, throughput) & ~known.dominates(others, throughput)
        return others[left], throughput[left]


def by_urgency(others: Floats, bound: Floats) -> Rows:
    """Positions (A,) in which `urgency` finds points without sorting them; as they are where there is no such order."""
    if others.shape[1] != 1:
        return np.arange(len(bound))
    return np.lexsort((-bound, others[:, 0]))


def urgency(others: Floats, bound: Floats) -> Floats:
    """How close points come to the frontier of their optimistic values, (A,): 1 on it.

    Those on it have to be looked at whatever the others turn out to be; the others may yet be ruled out by them.
    Told for one other column, (A, 1); with more, those that lead come first: what beats them leads by more.
    """
    if others.shape[1] != 1:
        return np.asarray(bound / bound.max(initial=0.0))
    first = others[:, 0]
    later = (first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (bound[1:] <= bound[:-1]))
    if later.all():
        return np.asarray(bound / np.maximum.accumulate(bound))
    order, hoped = by_urgency(others, bound), np.empty(len(bound))
    hoped[order] = np.maximum.accumulate(bound[order])
    return np.asarray(bound / hoped)


Point = tuple[int, int]
"""Number of a candidate, and of a config."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Values that a plan of a point reaches: `value` its throughput, in samples/s, or its score, `lead` what leads.

    Negative where it is below a floor.
    """

    value: float
    lead: float
    others: tuple[float, ...]
    area_mm2: float


@dataclass
class Outcome:
    """Everything a search found out.

    `configs`: points per candidate. `in_budget`: candidates that keep the budgets. `pruned_by`: how many of their
    points fell at which stage.
    `frontier`: what no evaluated point beats, by `point_of` its keys. `undecided`: other columns (N, k) and what leads
    (N,) of points that may lie beyond it, at best; none after a finished search.
    """

    configs: int
    in_budget: int
    pruned_by: dict[str, int]
    evaluated: dict[Point, Reached]
    frontier: Archive
    undecided: tuple[Floats, Floats]

    @property
    def finished(self) -> bool:
        """Whether the frontier is that of the whole space."""
        return not len(self.undecided[1])

    @property
    def members(self) -> list[Point]:
        """The points of the frontier, in its order."""
        return [divmod(number, self.configs) for _, number in self.frontier.keys]

    @property
    def most_reached(self) -> float:
        """What leads of all that is reached; 0 where nothing does."""
        return max((found.lead for found in self.evaluated.values() if found.lead > 0), default=0.0)

    @property
    def most(self) -> float:
        """What leads at most, reached or not."""
        return max(self.most_reached, float(self.undecided[1].max(initial=0.0)))

    def best_per_candidate(self) -> dict[int, int]:
        """The config of the evaluated point that leads, of every candidate looked at; the first of equal ones."""
        best: dict[int, int] = {}
        for number, config in sorted(self.evaluated):
            at = best.get(number)
            if at is None or self.evaluated[number, config].lead > self.evaluated[number, at].lead:
                best[number] = config
        return best
