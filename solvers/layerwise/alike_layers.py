"""The fastest choice within a memory limit where layers come in a few kinds: how many of each kind have each strategy.

Without changes between layers only counts matter. The relaxation that allows fractions takes steps between strategies
on the lower hull of (bytes, seconds) of each kind, those first that free most bytes for a second; all but the last
step are whole (Sinha and Zoltners, Operations Research 27, 1979: the multiple-choice knapsack). With its price of
memory p and value L any choice takes

    seconds = L + sum of counts x (t + p m - least of its kind) + p (limit - bytes) >= L + sum of counts x reduced cost,

so that of all strategies but those of the last step only few layers can have one in a choice that beats the rounded
relaxation: these few counts are all tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from phaze.solvers.arrays import Floats

MOST_TRIED = 2_000
"""Counts, whole or in part, that are tried before the search gives up."""

_SAME = 1e-12


@dataclass(frozen=True)
class LayerKind:
    """So many layers alike: `time_s`, `memory_bytes` (S,) of one under each strategy, infinite time where none."""

    count: int
    time_s: Floats
    memory_bytes: Floats


@dataclass(frozen=True)
class CountChoice:
    """How many layers of each kind have each strategy; `proven`: whether no other choice is faster.

    No counts: nothing fits, or nothing is below the seconds asked for.
    """

    counts: tuple[tuple[int, ...], ...] | None
    proven: bool = True


@dataclass(frozen=True, slots=True)
class _Step:
    """Layers of a kind from one strategy to the next on its hull: seconds that a byte costs, and both of one layer."""

    price: float
    kind: int
    before: int
    after: int
    time_s: float
    freed_bytes: float


def choose_counts(kinds: Sequence[LayerKind], limit_bytes: float, below_s: float = math.inf) -> CountChoice:
    """The fastest choice within a limit, of those that take less than `below_s`; not proven after `MOST_TRIED`."""
    hulls = [_hull(kind) for kind in kinds]
    base = [hull[0] for hull in hulls]
    held = sum(k.count * float(k.memory_bytes[b]) for k, b in zip(kinds, base, strict=True))
    spent = sum(k.count * float(k.time_s[b]) for k, b in zip(kinds, base, strict=True))
    if held <= limit_bytes:
        return CountChoice(_counts(kinds, base, {}) if spent < below_s else None)
    for step in sorted(_steps(kinds, hulls), key=lambda one: (one.price, one.kind)):
        kind = kinds[step.kind]
        if held - kind.count * step.freed_bytes > limit_bytes:
            held -= kind.count * step.freed_bytes
            spent += kind.count * step.time_s
            base[step.kind] = step.after
            continue
        relaxed_s = spent + (held - limit_bytes) * step.price
        if relaxed_s >= below_s:
            return CountChoice(None)
        return _Rounded(kinds, tuple(base), step, limit_bytes, relaxed_s).best(below_s)
    return CountChoice(None)


def least_seconds(kinds: Sequence[LayerKind]) -> tuple[Floats, Floats]:
    """Bytes that layers free beside the fastest strategies, ascending, and the least seconds that it takes, (n,) each.

    These are the steps of the relaxation, from none on: between two of them a line is a lower bound of any choice, and
    no choice frees more than the last.
    """
    hulls = [_hull(kind) for kind in kinds]
    steps = sorted(_steps(kinds, hulls), key=lambda one: (one.price, one.kind))
    count = [kinds[step.kind].count for step in steps]
    freed = np.cumsum([0.0, *(n * step.freed_bytes for n, step in zip(count, steps, strict=True))])
    return freed, np.cumsum([0.0, *(n * step.time_s for n, step in zip(count, steps, strict=True))])


def _hull(kind: LayerKind) -> list[int]:
    """Strategies on the lower hull of (bytes, seconds), from the fastest to the leanest."""
    able = np.flatnonzero(np.isfinite(kind.time_s))
    order = able[np.lexsort((kind.memory_bytes[able], kind.time_s[able]))].tolist()
    found: list[int] = []
    for one in order:
        m, t = float(kind.memory_bytes[one]), float(kind.time_s[one])
        if found and m >= kind.memory_bytes[found[-1]]:
            continue
        while len(found) > 1:
            (m0, t0), (m1, t1) = ((kind.memory_bytes[i], kind.time_s[i]) for i in found[-2:])
            if (t1 - t0) * (m0 - m) < (t - t0) * (m0 - m1):
                break
            found.pop()
        found.append(one)
    return found


def _steps(kinds: Sequence[LayerKind], hulls: Sequence[Sequence[int]]) -> Iterator[_Step]:
    for number, (kind, hull) in enumerate(zip(kinds, hulls, strict=True)):
        for before, after in pairwise(hull):
            freed = float(kind.memory_bytes[before] - kind.memory_bytes[after])
            longer = float(kind.time_s[after] - kind.time_s[before])
            yield _Step(longer / freed, number, before, after, longer, freed)


@dataclass(frozen=True)
class _Rounded:
    """The relaxation, and what may beat it rounded: `base` has all whole steps, `step` is the one in part."""

    kinds: Sequence[LayerKind]
    base: tuple[int, ...]
    step: _Step
    limit: float
    relaxed_s: float

    def best(self, below_s: float) -> CountChoice:
        """The best of all counts that may take less than `below_s` and than the relaxation rounded up."""
        best_s, best = below_s, None
        others = self._others()
        stack: list[tuple[int, float, dict[tuple[int, int], int]]] = [(0, 0.0, {})]
        tried = 0
        while stack:
            at, reduced, some = stack.pop()
            tried += 1
            if tried > MOST_TRIED:
                return CountChoice(best, proven=False)
            if self.relaxed_s + reduced > best_s * (1 + _SAME):
                continue
            if at == len(others):
                found = self._with(some)
                if found is not None and found[0] < best_s:
                    best_s, best = found
                continue
            cost, kind, strategy = others[at]
            room = best_s * (1 + _SAME) - self.relaxed_s - reduced
            most = self.kinds[kind].count - sum(n for (k, _), n in some.items() if k == kind)
            if cost > 0 and math.isfinite(room):
                most = min(most, int(room / cost))
            # None of it last on the stack: what is nearest to the relaxation comes first.
            for n in range(most, -1, -1):
                stack.append((at + 1, reduced + n * cost, {**some, (kind, strategy): n} if n else some))
        return CountChoice(best)

    def _others(self) -> list[tuple[float, int, int]]:
        """Reduced costs of all strategies but those of the base and of the step, the dearest first."""
        found = []
        for number, (kind, base) in enumerate(zip(self.kinds, self.base, strict=True)):
            costs = kind.time_s + self.step.price * kind.memory_bytes
            for strategy in np.flatnonzero(np.isfinite(costs)).tolist():
                if strategy != base and (number, strategy) != (self.step.kind, self.step.after):
                    found.append((max(float(costs[strategy] - costs[base]), 0.0), number, strategy))
        return sorted(found, reverse=True)

    def _with(self, some: dict[tuple[int, int], int]) -> tuple[float, tuple[tuple[int, ...], ...]] | None:
        """Seconds and counts with some layers on other strategies, and as few as need be on the step's."""
        counts = _counts(self.kinds, self.base, some)
        step, row = self.step, list(counts[self.step.kind])
        over = self._sum("memory_bytes", counts) - self.limit
        moved = max(0, math.ceil(over / step.freed_bytes - _SAME))
        if moved > row[step.before]:
            return None
        row[step.before] -= moved
        row[step.after] += moved
        found = (*counts[: step.kind], tuple(row), *counts[step.kind + 1 :])
        return self._sum("time_s", found), found

    def _sum(self, figure: str, counts: Sequence[Sequence[int]]) -> float:
        """Sum over all layers; strategies that none has are left out, as their time may be infinite."""
        found = 0.0
        for kind, row in zip(self.kinds, counts, strict=True):
            values = getattr(kind, figure)
            found += sum(n * float(values[s]) for s, n in enumerate(row) if n)
        return found


def _counts(
    kinds: Sequence[LayerKind], base: Sequence[int], some: dict[tuple[int, int], int]
) -> tuple[tuple[int, ...], ...]:
    """Counts where all layers have their base but for some."""
    found = []
    for number, (kind, usual) in enumerate(zip(kinds, base, strict=True)):
        row = [some.get((number, s), 0) for s in range(len(kind.time_s))]
        row[usual] = kind.count - sum(row)
        found.append(tuple(row))
    return tuple(found)
