"""Lower bounds of the makespan for a block of architectures; arrays are (O, A), seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .batch import BatchGraph

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROUNDS = 2
"""Rounds of forcing; further ones were seen to change almost nothing."""

MIXES = ((0.5, 0.5), (0.75, 0.25), (0.25, 0.75))
"""Weightings of two blocked units beside the pure ones; any convex mixture is valid."""

BLENDS = (0.25, 0.5, 0.75, 1.0)
"""Weights between the longest single operator and the work of all of them; any in [0, 1] is valid."""


def sweep(graph: BatchGraph, shortest: FloatArray, *, forward: bool, least: FloatArray | None = None) -> FloatArray:
    """Longest path before (`forward`) or behind every operator, at least `least`."""
    times = np.zeros_like(shortest) if least is None else least
    for i in graph.order if forward else reversed(graph.order):
        for j in graph.successors[i]:
            if forward:
                np.maximum(times[j], times[i] + shortest[i], out=times[j])
            else:
                np.maximum(times[i], times[j] + shortest[j], out=times[i])
    return times


def lower_bound(
    graph: BatchGraph, single: FloatArray, parallel: FloatArray, cores: Mapping[str, IntArray], upper: FloatArray
) -> FloatArray:
    """Proven lower bound (A,), given the makespan `upper` (A,) of some schedule; never above it."""
    single, best = single.copy(), np.zeros_like(upper)
    shares = _shares(graph, cores)
    for _ in range(ROUNDS):
        bound, changed = _round(graph, single, parallel, shares, upper)
        np.maximum(best, bound, out=best)
        if not changed:
            break
    return np.minimum(best, upper)


def _shares(graph: BatchGraph, cores: Mapping[str, IntArray]) -> list[tuple[FloatArray, bool]]:
    """Per weighting: the share (O, A) of the chip a single operator takes, and whether it weighs blocked units."""
    pure = {unit: graph.users(unit)[:, None] / cores[unit] for unit in cores if graph.users(unit).any()}
    blocked = [unit for unit in pure if unit not in graph.unblocked]
    rows = [(share, unit not in graph.unblocked) for unit, share in pure.items()]
    if len(blocked) == 2:
        one, two = blocked
        rows.extend((a * pure[one] + b * pure[two], True) for a, b in MIXES)
    return rows


def _round(
    graph: BatchGraph,
    single: FloatArray,
    parallel: FloatArray,
    shares: list[tuple[FloatArray, bool]],
    upper: FloatArray,
) -> tuple[FloatArray, bool]:
    """One bound from all relaxations; strikes out (in place) single modes that cannot beat `upper`."""
    core = graph.core[:, None]
    shortest = np.minimum(single, parallel)
    heads, tails, best = np.zeros_like(single), np.zeros_like(single), np.zeros_like(upper)
    struck = np.zeros(single.shape, dtype=bool)
    ranking = np.argsort(np.where(core, single, -1.0), axis=0)
    path = _one_path(graph, np.where(core, shortest, 0.0))
    for share, blocking in shares:
        alone = np.where(share > 0.0, single * np.maximum(share, 1e-300), 0.0)
        work = alone
        if blocking:
            alone = np.where(np.isinf(single), np.inf, alone)
            work = np.where(core, np.minimum(alone, parallel), 0.0)
            total = np.zeros_like(upper)
            for least in _blends(single, parallel, alone, path):
                some, hopeless = _thresholds(single, parallel, least, core, ranking, upper)
                np.maximum(total, some, out=total)
                struck |= hopeless
        else:
            total = work.sum(axis=0)
        np.maximum(best, total, out=best)
        np.maximum(heads, graph.below.T @ work, out=heads)
        np.maximum(tails, graph.below @ work, out=tails)
    heads = sweep(graph, shortest, forward=True, least=heads)
    tails = sweep(graph, shortest, forward=False, least=tails)
    around = heads + tails
    np.maximum(best, (around + shortest).max(axis=0), out=best)
    forced = np.isinf(single)
    serial = np.where(forced, parallel, 0.0).sum(axis=0)
    plain = np.where(core & ~forced, shortest, 0.0)
    core_around = sweep(graph, plain, forward=True) + sweep(graph, plain, forward=False) + serial
    np.maximum(best, (plain + core_around).max(axis=0), out=best)
    long = single + np.where(core, np.maximum(around, core_around), around) >= upper
    struck = (struck | long) & np.isfinite(parallel) & ~forced
    single[struck] = np.inf
    return best, bool(struck.any())


def _blends(
    single: FloatArray, parallel: FloatArray, alone: FloatArray, path: NDArray[np.bool_]
) -> list[FloatArray]:
    """Least chip times (O, A) of single operators: their share, or that blended with their time on one path.

    Single operators on a path run one after the other, so the time during which any single operator runs is at
    least the sum of their latencies, and any blend of that sum with the shares. The blend that pays makes single
    and core-parallel equal on the path; the mean over the path's operators is close to it.
    """
    usable = path & np.isfinite(single) & np.isfinite(parallel) & (single > alone)
    with np.errstate(invalid="ignore", divide="ignore"):
        even = np.where(usable, np.clip((parallel - alone) / (single - alone), 0.0, 1.0), 0.0)
    weight = np.where(usable, parallel, 0.0)
    mean = (even * weight).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
    times = np.where(path, single, 0.0)
    blended = [
        np.where(np.isinf(single), np.inf, phi * np.where(np.isinf(times), 0.0, times) + (1.0 - phi) * np.where(np.isinf(alone), 0.0, alone))
        for phi in (mean, np.maximum(mean, even.max(axis=0)))
    ]
    return [alone, *blended]


def _one_path(graph: BatchGraph, shortest: FloatArray) -> NDArray[np.bool_]:
    """(O, A): the operators of one longest path per architecture."""
    tails = sweep(graph, shortest, forward=False)
    reach = shortest + tails
    target = reach.max(axis=0)
    path = np.zeros(shortest.shape, dtype=bool)
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
    single: FloatArray,
    parallel: FloatArray,
    alone: FloatArray,
    core: NDArray[np.bool_],
    ranking: IntArray,
    upper: FloatArray,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Core time (A,) if single and core-parallel operators may not overlap, and single modes it rules out (O, A).

    Let M be the longest single-mode latency a schedule uses. Longer operators run core-parallel; the others,
    while any of them runs single, exclude core-parallel ones for at least max(M, their share of the chip).
    The least over M is the bound; where every M from some length on fails to beat `upper`, those modes are out.
    """
    ordered = np.take_along_axis(np.where(core, single, 0.0), ranking, axis=0)
    every = np.take_along_axis(np.where(core, parallel, 0.0), ranking, axis=0)
    some = np.take_along_axis(np.where(core, alone, 0.0), ranking, axis=0)
    longer = np.zeros_like(every)
    longer[:-1] = np.cumsum(every[:0:-1], axis=0)[::-1]
    bound = np.cumsum(np.minimum(every, some), axis=0) + longer
    for blend in BLENDS:
        least = np.minimum(every, (1.0 - blend) * some) if blend < 1.0 else np.zeros_like(some)
        np.maximum(bound, np.cumsum(least, axis=0) + longer + blend * ordered, out=bound)
    none = every.sum(axis=0)
    best = np.minimum(bound.min(axis=0), none)
    failing = np.logical_and.accumulate((bound >= upper)[::-1], axis=0)[::-1]
    hopeless = np.zeros_like(failing)
    np.put_along_axis(hopeless, ranking, failing, axis=0)
    return best, hopeless & core
