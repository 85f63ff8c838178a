"""Schedules as sequences of phases, for a block of architectures; arrays are (O, A), seconds.

A core-parallel operator excludes every other operator on cores. Seen from the cores, a schedule is therefore a
sequence of phases: one core-parallel operator, or a group of single ones. What has ended between two phases is
closed under predecessors, and small graphs have few such sets, so the best sequence is a shortest path over
them. A group takes at least its longest path and at least its work on any unit; with these lengths the shortest
path bounds the makespan from below, and a list schedule that follows it bounds it from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Flags, Floats, Integers

from ..phases.phase_sequences import MOST_OPERATORS, sequences
from .graph import BatchGraph
from .upper_bounds import in_phases

MOST_SETS = 200
"""Graphs with more closed sets are left alone: time grows with the pairs of sets, some thousand at this size."""


@dataclass(frozen=True, slots=True)
class PhaseSpace:
    """Sets of operators closed under predecessors, smallest first; `member` (S, O), and who contains whom.

    `larger[s]` are the positions of the proper supersets of set s; `grown[s]` maps an operator to the position
    of the set with it, where that is closed too.
    """

    member: Flags
    larger: tuple[NDArray[np.intp], ...]
    grown: tuple[Mapping[int, int], ...]


@lru_cache(maxsize=512)
def phase_space(graph: BatchGraph) -> PhaseSpace | None:
    """The closed sets of a graph, None where there are more than `MOST_SETS`."""
    before = [sum(1 << j for j in above) for above in graph.above]
    masks = [0]
    for mask in masks:  # grows while it is read: breadth first, so by size
        for i in range(graph.size):
            bigger = mask | 1 << i
            if bigger != mask and not before[i] & ~mask and bigger not in masks:
                masks.append(bigger)
        if len(masks) > MOST_SETS:
            return None
    position = {mask: s for s, mask in enumerate(masks)}
    member = np.array([[mask >> i & 1 for i in range(graph.size)] for mask in masks], dtype=bool)
    larger = tuple(
        np.array([s for s, other in enumerate(masks) if other != mask and not mask & ~other], dtype=np.intp)
        for mask in masks
    )
    grown = tuple(
        {
            i: position[mask | 1 << i]
            for i in range(graph.size)
            if not mask >> i & 1 and mask | 1 << i in position
        }
        for mask in masks
    )
    return PhaseSpace(member, larger, grown)


def bounds_in_phases(
    graph: BatchGraph, single: Floats, parallel: Floats, cores: Mapping[str, Integers], slots: int = 0
) -> tuple[Floats, Floats] | None:
    """Lower and upper bounds (A,) of the makespan, None where a graph has more than `MOST_SETS` closed sets.

    With `slots` of a table such graphs of up to `MOST_OPERATORS` are bounded, too, groups by their paths alone;
    where half of them are too few for an architecture its bounds are 0 and inf.
    """
    shares = {
        unit: graph.users(unit)[:, None] / cores[unit]
        for unit in cores
        if unit not in graph.unblocked and graph.users(unit).any()
    }
    # An operator that holds every core even in single mode is as good as a core-parallel one.
    alone = np.logical_and.reduce([share >= 1.0 for share in shares.values()]) & graph.core[:, None]
    parallel = np.where(alone, np.minimum(single, parallel), parallel)
    grouped = np.where(alone, np.inf, np.where(graph.core[:, None], single, 0.0))
    space = phase_space(graph)
    if space is not None:
        lower, came = _shortest(graph, space, grouped, parallel, list(shares.values()))
        return lower, in_phases(graph, single, parallel, cores, *_phases(space, came))
    if slots and graph.size <= MOST_OPERATORS:
        lower, phase, whole = sequences(graph.successors, graph.order, grouped.T, parallel.T, slots)
        at, upper = np.flatnonzero(lower > 0.0), np.full_like(lower, np.inf)
        if at.size:
            some = {unit: count[at] for unit, count in cores.items()}
            found = np.ascontiguousarray(phase[at].T), np.ascontiguousarray(whole[at].T)
            upper[at] = in_phases(graph, single[:, at], parallel[:, at], some, *found)
        return lower, upper
    return None


def _shortest(
    graph: BatchGraph, space: PhaseSpace, single: Floats, parallel: Floats, shares: list[Floats]
) -> tuple[Floats, NDArray[np.int16]]:
    """Length (A,) of the shortest path, and the set before each set on it (S, A): s, or ~s if core-parallel.

    Operators off the cores count nothing: they may run beside any phase.
    """
    finite = np.where(np.isfinite(single), single, 0.0)  # a missing single mode makes the path infinite
    work = [_totals(space, finite * share) for share in shares]
    length = np.full((len(space.member), single.shape[1]), np.inf)
    length[0] = 0.0
    came = np.zeros(length.shape, dtype=np.int16)
    for s, larger in enumerate(space.larger):
        group = _longest_paths(graph, space.member[s], space.member[larger], single)
        for row in work:
            np.maximum(group, row[larger] - row[s], out=group)
        _relax(length, came, larger, length[s] + group, s)
        for i, t in space.grown[s].items():
            if graph.core[i]:
                _relax(length, came, np.array([t]), (length[s] + parallel[i])[None], ~s)
    return length[-1], came


def _totals(space: PhaseSpace, times: Floats) -> Floats:
    """Sum (S, A) over every set; a matrix product would depend on the number of architectures in the last bit."""
    total = np.zeros((len(space.member), times.shape[1]))
    for s, grown in enumerate(space.grown):
        for i, t in grown.items():
            total[t] = total[s] + times[i]
    return total


def _relax(
    length: Floats, came: NDArray[np.int16], at: NDArray[np.intp], through: Floats, origin: int
) -> None:
    better = through < length[at]
    length[at] = np.where(better, through, length[at])
    came[at] = np.where(better, np.int16(origin), came[at])


def _longest_paths(graph: BatchGraph, done: Flags, sets: Flags, single: Floats) -> Floats:
    """Longest path (sets, A) inside what each of the sets has beyond `done`."""
    longest = np.zeros((len(sets), single.shape[1]))
    ends = np.zeros_like(single)
    for i in graph.order:
        if not done[i]:
            ends[i] += single[i]
            for j in graph.successors[i]:
                np.maximum(ends[j], ends[i], out=ends[j])
            holders = np.flatnonzero(sets[:, i])
            longest[holders] = np.maximum(longest[holders], ends[i])
    return longest


def _phases(space: PhaseSpace, came: NDArray[np.int16]) -> tuple[Integers, Flags]:
    """Number of the phase of every operator on the shortest path (O, A), and whether it is core-parallel."""
    columns = np.arange(came.shape[1])
    at = np.full(came.shape[1], len(space.member) - 1)
    phase = np.zeros((space.member.shape[1], came.shape[1]), dtype=np.int64)
    whole = np.zeros(phase.shape, dtype=bool)
    number = 0
    while at.any():
        origin = came[at, columns].astype(np.int64)
        before = np.where(origin < 0, ~origin, origin)
        new = (space.member[at] & ~space.member[before]).T
        phase[new], number = number, number - 1
        whole |= new & (origin < 0)
        at = before
    return phase, whole
