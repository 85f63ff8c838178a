"""Lower bounds on the makespan, and what an incumbent forces.

With an incumbent U, an operator whose single-core latency does not fit between its head and tail below U must
run core-parallel in any better schedule. Such operators exclude everything on blocked units, so they are
serial
among themselves and against the rest; both facts tighten heads and tails, which forces further operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np
from numpy.typing import NDArray

from .indexed import IndexedProblem

ROUNDS = 8
"""Most rounds of forcing; each is sound, and few problems change after three."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds in every schedule shorter than the incumbent; times in seconds, one entry per operator.

    `lower_s` bounds any schedule (it never exceeds the incumbent). `heads` and `tails` are the least time
    before the start and after the end. `core_tails` is the longest path behind an operator that counts only
    free-mode
    operators on blocked units; `forced_s` is the serial time of the forced ones, which adds to it.
    `work` (rows: weightings of the units) is the least normalised core time of each operator.
    """

    lower_s: float
    single: tuple[float, ...]
    parallel: tuple[float, ...]
    heads: tuple[float, ...]
    tails: tuple[float, ...]
    core_tails: tuple[float, ...]
    forced_s: tuple[float, ...]
    work: Matrix
    weights: Matrix


def critical_path_s(ix: IndexedProblem) -> float:
    """Longest path with every operator in its faster mode, s."""
    tails = ix.tails(ix.shortest)
    return max((ix.shortest[i] + tails[i] for i in range(ix.size)), default=0.0)


def lower_bounds(ix: IndexedProblem, upper_s: float) -> Bounds:
    """Tightest of the cheap bounds, given a schedule of length `upper_s`."""
    single, parallel = list(ix.single), list(ix.parallel)
    above, below = _matrix(ix.ancestors, ix.size), _matrix(ix.descendants, ix.size)
    relaxed = _Relaxations(above, below, _weights(ix))
    for _ in range(ROUNDS):
        found = _round(ix, single, parallel, relaxed, upper_s)
        if found.lower_s >= upper_s or not _force(ix, found, single, parallel, upper_s):
            break
    return found


@dataclass(frozen=True, slots=True)
class _Relaxations:
    """What no incumbent changes: who precedes and follows whom (O, O), and weightings of units."""

    above: Matrix
    below: Matrix
    weights: Matrix


def _round(
    ix: IndexedProblem, single: list[float], parallel: list[float], relaxed: _Relaxations, upper_s: float
) -> Bounds:
    forced = tuple(parallel[i] if single[i] == inf else 0.0 for i in range(ix.size))
    shortest = tuple(map(min, single, parallel))
    work = _work(ix, single, parallel, relaxed.weights)
    heads = _sweep(ix, shortest, (work @ relaxed.above.T).max(axis=0).tolist(), forward=True)
    tails = _sweep(ix, shortest, (work @ relaxed.below.T).max(axis=0).tolist(), forward=False)
    plain = tuple(0.0 if forced[i] or not ix.core[i] else shortest[i] for i in range(ix.size))
    core_tails = ix.tails(plain)
    through = [heads[i] + shortest[i] + tails[i] for i in range(ix.size)]
    core_path = max((plain[i] + core_tails[i] for i in range(ix.size)), default=0.0) + sum(forced)
    total = float(work.sum(axis=1).max(initial=0.0))
    lower = max(max(through, default=0.0), core_path, total)
    return Bounds(
        lower_s=min(lower, upper_s),
        single=tuple(single),
        parallel=tuple(parallel),
        heads=tuple(heads),
        tails=tuple(tails),
        core_tails=tuple(core_tails),
        forced_s=forced,
        work=work,
        weights=relaxed.weights,
    )


def _force(
    ix: IndexedProblem, found: Bounds, single: list[float], parallel: list[float], upper_s: float
) -> bool:
    """Strike out modes (set to inf) that no schedule shorter than `upper_s` can use; whether any was
    struck."""
    changed = False
    total = found.work.sum(axis=1)
    whole = found.weights[:, list(ix.blocked_units)].any(axis=1)
    serial = sum(found.forced_s)
    shortest = tuple(map(min, single, parallel))
    core_heads = _core_heads(ix, found, shortest)
    for i in range(ix.size):
        if single[i] == inf or parallel[i] == inf:
            continue
        around = found.heads[i] + found.tails[i]
        core_around = core_heads[i] + found.core_tails[i] + serial
        if single[i] + max(around, core_around) >= upper_s:
            single[i] = inf
            changed = True
        elif parallel[i] + max(around, float((total - found.work[:, i])[whole].max(initial=0.0))) >= upper_s:
            parallel[i] = inf
            changed = True
    return changed


def _core_heads(ix: IndexedProblem, found: Bounds, shortest: tuple[float, ...]) -> list[float]:
    """Longest path before an operator that counts only free-mode operators on blocked units, s."""
    heads = [0.0] * ix.size
    for i in ix.order:
        weight = 0.0 if found.forced_s[i] or not ix.core[i] else shortest[i]
        for j in ix.succs[i]:
            heads[j] = max(heads[j], heads[i] + weight)
    return heads


def _sweep(
    ix: IndexedProblem, shortest: tuple[float, ...], least: list[float], *, forward: bool
) -> list[float]:
    """Longest paths to (forward) or from every operator, each at least the work that must lie there."""
    times = least
    if forward:
        for i in ix.order:
            for j in ix.succs[i]:
                times[j] = max(times[j], times[i] + shortest[i])
        return times
    for i in reversed(ix.order):
        for j in ix.succs[i]:
            times[i] = max(times[i], times[j] + shortest[j])
    return times


def _work(ix: IndexedProblem, single: list[float], parallel: list[float], weights: Matrix) -> Matrix:
    """Least core time of every operator under each weighting: a core-parallel one takes all of the chip."""
    work = np.zeros((len(weights), ix.size))
    blocked = list(ix.blocked_units)
    whole = (weights[:, blocked] * np.array(ix.capacity, dtype=np.float64)[blocked]).sum(axis=1)
    for i in range(ix.size):
        alone = weights[:, list(ix.units[i])].sum(axis=1) * single[i] if single[i] < inf else inf
        every = whole * parallel[i] if parallel[i] < inf else inf
        work[:, i] = np.minimum(alone, every)
    return work


def _weights(ix: IndexedProblem) -> Matrix:
    """Weightings of the units, per core: each unit alone, and mixtures of the blocked ones.

    Any mixture with total weight 1 over blocked units is a valid relaxation; the rows are those that
    were seen to matter: pure, half and half, three to one.
    """
    rows = [{u: 1.0} for u in range(len(ix.capacity))]
    used = sorted({u for row in ix.units for u in row} & set(ix.blocked_units))
    if len(used) > 1:
        rows.append({u: 1.0 / len(used) for u in used})
        rows.extend({one: 0.75, two: 0.25} for one, two in permutations(used, 2))
    weights = np.zeros((len(rows), len(ix.capacity)))
    for r, row in enumerate(rows):
        for u, value in row.items():
            weights[r, u] = value / ix.capacity[u]
    return weights


def _matrix(masks: tuple[int, ...], size: int) -> Matrix:
    """0/1 matrix of bit masks."""
    return np.array([[mask >> j & 1 for j in range(size)] for mask in masks], dtype=np.float64).reshape(
        size, size
    )
