"""Prices of capacity under which sequences of phases bound schedules best.

A schedule is groups and operators alone on the chip. Its makespan is the sum of their lengths, and in a group no
resource does more work than its length allows: of operators that take a step or longer none in a shorter group, and of
them no more than one after another. Let every such inequality have a price, all prices together at most 1. What a
group costs is its length less the capacity that it offers, at prices, and the work in it. The cheapest sequence bounds
the makespan (a Lagrangian relaxation), and is found for every set of operators at once (`kernel_trunk`). The prices
follow from its cheapest sequences by subgradients (Held, Wolfe and Crowder, Math. Programming 6, 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers

from ..indexed_problem import IndexedProblem
from ..machine_code import Names
from ..schedule_bounds import Bounds, latencies, unit_shares
from ..schedule_plan import SearchLimits
from .kernel_sets import NONE, WORD
from .kernel_trunk import MET, SUMS, VIEWS, WHOLE, Steps, Trunk

MOST_SETS, MOST_PHASES = 1 << 12, 1 << 15
"""Sets and phases of a graph beyond which nothing is priced: that would take longer than it is worth."""

QUANTILES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Which durations, of operators that nothing follows, are steps."""

NEARLY = 1.0 - 1e-9
"""Steps are so much shorter than the durations that they count."""

ROUNDS, PATIENCE, SHRINK, IN_VAIN = 150, 8, 0.7, 30
"""Prices tried; how many without a better bound shorten the steps between them, and by how much; how many of the first
may pass without one."""

MATTERS = 0.01
"""Prices up to this count as none: every step with a price adds lengths to look at."""


class Arrays(NamedTuple):
    """Operators in topological order: predecessors (0) and successors (1) as in `kernel_labels.Graph`, seconds beside
    others and alone (O,)."""

    first: Integers
    near: Integers
    beside: Floats
    alone: Floats


@dataclass(frozen=True)
class Weighting:
    """One inequality: weights (O, M) of what runs, and the capacity of steps that it speaks of (`NONE`: all)."""

    share: Floats
    step: int = NONE


class Prices(NamedTuple):
    """Bounds of every set of operators at prices; operators in topological order.

    `work` (R, O) s, `slack` (R,) and `share` (R, Q) as in `kernel_labels.Graph`, `after` (R, N) s of every set of the
    `trunk`, `last` (R, O) s of operators that nothing follows, `lower_s` (R,) of the whole.
    """

    steps: Steps
    trunk: Trunk
    work: Floats
    slack: Floats
    share: Floats
    after: Floats
    last: Floats
    lower_s: Floats


def empty_trunk(words: int, size: int, sets: int, phases: int) -> Trunk:
    """Room for so many sets (a power of two) and phases."""
    return Trunk(
        sets=np.empty((sets, words), dtype=np.int64),
        slots=np.full(2 * sets, NONE, dtype=np.int64),
        first=np.zeros(sets, dtype=np.int64),
        last=np.zeros(sets, dtype=np.int64),
        to=np.empty(phases, dtype=np.int64),
        least=np.empty(phases),
        most=np.empty(phases),
        tally=np.zeros(SUMS, dtype=np.int64),
        mask=np.zeros((VIEWS, words), dtype=np.int64),
        end=np.zeros(size),
        order=np.zeros(size, dtype=np.int64),
    )


def steps_of(durations: Floats) -> Steps:
    """All of a length; then, of some durations, only what is as long, and only whole numbers of them."""
    ranks = (np.array(QUANTILES) * len(durations)).astype(np.int64)
    some = np.unique(np.sort(durations)[ranks]) * NEARLY if len(durations) else durations
    some = some[some > 0.0]
    return _with_jumps(np.concatenate([[0.0], some, some]), np.arange(1 + 2 * len(some)) > len(some))


def _with_jumps(step: Floats, counted: Flags) -> Steps:
    first = step[step > 0.0]
    more = [step[counted] * k for k in range(2, WHOLE + 1)]
    return Steps(step, counted, np.unique(np.concatenate([first, *more])))


def capacity(steps: Steps, q: int, durations: Floats) -> Floats:
    """What `kernel_trunk.counts` says of durations, rounded down."""
    step = float(steps.step[q])
    if not steps.counted[q]:
        return np.where(durations >= step, durations, 0.0)
    whole = np.floor(durations / step)
    return np.where(whole < WHOLE, whole * step, durations)


class PricedPhases:
    """The prices of one problem; `upper_s` is the makespan that a schedule has to beat."""

    def __init__(
        self, ix: IndexedProblem, bounds: Bounds, arrays: Arrays, rows: Floats, upper_s: float, names: Names
    ) -> None:
        """`rows` (K, O, M): weightings under which no moment works faster than the clock. `names`: functions."""
        self._names, self._upper_s, self._arrays = names, upper_s, arrays
        order = list(ix.order)
        latency = latencies(ix)[order]
        for k, i in enumerate(order):
            latency[k, : len(bounds.latency[i])] = bounds.latency[i]
        whole = np.ones(latency.shape, dtype=np.bool_)
        for k, i in enumerate(order):
            whole[k, : len(ix.whole[i])] = ix.whole[i]
        self._latency = np.where(whole, inf, latency)
        self._core = np.array(ix.core, dtype=np.bool_)[order]
        self.is_last = arrays.first[1, 1:] == arrays.first[1, :-1]
        ends = self._latency[self.is_last & self._core]
        self.steps = steps_of(ends[ends < inf])
        units = unit_shares(ix)[: len(ix.capacity)][:, order]
        self.weightings = [
            Weighting(units[u], q) for u in ix.blocked_units for q in range(len(self.steps.step))
        ]
        self.weightings += [Weighting(row) for row in rows[:, order]]
        self._work = np.stack([self._seconds(one) for one in self.weightings], axis=1)
        self.trunk = self._unfolded()

    def _seconds(self, one: Weighting) -> Floats:
        """Work of every operator beside others (O,), s; inf where it cannot be."""
        finite = np.where(self._latency < inf, self._latency, 0.0)
        spent = finite if one.step == NONE else capacity(self.steps, one.step, finite)
        work = np.where(self._latency < inf, one.share * spent, inf).min(axis=1, initial=inf)
        return np.where(self._core, work, 0.0)

    def _unfolded(self) -> Trunk | None:
        """All sets of operators that others follow; None where there are too many."""
        size = len(self._arrays.beside)
        trunk = empty_trunk(-(-size // WORD), size, MOST_SETS, MOST_PHASES)
        if not self._names["unfold"](*self._arrays, trunk):
            return None
        return trunk

    def best(self, limits: SearchLimits, rounds: int = ROUNDS) -> Floats:
        """Prices (K,) of the weightings under which the bound is best, of those tried before it is late."""
        assert self.trunk is not None
        tries = _Tries(self, self.trunk)
        prices = np.zeros(len(self.weightings))
        best, found, theta, waited = 0.0, prices, 1.0, 0
        for one in (*np.eye(len(prices))[-_LINEAR:], 0.5 * np.eye(len(prices))[-_LINEAR], prices):
            lower, _ = tries.evaluate(one)
            if lower > best:
                best, found = lower, one
        prices = found
        begun = best
        for turn in range(rounds):
            if limits.late or (turn == IN_VAIN and best == begun):
                break
            lower, slope = tries.evaluate(prices)
            if lower > best * (1.0 + 1e-7):
                best, found, waited = lower, prices, 0
            else:
                waited += 1
                if waited == PATIENCE:
                    theta, waited, prices = SHRINK * theta, 0, found
                    continue
            slope = np.where((prices <= 0.0) & (slope < 0.0), 0.0, slope)
            steep = float(slope @ slope)
            if steep == 0.0 or best >= self._upper_s:
                break
            prices = on_simplex(prices + theta * (self._upper_s - lower) / steep * slope)
        return found

    def table(self, prices: Sequence[Floats]) -> Prices:
        """Bounds under some prices, one row each; the first row is that of no price."""
        assert self.trunk is not None
        tries = _Tries(self, self.trunk)
        prices = [np.where(row > MATTERS, row, 0.0) for row in prices]
        rows = [np.zeros(len(self.weightings)), *prices]
        found = [(tries.evaluate(row)[0], tries.cost.copy(), tries.last(row)) for row in rows]
        size = len(self._arrays.beside)
        share = np.array([self.capacity_prices(row) for row in prices]).reshape(-1, len(self.steps.step))
        used = (share > 0.0).any(axis=0) & (self.steps.step > 0.0)
        steps = _with_jumps(self.steps.step[used], self.steps.counted[used])
        return Prices(
            steps=steps,
            trunk=self.trunk,
            work=np.array([self.work(row) for row in prices]).reshape(-1, size),
            slack=np.maximum(0.0, 1.0 - share.sum(axis=1)),
            share=np.ascontiguousarray(share[:, used]),
            after=np.array([cost for _, cost, _ in found]),
            last=np.array([np.where(self.is_last, last, 0.0) for _, _, last in found]),
            lower_s=np.array([lower for lower, _, _ in found]),
        )

    def capacity_prices(self, prices: Floats) -> Floats:
        """Prices (K,) of weightings as those of the steps (Q,) that they speak of; all of a length is the first."""
        steps = [max(one.step, 0) for one in self.weightings]
        return np.bincount(steps, prices, len(self.steps.step)).astype(np.float64)

    def beside(self, prices: Floats) -> Floats:
        """Price of every operator beside others (O,), s."""
        finite = np.isfinite(self._work[:, 0])
        return np.where(finite, np.where(finite[:, None], self._work, 0.0) @ prices, inf)

    def work(self, prices: Floats) -> Floats:
        """The same, or alone if that is less (O,), s."""
        least = np.minimum(self.beside(prices), self._arrays.alone)
        return np.where(self._core, least, 0.0)

    @property
    def linear_work(self) -> Floats:
        """Work (O, K), s, of every weighting alone."""
        return np.where(self._core[:, None], np.minimum(self._work, self._arrays.alone[:, None]), 0.0)


_LINEAR = 5
"""Rows of the linear program of modes, which come last."""


class _Tries:
    """The cheapest sequence at any prices."""

    def __init__(self, priced: PricedPhases, trunk: Trunk) -> None:
        """Sets by their number of operators, and the work in each."""
        self._priced, self._trunk = priced, trunk
        count, size = int(trunk.tally[MET]), len(priced.is_last)
        words = trunk.sets[:count]
        bits = np.stack([words[:, i // WORD] >> i % WORD & 1 for i in range(size)], axis=1)
        self._order = np.argsort(-bits.sum(axis=1), kind="stable")
        self._inside = bits.astype(np.float64) @ priced.linear_work
        self.cost, self.length = np.zeros(count), np.zeros(count)
        self._phase = np.zeros(count, dtype=np.int64)

    def last(self, prices: Floats) -> Floats:
        """Price (O,) of every operator as one that nothing follows, s."""
        return self._priced.work(prices)

    def evaluate(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at some prices, and how it changes with each (K,)."""
        priced, trunk, steps = self._priced, self._trunk, self._priced.steps
        share = priced.capacity_prices(prices)
        priced._names["cheapest"](
            trunk, steps, share, self._inside @ prices, self._order, self.cost, self._phase, self.length
        )
        last, beside = self.last(prices), priced.beside(prices)
        single = priced.is_last & (beside <= last)
        slope = np.where(single[:, None], np.where(np.isfinite(priced._work), priced._work, 0.0), 0.0).sum(
            axis=0
        )
        n, free = 0, np.zeros(len(steps.step))
        while (e := int(self._phase[n])) != NONE:
            if trunk.most[e] > 0.0:
                slope += self._inside[trunk.to[e]] - self._inside[n]
                free += [float(capacity(steps, q, self.length[n] * (2.0 - NEARLY))) for q in range(len(free))]
            n = int(trunk.to[e])
        slope -= [free[max(one.step, 0)] for one in priced.weightings]
        return float(self.cost[0] + last[priced.is_last].sum()), slope


def on_simplex(prices: Floats) -> Floats:
    """The nearest prices that are not negative and at most 1 together."""
    prices = np.maximum(prices, 0.0)
    if prices.sum() <= 1.0:
        return prices
    below = prices - prices.max()  # beside prices of any size 1 is not lost
    falling = np.sort(below)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, len(falling) + 1)
    above = float(over[np.flatnonzero(falling > over)[-1]])
    kept: Floats = np.where(below > above, below - above, 0.0)
    return kept
