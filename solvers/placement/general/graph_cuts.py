"""Cuts of a graph of layers into stages whose longest one is shortest, for every number of stages and every depth.

Stages are convex: no way leads out of one and back. A stage may hold parts of several branches. Exact by dynamic
programming over upsets (`layer_levels`): with f(d, U, k) the least longest stage of k stages in d levels that hold the
upset U, f(d, U, k) = min over levels L that lead to U and j of max(f(d - 1, U - L, k - j), g(L, j)), where g(L, j) is
the least longest of j stages along the connected components of L. A graph with too many levels is coarsened first, by
layers that stay together; then cuts are those of the coarse graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.general.layer_levels import Levels, TooLargeError, find_levels

MOST_UPSETS = 400
MOST_LEVELS = 20_000
"""Some 0.1 s of levels."""

Stages = tuple[tuple[int, ...], ...]
"""Layers of every stage, ascending, in an order in which edges only lead forwards."""


@dataclass(frozen=True)
class GraphCuts:
    """Cuts of one graph; `groups`: layers that stay together, each alone where all cuts are tried."""

    groups: Stages
    levels: Levels

    @classmethod
    def of(cls, weights: Sequence[float], edges: Sequence[tuple[int, int]]) -> GraphCuts:
        """A graph of layers of some weights; the lightest neighbours are put together until there are few levels."""
        coarse = CoarseGraph(weights, edges)
        while True:
            groups = coarse.groups
            number = {layer: at for at, group in enumerate(groups) for layer in group}
            ways = {(number[u], number[v]) for u, v in edges if number[u] != number[v]}
            try:
                return cls(groups, find_levels(len(groups), sorted(ways), MOST_UPSETS, MOST_LEVELS))
            except TooLargeError:
                for _ in range(-(-len(groups) // 6)):
                    coarse.join_lightest()

    @property
    def is_exact(self) -> bool:
        """Whether every layer may be apart from every other."""
        return all(len(group) == 1 for group in self.groups)

    def cuts(self, seconds: Floats, most: int) -> dict[int, tuple[Stages, ...]]:
        """Cuts for each number of stages from 2 to `most`, of layers (L,) that take so long.

        One for each depth whose longest stage is shorter than that of any smaller depth.
        """
        each = np.array([seconds[list(group)].sum() for group in self.groups])
        table = _Table(self.levels, each, min(most, len(self.groups)))
        found = {stages: tuple(self._stages(cut) for cut in cuts) for stages, cuts in table.best()}
        return {stages: cuts for stages, cuts in found.items() if cuts}

    def _stages(self, cut: Sequence[Sequence[int]]) -> Stages:
        return tuple(tuple(sorted(layer for at in part for layer in self.groups[at])) for part in cut)


class CoarseGraph:
    """Groups of layers that grow, without a cycle between them."""

    def __init__(self, weights: Sequence[float], edges: Sequence[tuple[int, int]]) -> None:
        self._weights = dict(enumerate(weights))
        self._members = {at: [at] for at in self._weights}
        self._into: dict[int, set[int]] = {at: set() for at in self._weights}
        self._out: dict[int, set[int]] = {at: set() for at in self._weights}
        for u, v in edges:
            self._out[u].add(v)
            self._into[v].add(u)

    @property
    def groups(self) -> Stages:
        """Layers of every group, in an order in which edges only lead forwards."""
        left = {at: len(into) for at, into in self._into.items()}
        order: list[int] = []
        ready = sorted(at for at, count in left.items() if not count)
        while ready:
            at = ready.pop(0)
            order.append(at)
            for after in self._out[at]:
                left[after] -= 1
            ready = sorted({*ready, *(after for after in self._out[at] if not left[after])})
        return tuple(tuple(sorted(self._members[at])) for at in order)

    def join_lightest(self) -> None:
        """Put the two groups together that weigh least, of those between which no other way leads."""
        pair = min(
            self._pairs(), key=lambda pair: (sum(self._weights[at] for at in pair), pair), default=None
        )
        if pair is None:
            raise ValueError("no two layers of a graph can be put together")
        self._join(*pair)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Neighbours of which one has no other, and groups that read and feed the same."""
        alike: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
        for u, out in self._out.items():
            yield from ((u, v) for v in out if len(out) == 1 or len(self._into[v]) == 1)
            alike.setdefault((frozenset(self._into[u]), frozenset(out)), []).append(u)
        for some in alike.values():
            light = sorted(some, key=lambda at: (self._weights[at], at))[:2]
            if len(light) > 1:
                yield light[0], light[1]

    def _join(self, one: int, other: int) -> None:
        self._weights[one] += self._weights.pop(other)
        self._members[one] += self._members.pop(other)
        for mine, theirs in ((self._into, self._out), (self._out, self._into)):
            for end in mine.pop(other):
                theirs[end].discard(other)
                if end != one:
                    theirs[end].add(one)
                    mine[one].add(end)


class _Table:
    """The dynamic program: `least[d]` (N, K + 1) of every upset and number of stages, in d levels."""

    def __init__(self, levels: Levels, seconds: Floats, most: int) -> None:
        self._levels, self._most = levels, most
        self._stage_s = levels.member(slice(0, levels.stages)) @ seconds
        self._by_end = np.argsort(levels.after, kind="stable")
        self._ends, self._firsts = np.unique(levels.after[self._by_end], return_index=True)
        start = np.full((levels.upsets, most + 1), np.inf)
        start[0, 0] = 0.0
        self.least = [start]

    def best(self) -> Iterator[tuple[int, list[list[list[int]]]]]:
        """For every number of stages the cuts that are shorter than all less deep ones."""
        while len(self.least) <= self._most:
            self.least.append(self._deeper(self.least[-1]))
        for stages in range(2, self._most + 1):
            shortest, found = np.inf, []
            for depth in range(1, stages + 1):
                longest = self.least[depth][-1, stages]
                if longest < shortest:
                    shortest = longest
                    found.append(self._cut(depth, stages))
            yield stages, found

    @cached_property
    def _packed(self) -> Floats:
        """Least longest of j stages along the components of every level, (P, J + 1)."""
        levels, widest = self._levels, min(self._levels.most_stages, self._most)
        found = np.full((len(levels.before), widest + 1), np.inf)
        found[:, 1] = self._stage_s[levels.alone]
        for splits in levels.splits:  # what is left of a level has fewer components, so it is known
            for count in range(2, widest + 1):
                longest = np.maximum(self._stage_s[splits.stage], found[splits.rest, count - 1])
                np.minimum.at(found[:, count], splits.level, longest)
        return found

    def _deeper(self, before: Floats) -> Floats:
        levels, found = self._levels, np.full(self.least[0].shape, np.inf)
        for count in range(1, self._packed.shape[1]):
            room = self._most + 1 - count
            each = np.maximum(before[levels.before, :room], self._packed[:, count, None])[self._by_end]
            least = np.minimum.reduceat(each, self._firsts)
            found[self._ends, count:] = np.minimum(found[self._ends, count:], least)
        return found

    def _cut(self, depth: int, stages: int) -> list[list[int]]:
        """The stages of the whole graph, first to last."""
        found: list[list[int]] = []
        upset = self._levels.upsets - 1
        while depth:
            level, count = self._last_level(depth, upset, stages)
            found += self._apart(level, count)
            depth, stages, upset = depth - 1, stages - count, int(self._levels.before[level])
        return found

    def _last_level(self, depth: int, upset: int, stages: int) -> tuple[int, int]:
        """A level that leads to an upset and the stages in it that make its least longest stage."""
        levels = self._levels
        ends = np.flatnonzero(levels.after == upset)
        counts = np.arange(1, min(stages, self._packed.shape[1] - 1) + 1)
        before = self.least[depth - 1][levels.before[ends][:, None], stages - counts]
        longest = np.maximum(before, self._packed[ends][:, counts])
        row, column = np.unravel_index(np.argmin(longest), longest.shape)
        return int(ends[row]), int(counts[column])

    def _apart(self, level: int, count: int) -> Iterator[list[int]]:
        """Layers of so many stages of a level."""
        for left in range(count, 1, -1):
            rows = [(s, at) for s in self._levels.splits for at in np.flatnonzero(s.level == level)]
            longest = [max(self._stage_s[s.stage[at]], self._packed[s.rest[at], left - 1]) for s, at in rows]
            splits, at = rows[int(np.argmin(longest))]
            yield self._members(int(splits.stage[at]))
            level = int(splits.rest[at])
        yield self._members(int(self._levels.alone[level]))

    def _members(self, stage: int) -> list[int]:
        inside: Integers = np.flatnonzero(self._levels.member(slice(stage, stage + 1))[0])
        return [int(layer) for layer in inside]
