"""The fastest choice within a memory limit: a dynamic program over layers, on pairs of memory and time.

With no limit, the least time from a layer on needs to know only the strategy of the layer before. With one, every
strategy keeps all pairs (bytes, seconds) of the layers so far of which none is both larger and slower than another:

    F[i][b] = pairs not dominated of {(m + memory[i, b], t + change[i, a, b] + time[i, b]) : a, (m, t) in F[i - 1][a]}.

Memory is not rounded to steps, so the answer is exact. A price of memory (Lagrange's) gives bounds of all that may
follow, by the program without a limit; pairs that cannot lead to a better choice than one that is known are dropped.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Floats, Rows
from phaze.solvers.layerwise.layer_choice import ChoiceStatus, LayerProblem, LayerResult, check_choice

MOST_LABELS = 2_000_000
"""Pairs kept at all layers together; beyond, the search ends with a bound."""

SAME = 1e-12
"""Relative difference between choices that is no gain; bounds are for a limit larger by as much, above any rounding."""

_MOST_PRICES = 100


@dataclass(frozen=True)
class _Ahead:
    """Least cost of the layers after i, given that i has a strategy, where a byte costs `price` seconds, (L, S)."""

    price: float
    cost_s: Floats
    ahead_s: Floats
    best: tuple[int, ...]

    @classmethod
    def of(cls, problem: LayerProblem, time_s: Floats, price: float) -> _Ahead:
        """Backwards over layers; `time_s` (L, S) in the place of the problem's own."""
        cost_s = time_s + price * problem.memory_bytes
        ahead, follower = np.zeros_like(cost_s), np.zeros(cost_s.shape, dtype=np.intp)
        for i in range(len(cost_s) - 2, -1, -1):
            later = problem.change_s[i + 1] + (cost_s[i + 1] + ahead[i + 1])[None, :]
            follower[i], ahead[i] = later.argmin(axis=1), later.min(axis=1)
        best = [int((cost_s[0] + ahead[0]).argmin())]
        for i in range(len(cost_s) - 1):
            best.append(int(follower[i, best[-1]]))
        return cls(price, cost_s, ahead, tuple(best))

    def bound_s(self, limit_bytes: float) -> float:
        """Seconds that no choice within the limit is below."""
        return float((self.cost_s[0] + self.ahead_s[0]).min()) - self.price * limit_bytes * (1 + SAME)


@dataclass(frozen=True)
class _Labels:
    """Pairs of one layer, not dominated within a strategy: bytes, seconds, strategy, and the pair before, each (n,)."""

    memory_bytes: Floats
    time_s: Floats
    strategy: Rows
    before: Rows


def choose_layers(problem: LayerProblem, most_labels: int = MOST_LABELS) -> LayerResult:
    """The choice of least time within the limit, checked; with its bound where there are too many pairs to end."""
    started = time.perf_counter()
    if not problem.least_bytes <= problem.limit_bytes:
        return LayerResult(
            ChoiceStatus.INFEASIBLE, math.inf, math.inf, math.inf, time.perf_counter() - started
        )
    search = _Search(problem, most_labels)
    found, bound_s = search.run()
    time_s, memory_bytes = check_choice(problem, found)
    status = ChoiceStatus.OPTIMAL if bound_s >= time_s * (1 - SAME) else ChoiceStatus.FEASIBLE
    low = time_s if status is ChoiceStatus.OPTIMAL else bound_s
    took = time.perf_counter() - started
    return LayerResult(status, time_s, low, memory_bytes, took, found, search.kept)


class _Search:
    def __init__(self, problem: LayerProblem, most_labels: int) -> None:
        self.problem, self.most, self.kept = problem, most_labels, 0
        self.best, self.best_s = self._leanest, check_choice(problem, self._leanest)[0]

    def run(self) -> tuple[tuple[int, ...], float]:
        """The choice, and seconds that none is below."""
        free, priced = self._prices()
        bound_s = max(free.bound_s(self.problem.limit_bytes), priced.bound_s(self.problem.limit_bytes))
        if bound_s >= self.best_s * (1 - SAME):
            return self.best, self.best_s
        layers: list[_Labels] = []
        for i in range(len(self.problem.time_s)):
            grown = self._grown(i, layers[-1], free, priced) if layers else self._first(free, priced)
            if grown is None:
                least_s = float(self._bounds_s(i - 1, layers[-1], free, priced).min())
                return self.best, max(bound_s, min(self.best_s, least_s))
            if not len(grown.time_s):
                return self.best, self.best_s
            layers.append(grown)
        return self._traced(layers)

    # -- prices of memory ----------------------------------------------------------------------------------------

    @cached_property
    def _leanest(self) -> tuple[int, ...]:
        """The fastest choice among those of least memory."""
        p = self.problem
        able = np.where(np.isfinite(p.time_s), p.memory_bytes, np.inf)
        lean = np.where(able == able.min(axis=1, keepdims=True), p.time_s, np.inf)
        return _Ahead.of(p, lean, 0.0).best

    def _prices(self) -> tuple[_Ahead, _Ahead]:
        """Bounds without a price, and with the one that gives the best; choices met on the way are looked at.

        The price is that at which a choice over the limit and one within cost the same; a third that costs less takes
        the place of one of them.
        """
        p = self.problem
        free = priced = _Ahead.of(p, p.time_s, 0.0)
        inside, outside = self._spent(self._leanest), self._spent(free.best)
        if self._take(free.best):
            return free, free
        for _ in range(_MOST_PRICES):
            saved = outside[1] - inside[1]
            if saved <= 0 or inside[0] <= outside[0]:
                break
            found = _Ahead.of(p, p.time_s, (inside[0] - outside[0]) / saved)
            if found.bound_s(p.limit_bytes) > priced.bound_s(p.limit_bytes):
                priced = found
            spent = self._spent(found.best)
            if spent in (inside, outside):
                break
            if self._take(found.best):
                inside = spent
            else:
                outside = spent
        return free, priced

    def _spent(self, choice: tuple[int, ...]) -> tuple[float, float]:
        """Seconds and bytes of a choice, whatever the limit."""
        at, p = np.arange(len(choice)), self.problem
        changes = p.change_s[at[1:], choice[:-1], choice[1:]].sum()
        return float(p.time_s[at, choice].sum() + changes), float(p.memory_bytes[at, choice].cumsum()[-1])

    def _take(self, choice: tuple[int, ...]) -> bool:
        """Whether a choice is within the limit; it is kept if it is the best so far."""
        seconds, held = self._spent(choice)
        if held > self.problem.limit_bytes:
            return False
        if seconds < self.best_s:
            self.best, self.best_s = choice, check_choice(self.problem, choice)[0]
        return True

    # -- pairs of memory and time --------------------------------------------------------------------------------

    @cached_property
    def _lean_bytes(self) -> Floats:
        """Least bytes of the layers after each, (L,)."""
        able = np.where(np.isfinite(self.problem.time_s), self.problem.memory_bytes, np.inf).min(axis=1)
        found: Floats = np.append(able[:0:-1].cumsum()[::-1], 0.0)
        return found

    def _first(self, *ahead: _Ahead) -> _Labels:
        able = np.flatnonzero(np.isfinite(self.problem.time_s[0]))
        held, seconds = self.problem.memory_bytes[0, able], self.problem.time_s[0, able]
        return self._of_use(0, _Labels(held, seconds, able, np.full(len(able), -1)), *ahead)

    def _grown(self, i: int, last: _Labels, *ahead: _Ahead) -> _Labels | None:
        """Pairs of one layer more; None where there are too many."""
        p, every = self.problem, np.arange(len(last.time_s))
        parts = []
        for b in np.flatnonzero(np.isfinite(p.time_s[i])).tolist():
            seconds = last.time_s + p.change_s[i, last.strategy, b] + p.time_s[i, b]
            grown = _Labels(last.memory_bytes + p.memory_bytes[i, b], seconds, np.full_like(every, b), every)
            parts.append(_undominated(self._of_use(i, grown, *ahead)))
            self.kept += len(parts[-1].time_s)
            if self.kept > self.most:
                return None
        names = ("memory_bytes", "time_s", "strategy", "before")
        return _Labels(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def _of_use(self, i: int, labels: _Labels, *ahead: _Ahead) -> _Labels:
        """Those that fit with the least that follows, and may end better than the best that is known."""
        room = self.problem.limit_bytes * (1 + SAME) - self._lean_bytes[i]
        use = labels.memory_bytes <= (room if i + 1 < len(self._lean_bytes) else self.problem.limit_bytes)
        use &= self._bounds_s(i, labels, *ahead) < self.best_s * (1 - SAME)
        return _picked(labels, np.flatnonzero(use))

    def _bounds_s(self, i: int, labels: _Labels, *ahead: _Ahead) -> Floats:
        """Seconds of all layers that no choice which begins with a pair is below, (n,)."""
        left = labels.memory_bytes - self.problem.limit_bytes * (1 + SAME)
        each = [labels.time_s + one.ahead_s[i, labels.strategy] + one.price * left for one in ahead]
        found: Floats = np.maximum(*each)
        return found

    @staticmethod
    def _traced(layers: list[_Labels]) -> tuple[tuple[int, ...], float]:
        """The fastest pair of the last layer, back to the first."""
        at = int(layers[-1].time_s.argmin())
        best_s, found = float(layers[-1].time_s[at]), []
        for labels in reversed(layers):
            found.append(int(labels.strategy[at]))
            at = int(labels.before[at])
        return tuple(reversed(found)), best_s


def _undominated(labels: _Labels) -> _Labels:
    """Pairs of one strategy, by bytes, each faster than all before."""
    order = np.lexsort((labels.time_s, labels.memory_bytes))
    seconds = labels.time_s[order]
    before = np.minimum.accumulate(np.append(np.inf, seconds[:-1])) if len(seconds) else seconds
    return _picked(labels, order[seconds < before])


def _picked(labels: _Labels, at: Rows) -> _Labels:
    return _Labels(labels.memory_bytes[at], labels.time_s[at], labels.strategy[at], labels.before[at])
