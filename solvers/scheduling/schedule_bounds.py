"""Lower bounds on the makespan, and what an incumbent forces.

With an incumbent U, a mode whose latency does not fit between head and tail of its operator below U is struck
out: no better schedule uses it. An operator left with modes that take the whole chip is forced. Forced operators
exclude everything on blocked units, so they are serial among themselves and against the rest; both facts
tighten heads and tails, which strikes out further modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np
from phaze.solvers.arrays import Floats

from .indexed_problem import IndexedProblem

ROUNDS = 8
"""Most rounds of forcing; each is sound, and few problems change after three."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of every schedule shorter than the incumbent; times in seconds, one entry per operator.

    `lower_s` bounds any schedule (it never exceeds the incumbent). `heads` and `tails` are the least time
    before the start and after the end; `latency` is inf for modes that are struck out. `core_tails` is the
    longest path behind an operator that counts only operators on blocked units that are not forced;
    `forced_s` is the serial time of the forced ones, which adds to it.
    `share` (rows, O, M) holds weightings: what operators that run at one moment weigh in their modes adds up
    to at most 1. `work` (rows, O) is the least weight times duration of each operator, s.
    """

    lower_s: float
    latency: tuple[tuple[float, ...], ...]
    heads: tuple[float, ...]
    tails: tuple[float, ...]
    core_tails: tuple[float, ...]
    forced_s: tuple[float, ...]
    work: Floats
    share: Floats


def critical_path_s(ix: IndexedProblem) -> float:
    """Longest path with every operator in its fastest mode, s."""
    tails = ix.tails(ix.shortest)
    return max((ix.shortest[i] + tails[i] for i in range(ix.size)), default=0.0)


def lower_bounds(ix: IndexedProblem, upper_s: float, share: Floats | None = None) -> Bounds:
    """Tightest of the cheap bounds, given a schedule of length `upper_s`.

    `share` (rows, O, M) are further weightings, such as `mode_relaxation.weightings` finds.
    """
    latency = latencies(ix)
    above, below = relation(ix.ancestors), relation(ix.descendants)
    rows = unit_shares(ix)
    relaxed = _Relaxations(above, below, rows if share is None else np.concatenate([rows, share]))
    for _ in range(ROUNDS):
        found = _round(ix, latency, relaxed, upper_s)
        if found.lower_s >= upper_s or not _strike(ix, found, latency, upper_s):
            break
    return found


@dataclass(frozen=True, slots=True)
class _Relaxations:
    """Relations that no incumbent changes: who precedes and follows whom (O, O), and weightings (rows, O, M)."""

    above: Floats
    below: Floats
    share: Floats


def _round(ix: IndexedProblem, latency: Floats, relaxed: _Relaxations, upper_s: float) -> Bounds:
    rows = tuple(tuple(row[: len(modes)]) for row, modes in zip(latency.tolist(), ix.modes, strict=True))
    shortest = tuple(map(min, rows))
    forced = tuple(
        least if all(whole or value == inf for whole, value in zip(wholes, row, strict=True)) else 0.0
        for least, wholes, row in zip(shortest, ix.whole, rows, strict=True)
    )
    work = _work(latency, relaxed.share)
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
        latency=rows,
        heads=tuple(heads),
        tails=tuple(tails),
        core_tails=tuple(core_tails),
        forced_s=forced,
        work=work,
        share=relaxed.share,
    )


def _strike(ix: IndexedProblem, found: Bounds, latency: Floats, upper_s: float) -> bool:
    """Strike out modes (set to inf) that no schedule shorter than `upper_s` can use; whether any was."""
    changed = False
    serial = sum(found.forced_s)
    core_heads = _core_heads(ix, found, tuple(map(min, found.latency)))
    others = found.work.sum(axis=1, keepdims=True) - found.work
    crowd = (others[:, :, None] + _weighted(latency, found.share)).max(axis=0, initial=0.0)
    for i, row in enumerate(found.latency):
        alive = [m for m, value in enumerate(row) if value < inf]
        around = found.heads[i] + found.tails[i]
        beside = core_heads[i] + found.core_tails[i] + serial if ix.core[i] and not found.forced_s[i] else 0.0
        for m in alive:
            path = around if ix.whole[i][m] else max(around, beside)
            if len(alive) > 1 and max(row[m] + path, crowd[i, m]) >= upper_s:
                alive = [other for other in alive if other != m]
                latency[i, m] = inf
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


def latencies(ix: IndexedProblem) -> Floats:
    """Duration of every operator in every mode, s; inf where it has fewer modes: (O, M)."""
    found = np.full((ix.size, max(map(len, ix.modes), default=0)), inf)
    for i, row in enumerate(ix.latency):
        found[i, : len(row)] = row
    return found


def demands(ix: IndexedProblem) -> Floats:
    """Demand of every operator on every resource in every mode, of its capacity: (O, M, resources)."""
    found = np.zeros((ix.size, max(map(len, ix.modes), default=0), len(ix.capacity)))
    for i, row in enumerate(ix.modes):
        found[i, : len(row)] = [mode.demand for mode in row]
    return found / np.array(ix.capacity, dtype=np.float64)


def relation(masks: Sequence[int]) -> Floats:
    """0/1 matrix (O, O) of bit masks."""
    size = len(masks)
    width = -(-size // 8)
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(size, width), axis=1, count=size, bitorder="little")
    return bits.astype(np.float64)


def _weighted(latency: Floats, share: Floats) -> Floats:
    """Weight times duration of every row, operator and mode, s; inf for modes that are struck out."""
    finite = np.where(latency < inf, latency, 0.0)
    return share * finite + np.where(latency < inf, 0.0, inf)


def _work(latency: Floats, share: Floats) -> Floats:
    """Least weight times duration of every operator, s: one row per weighting."""
    least: Floats = _weighted(latency, share).min(axis=2, initial=inf)
    return least


def unit_shares(ix: IndexedProblem) -> Floats:
    """Weightings of the resources, such that all of the chip weighs 1: each alone, and mixtures (rows, O, M).

    Any mixture with total weight 1 is a valid relaxation; the rows are those that were seen to matter: pure,
    and of the blocked units half and half, three to one.
    """
    rows = [{u: 1.0} for u in range(len(ix.capacity))]
    used = sorted({u for row in ix.units for u in row} & set(ix.blocked_units))
    if len(used) > 1:
        rows.append({u: 1.0 / len(used) for u in used})
        rows.extend({one: 0.75, two: 0.25} for one, two in permutations(used, 2))
    weights = np.zeros((len(rows), len(ix.capacity)))
    for r, row in enumerate(rows):
        for u, value in row.items():
            weights[r, u] = value
    return np.moveaxis(demands(ix) @ weights.T, 2, 0)
