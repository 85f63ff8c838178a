"""Cuts of models with branches: between branches, and inside each so that the longest stage is as short as can be.

Layers are in an order that has every branch in one piece. A stage that holds the end of one branch and the start of the
next makes the second wait for the first, so that branches are also cut apart; how many stages each of them gets follows
from what its layers take. Stages that hold parts of several branches otherwise need another order of the layers
(`ordered_cut`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.solvers.placement.partition import balanced_cuts

FEW = 4
"""Branches, or joins, of which every choice is cut apart; of more, all or none."""


class LayerCut(NamedTuple):
    """Layers of every stage, and places of all layers in the order in which they are cut; empty, their own."""

    sizes: tuple[int, ...]
    order: tuple[int, ...] = ()


def ordered_cut(stages: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]]) -> LayerCut | None:
    """The cut that has these stages, of ascending layers; in the layers' own order where that has them.

    Otherwise what is ready and starts first comes first. None where stages feed one another both ways.
    """
    home = {layer: number for number, stage in enumerate(stages) for layer in stage}
    ways = {(home[u], home[v]) for u, v in edges if home[u] != home[v]}
    left, found = sorted(range(len(stages)), key=lambda number: stages[number][0]), list[int]()
    while left:
        ready = (n for n in left if not any(u in left for u, v in ways if v == n))
        if (first := next(ready, None)) is None:
            return None
        left.remove(first)
        found.append(first)
    order = tuple(layer for number in found for layer in stages[number])
    return LayerCut(tuple(len(stages[n]) for n in found), () if order == tuple(sorted(order)) else order)


def branch_cuts(
    seconds: Floats, edges: Sequence[tuple[int, int]], most: int
) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Blocks of every stage, for each number of stages from 2 to `most`, of blocks (B,) that take so long.

    `edges`: (from, to) of blocks, forwards. For each choice of what is cut apart the cut whose longest stage is
    shortest, one of them.
    """
    found: dict[int, dict[tuple[int, ...], None]] = {}
    for apart in _cut_apart(edges, len(seconds)):
        for cut in _balanced(seconds, apart, most):
            if len(cut) > 1:
                found.setdefault(len(cut), {})[cut] = None
    return {stages: tuple(cuts) for stages, cuts in sorted(found.items())}


def starts_and_joins(edges: Sequence[tuple[int, int]], count: int) -> tuple[list[int], list[int]]:
    """Blocks that read nothing of the one ahead of them, and others that read of more than that one."""
    into: list[set[int]] = [set() for _ in range(count)]
    for source, target in edges:
        into[target].add(source)
    starts = [b for b in range(1, count) if b - 1 not in into[b]]
    joins = [b for b in range(1, count) if b - 1 in into[b] and len(into[b]) > 1]
    return starts, joins


def _cut_apart(edges: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[int, ...]]:
    """Choices of blocks that start a stage."""
    starts, joins = starts_and_joins(edges, count)
    for some in _choices(starts):
        for more in _choices(joins):
            yield tuple(sorted({*some, *more}))


def _choices(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    sizes = range(len(places) + 1) if len(places) <= FEW else (0, len(places))
    for size in sizes:
        yield from combinations(places, size)


def _balanced(seconds: Floats, apart: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    """The cut of least longest stage for every number of stages, where some blocks start a stage.

    What lies between these is cut on its own; one more stage goes where the longest one is. That is exact: a part has
    as many stages as it needs for none to take longer, and no other can be shorter without it.
    """
    parts = np.split(seconds, apart)
    room = most - len(parts)
    if room < 0:
        return
    each = [_cuts_of(part, min(len(part), room + 1)) for part in parts]
    taken = [1] * len(parts)
    queue = [(-_longest(part, cuts[1]), at) for at, (part, cuts) in enumerate(zip(parts, each, strict=True))]
    heapq.heapify(queue)
    while True:
        yield tuple(size for cuts, n in zip(each, taken, strict=True) for size in cuts[n].tolist())
        _, at = heapq.heappop(queue)
        taken[at] += 1
        if sum(taken) > most or taken[at] > len(parts[at]):
            return
        heapq.heappush(queue, (-_longest(parts[at], each[at][taken[at]]), at))


def _cuts_of(part: Floats, most: int) -> dict[int, Integers]:
    found = balanced_cuts(part[None], list(range(1, most + 1)))
    return {stages: sizes[0] for stages, sizes in found.items()}


def _longest(part: Floats, sizes: Integers) -> float:
    return float(np.add.reduceat(part, np.cumsum([0, *sizes[:-1]])).max())
