"""Stages that hand tensors to one another as a graph, where branches of a model lie on devices of their own.

A pipeline is the chain among them. Its depth is the longest path of stages, not their number (GraphPipe, arXiv
2406.17145): branches fill at the same time, and a stage holds as many microbatches as there are stages on the longest
path behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from phaze.arrays import Integers


@dataclass(frozen=True)
class StageGraph:
    """So many stages in an order in which tensors only go forwards; `edges`: (from, to) of stages, sorted.

    Raises ValueError where an edge leads nowhere or backwards, or stands there twice.
    """

    count: int
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Check the order."""
        ahead = all(0 <= source < target < self.count for source, target in self.edges)
        if self.count < 1 or not ahead or sorted(set(self.edges)) != list(self.edges):
            raise ValueError(f"edges {list(self.edges)} do not lead forwards among {self.count} stages")

    @property
    def is_chain(self) -> bool:
        """Whether every stage feeds the next one and no other."""
        return self.edges == tuple(pairwise(range(self.count)))

    @cached_property
    def into(self) -> tuple[tuple[int, ...], ...]:
        """Edges, by number, that lead to every stage."""
        return self._at(1)

    @cached_property
    def out_of(self) -> tuple[tuple[int, ...], ...]:
        """Edges, by number, that every stage feeds."""
        return self._at(0)

    def _at(self, end: int) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.count)]
        for number, edge in enumerate(self.edges):
            found[edge[end]].append(number)
        return tuple(map(tuple, found))

    @property
    def behind(self) -> Integers:
        """Stages on the longest path behind every stage, (C,); 0 at the ends."""
        return _behind(self.count, self.edges)

    @property
    def depth(self) -> int:
        """Stages on the longest path of all."""
        return int(self.behind.max()) + 1

    def held(self, microbatches: int) -> Integers:
        """Most microbatches in flight, (C,), under 1F1B: one for each stage on the longest path from here."""
        found: Integers = np.minimum(self.behind + 1, microbatches)
        return found

    def waiting(self, microbatches: int) -> Integers:
        """Microbatches by which a tensor of every edge waits longer than between neighbours of a chain, (E,).

        An edge that leaves out stages of a longer path is ahead of these: its tensor waits at the receiver, and the
        gradient of it at the sender.
        """
        held = self.held(microbatches)
        slack = [int(held[source] - held[target]) - 1 for source, target in self.edges]
        return np.maximum(np.array(slack, dtype=np.int64), 0)


@lru_cache(maxsize=4096)
def _behind(count: int, edges: Sequence[tuple[int, int]]) -> Integers:
    found = np.zeros(count, dtype=np.int64)
    for source, target in reversed(edges):  # sorted by source, so all that leaves a target is already known
        found[source] = max(found[source], found[target] + 1)
    found.flags.writeable = False
    return found
