"""Lower bounds of the makespan for a block of architectures; arrays are (O, A), seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Floats, Integers

from .alone import longest_paths, one_path
from .graph import BatchGraph, SumStep

ROUNDS = 2
"""Rounds of forcing; further ones were seen to change almost nothing."""

FEW = 256
"""Architectures below which calls of NumPy take longer than what they add."""

PARTS = (0.0, 1.0)
"""How much of the weight the longest single operator may take that the path leaves; any in [0, 1] is
valid."""


def add_rows(rows: Floats) -> Floats:
    """Sum over operators, always in the same order: NumPy's own depends on the number of architectures."""
    if 0 < rows.size < len(rows) * FEW:  # the same additions in one call, at the price of all sums between
        sums: Floats = np.add.accumulate(rows, axis=0)[-1]
        return sums
    total = np.zeros(rows.shape[1])
    for row in rows:
        total += row
    return total


def sweep(graph: BatchGraph, shortest: Floats, *, forward: bool, least: Floats | None = None) -> Floats:
    """Longest path before (`forward`) or behind every operator, at least `least`."""
    times = np.zeros_like(shortest) if least is None else least
    if shortest.shape[1] == 1:
        found = longest_paths(graph, shortest[:, 0].tolist(), times[:, 0].tolist(), forward=forward)
        times[:, 0] = found
        return times
    for i in graph.order if forward else reversed(graph.order):
        for j in graph.successors[i]:
            if forward:
                np.maximum(times[j], times[i] + shortest[i], out=times[j])
            else:
                np.maximum(times[i], times[j] + shortest[j], out=times[i])
    return times


def lower_bound(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    upper: Floats,
) -> Floats:
    """Proven lower bound (A,), given the makespan `upper` (A,) of some schedule; never above it."""
    single, best = single.copy(), np.zeros_like(upper)
    shares = _shares(graph, cores)
    for _ in range(ROUNDS):
        bound, changed = _round(graph, single, parallel, shares, upper)
        np.maximum(best, bound, out=best)
        if not changed:
            break
    return np.minimum(best, upper)


def _shares(graph: BatchGraph, cores: Mapping[str, Integers]) -> list[tuple[Floats, bool]]:
    """Per unit: the share (O, A) of its cores that a single operator takes, and whether the unit is
    blocked."""
    used = [unit for unit in cores if graph.users(unit).any()]
    return [(graph.users(unit)[:, None] / cores[unit], unit not in graph.unblocked) for unit in used]


def _round(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    shares: list[tuple[Floats, bool]],
    upper: Floats,
) -> tuple[Floats, bool]:
    """One bound from all relaxations; strikes out (in place) single modes that cannot beat `upper`."""
    core = graph.core[:, None]
    shortest = np.minimum(single, parallel)
    heads, tails, best = np.zeros_like(single), np.zeros_like(single), np.zeros_like(upper)
    heaviest = np.zeros_like(single)
    for share, blocking in shares:
        alone = np.where(share > 0.0, single, 0.0) * np.maximum(share, 1e-300)
        if blocking:
            alone = np.where(np.isinf(single), np.inf, alone)
        work = np.minimum(alone, parallel) if blocking else alone
        total = add_rows(work)
        if blocking:
            heaviest = np.where(total >= best, alone, heaviest)
        np.maximum(best, total, out=best)
        np.maximum(heads, _summed(work, graph.sums_above), out=heads)
        np.maximum(tails, _summed(work, graph.reverse.sums_above), out=tails)
    heads = sweep(graph, shortest, forward=True, least=heads)
    tails = sweep(graph, shortest, forward=False, least=tails)
    around = heads + tails
    np.maximum(best, (around + shortest).max(axis=0), out=best)
    forced = np.isinf(single)
    serial = add_rows(np.where(forced, parallel, 0.0))
    plain = np.where(core & ~forced, shortest, 0.0)
    core_around = sweep(graph, plain, forward=True) + sweep(graph, plain, forward=False) + serial
    np.maximum(best, (plain + core_around).max(axis=0), out=best)
    struck = single + np.where(core, np.maximum(around, core_around), around) >= upper
    path = _one_path(graph, np.where(core, shortest, 0.0))
    one, every, share = (np.where(core, times, 0.0) for times in (single, parallel, heaviest))
    total, hopeless = _thresholds(one, every, share, path, upper)
    np.maximum(best, total, out=best)
    struck = (struck | (hopeless & core)) & np.isfinite(parallel) & ~forced
    single[struck] = np.inf
    return best, bool(struck.any())


def _summed(work: Floats, steps: Sequence[SumStep]) -> Floats:
    """Sums (O, A) of the work of all that precedes each operator, always in the same order."""
    if work.shape[1] == 1:
        mine = work[:, 0].tolist()
        sums = [0.0] * len(mine)
        for i, like, rest in steps:
            total = sums[like] + mine[like]
            for j in rest:
                total += mine[j]
            sums[i] = total
        return np.array(sums)[:, None]
    found = np.zeros_like(work)
    for i, like, rest in steps:
        total = np.add(found[like], work[like], out=found[i])
        for j in rest:
            total += work[j]
    return found


def _one_path(graph: BatchGraph, shortest: Floats) -> NDArray[np.bool_]:
    """(O, A): the operators of one longest path per architecture."""
    tails = sweep(graph, shortest, forward=False)
    reach = shortest + tails
    path = np.zeros(shortest.shape, dtype=bool)
    if shortest.shape[1] == 1:
        path[one_path(graph, reach[:, 0].tolist())] = True
        return path
    target = reach.max(axis=0)
    started = np.zeros(target.shape, dtype=bool)
    due = np.full(target.shape, -1)
    for i in graph.order:
        here = np.where(started, due == i, reach[i] >= target)
        path[i], started = here, started | here
        after = graph.successors[i]
        if after:
            following = np.asarray(after)[reach[list(after)].argmax(axis=0)]
            due = np.where(here, following, due)
    return path


def _thresholds(
    single: Floats,
    parallel: Floats,
    alone: Floats,
    path: NDArray[np.bool_],
    upper: Floats,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Core time (A,) if single and core-parallel operators may not overlap, and single modes it rules out
    (O, A).

    Let M be the longest single-mode latency a schedule uses. Longer operators run core-parallel; the time
    during
    which any other runs single is at least M, at least their `alone` share of the chip, and at least the sum
    along the `path`; so at least any blend of the three. The least over M is the bound; where every M from
    some
    length on fails to beat `upper`, those modes are out.
    """
    ranking = np.argsort(single, axis=0)
    ordered = np.take_along_axis(single, ranking, axis=0)
    every = np.take_along_axis(parallel, ranking, axis=0)
    some = np.take_along_axis(alone, ranking, axis=0)
    along = np.where(np.take_along_axis(path, ranking, axis=0), ordered, 0.0)
    longer = np.zeros_like(every)
    np.add.accumulate(every[:0:-1], axis=0, out=longer[-2::-1])
    bound = np.full_like(every, -np.inf)
    finite = np.isfinite(ordered)
    some[~finite], along[~finite] = np.inf, 0.0
    for of_longest, of_path in _blends(single, parallel, alone, path):
        rest = 1.0 - of_longest - of_path
        least = np.minimum(
            every, of_path * along + np.where(finite, rest * np.where(finite, some, 0.0), np.inf)
        )
        total = np.add.accumulate(least, axis=0)
        np.maximum(bound, total + longer + of_longest * np.where(finite, ordered, 0.0), out=bound)
    bound[~finite] = np.inf
    best = np.minimum(bound.min(axis=0), longer[0] + every[0])
    failing = np.logical_and.accumulate((bound >= upper)[::-1], axis=0)[::-1]
    hopeless = np.zeros_like(failing)
    np.put_along_axis(hopeless, ranking, failing, axis=0)
    return best, hopeless


def _blends(
    single: Floats, parallel: Floats, alone: Floats, path: NDArray[np.bool_]
) -> list[tuple[Floats | float, Floats | float]]:
    """Weights of the longest operator and of the path (shares take the rest): any in the simplex is valid.

    Those pay that make single and core-parallel cost the same along the path, here on its average operator.
    """
    usable = path & np.isfinite(single) & np.isfinite(parallel) & (single > 0.0)
    time = np.maximum(add_rows(np.where(usable, single, 0.0)), 1e-300)
    ratio = np.clip(add_rows(np.where(usable, parallel, 0.0)) / time, 0.0, 1.0)
    share = np.clip(add_rows(np.where(usable, alone, 0.0)) / time, 0.0, 1.0)
    blends: list[tuple[Floats | float, Floats | float]] = [(0.0, 0.0), (1.0, 0.0)]
    for part in PARTS:
        longest = part * (1.0 - ratio)
        of_path = (ratio - (1.0 - longest) * share) / np.maximum(1.0 - share, 1e-300)
        blends.append((longest, np.clip(of_path, 0.0, 1.0 - longest)))
    return blends
