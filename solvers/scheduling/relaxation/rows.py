"""Inequalities that paths and work put on a mixture of modes.

While an operator holds the whole chip nothing else runs on cores. Stop a clock then. On this *shared* clock every
path of the other operators takes its time, and after one operator and before another lies all the work that
depends on the one and precedes the other. The makespan is at least the end of the shared clock plus the time
for which it stood still.

Every row reads `after - before >= sum over modes of counts * latency * fraction`, where before and after are moments
and fraction says to what part an operator runs in a mode. So the rows may be added up with any prices, and what
remains speaks of the makespan alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats
from ..bounds import Bounds, demands, relation
from ..indexed import IndexedProblem

MAKESPAN, SHARED_END, FIRST = 0, 1, 2
"""Columns of the moments: the makespan, the end of the shared clock, the starts of the operators on it from
`FIRST` on, then, where some operators hold no core or share a bandwidth, their starts on the wall clock."""

ORIGIN = -1
"""The column of the moment 0, which is none."""

BROKEN = 1e-7
"""By how much of the makespan a row must be broken to count: the tolerance of the solver."""


class Row(NamedTuple):
    """One inequality; `counts` (K,) is what a moment of each mode counts between the two moments."""

    after: int
    before: int
    counts: NDArray[np.float64]


class ModeRows:
    """The rows of a problem; modes are the K that `bounds` has not struck out, times in units of `unit_s`."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, unit_s: float) -> None:
        """Sort the modes: those that hold the whole chip, those that share it, those that need no core."""
        alive = [
            (i, m) for i, row in enumerate(bounds.latency) for m, value in enumerate(row) if value < np.inf
        ]
        self.owner = np.array([i for i, _ in alive], dtype=np.intp)
        self.mode = np.array([m for _, m in alive], dtype=np.intp)
        self.latency = np.array([bounds.latency[i][m] for i, m in alive]) / unit_s
        self.shape = (ix.size, max(map(len, ix.modes), default=0))
        self._ix = ix
        self._whole = np.array([ix.whole[i][m] for i, m in alive], dtype=np.float64)
        core = np.array(ix.core, dtype=np.float64)[self.owner]
        self._sharing = core * (1.0 - self._whole)
        self._demand = demands(ix)[self.owner, self.mode]
        self._open = [u for u in range(len(ix.capacity)) if u not in ix.blocked_units]
        self._walled = bool(self._open) and bool((self._demand[:, self._open] > 0.0).any())
        self._relate(relation(ix.descendants))

    def _relate(self, below: Floats) -> None:
        """Who precedes whom, with a source and a sink around all operators."""
        size = len(below)
        self._below = np.zeros((size + 2, size + 2))
        self._below[:size, :size] = below
        self._below[size, : size + 2] = 1.0
        self._below[:size, size + 1] = 1.0
        self._below[size, size] = 0.0

    @property
    def columns(self) -> int:
        """Number of moments."""
        return FIRST + self.shape[0] * (2 if self._walled else 1)

    def first(self) -> Iterator[Row]:
        """The rows that make it a relaxation: both clocks, every edge, all the work."""
        yield Row(MAKESPAN, SHARED_END, self._whole)
        size = self.shape[0]
        for i in range(size):
            for j in (*self._ix.succs[i], size + 1):
                own = self.owner == i
                yield Row(self._start(j), self._start(i), own * self._sharing)
                if self._walled:
                    after = MAKESPAN if j > size else FIRST + size + j
                    yield Row(after, FIRST + size + i, own.astype(np.float64))
        for u in range(len(self._ix.capacity)):
            yield Row(SHARED_END, ORIGIN, self._demand[:, u] * self._sharing)
        for u in self._open:
            yield Row(MAKESPAN, ORIGIN, self._demand[:, u])

    def broken(self, moments: NDArray[np.float64], fractions: NDArray[np.float64]) -> list[Row]:
        """Of the rows on work between two operators, those that a solution breaks most.

        `moments` are the values of the columns, `fractions` (K,) of the modes; at most two rows per operator and
        resource, of all those before and all those after it.
        """
        size = self.shape[0]
        spent = self._sharing * self.latency * fractions
        starts = np.array([*moments[FIRST : FIRST + size], 0.0, moments[SHARED_END]])
        ends = starts + np.append(self._per_operator(spent), [0.0, 0.0])
        found: dict[tuple[int, int, int], None] = {}
        for u in range(self._demand.shape[1]):
            work = np.append(self._per_operator(spent * self._demand[:, u]), [0.0, 0.0])
            between = (self._below * work) @ self._below
            excess = np.where(self._below > 0.0, ends[:, None] + between - starts, -1.0)
            for j, i in enumerate(excess.argmax(axis=0).tolist()):
                if excess[i, j] > BROKEN:
                    found[i, j, u] = None
            for i, j in enumerate(excess.argmax(axis=1).tolist()):
                if excess[i, j] > BROKEN:
                    found[i, j, u] = None
        return [self._between(*key) for key in found]

    def _between(self, i: int, j: int, u: int) -> Row:
        """All work on a resource after operator i (and itself) and before operator j."""
        inside = (self._below[i] * self._below[:, j])[self.owner]
        counts = self._sharing * (inside * self._demand[:, u] + (self.owner == i))
        return Row(self._start(j), self._start(i), counts)

    def _start(self, node: int) -> int:
        """Column of the start of an operator, of the source or of the sink on the shared clock."""
        size = self.shape[0]
        return FIRST + node if node < size else ORIGIN if node == size else SHARED_END

    def _per_operator(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self.owner, values, self.shape[0]).astype(np.float64)

    def weighting(self, rows: list[Row], prices: NDArray[np.float64]) -> Floats:
        """What the priced sum of rows says of the makespan: at least the (O, M) weights times the durations.

        Holds for any prices: where they leave a moment over, it is at most the makespan, and the weights shrink.
        """
        prices = np.maximum(prices, 0.0)
        left = np.zeros(self.columns + 1)
        np.add.at(left, [row.after for row in rows], prices)
        np.add.at(left, [row.before for row in rows], -prices)
        total = float(np.maximum(left[:-1], 0.0).sum())
        share = np.zeros(self.shape)
        if total > 0.0:
            share[self.owner, self.mode] = prices @ np.array([row.counts for row in rows]) / total
        return share
