"""The operator graph that many architectures share, with what the batch solvers ask of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Floats

from ..precedence import topological_order


class SumStep(NamedTuple):
    """An operator whose sum over others is that of one of them, this one, and the rest."""

    operator: int
    like: int
    rest: tuple[int, ...]


@dataclass(frozen=True)
class BatchGraph:
    """Operators by position: the units each holds one core of, and (before, after) edges.

    A core-parallel operator excludes every operator that needs a unit outside `unblocked`.
    Raises ValueError where an edge points nowhere or the edges have a cycle.
    """

    units: tuple[tuple[str, ...], ...]
    edges: tuple[tuple[int, int], ...]
    unblocked: frozenset[str] = frozenset({"LINK"})

    def __post_init__(self) -> None:
        """Check positions and order once."""
        for k, edge in enumerate(self.edges):
            if not all(0 <= end < self.size for end in edge):
                raise ValueError(f"edges[{k}]: {edge} names no operator; there are {self.size}")
        if len(self.order) < self.size:
            raise ValueError("edges: the precedence graph has a cycle")

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.units)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Direct successors of every operator."""
        found: list[set[int]] = [set() for _ in self.units]
        for before, after in self.edges:
            found[before].add(after)
        return tuple(tuple(sorted(row)) for row in found)

    @cached_property
    def reverse(self) -> BatchGraph:
        """The graph with every edge turned round."""
        return BatchGraph(self.units, tuple((after, before) for before, after in self.edges), self.unblocked)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Positions, each after its predecessors."""
        return topological_order(self.successors)

    @cached_property
    def adjacency(self) -> Floats:
        """(O, O): 1 where the column follows the row directly."""
        matrix = np.zeros((self.size, self.size))
        for i, row in enumerate(self.successors):
            matrix[i, list(row)] = 1.0
        return matrix

    @cached_property
    def reach(self) -> NDArray[np.bool_]:
        """(O, O): whether the column follows the row, directly or not."""
        found = np.zeros((self.size, self.size), dtype=bool)
        for i in reversed(self.order):
            for j in self.successors[i]:
                found[i] |= found[j]
                found[i, j] = True
        return found

    @cached_property
    def below(self) -> tuple[list[int], ...]:
        """Everything that follows each operator, directly or not."""
        return tuple(np.flatnonzero(row).tolist() for row in self.reach)

    @cached_property
    def above(self) -> tuple[list[int], ...]:
        """Everything that precedes each operator, directly or not."""
        return tuple(np.flatnonzero(row).tolist() for row in self.reach.T)

    @cached_property
    def sums_above(self) -> tuple[SumStep, ...]:
        """What precedes each operator that something does, in topological order.

        As all that precedes its predecessor of most, this one itself, and the rest, which is little in long graphs.
        """
        above = self.reach.T
        counts, found = above.sum(axis=1).tolist(), list[SumStep]()
        for i in self.order:
            if nearest := self.reverse.successors[i]:
                most = max(nearest, key=lambda j: (counts[j], -j))
                rest = above[i] & ~above[most]
                rest[most] = False
                found.append(SumStep(i, most, tuple(np.flatnonzero(rest).tolist())))
        return tuple(found)

    @cached_property
    def core(self) -> NDArray[np.bool_]:
        """(O,): whether the operator excludes core-parallel ones."""
        return np.array([not self.unblocked.issuperset(row) for row in self.units], dtype=bool)

    def users(self, unit: str) -> Floats:
        """(O,): 1 where the operator holds a core of the unit."""
        return np.array([float(unit in row) for row in self.units])
