"""The choice of modes as a linear program: paths, work and the serial time of the whole chip, all at once.

Its rows are the inequalities that paths and work put on a mixture of modes; its prices weigh operators for the
bounds of a search.

While an operator holds the whole chip nothing else runs on cores. Stop a clock then. On this *shared* clock every
path of the other operators takes its time, and after one operator and before another lies all the work that
depends on the one and precedes the other. The makespan is at least the end of the shared clock plus the time
for which it stood still.

Every row reads `after - before >= sum over modes of counts * latency * fraction`, where before and after are
moments and fraction says to what part an operator runs in a mode. So the rows may be added up with any prices,
and what remains speaks of the makespan alone.

Modes may be mixed, or (much dearer) not. The dual prices say how much every operator and mode counts at any
moment: a weighting for the bounds of a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from .indexed_problem import IndexedProblem
from .schedule_bounds import Bounds, demands, relation

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
        """Rows on work between two operators that a solution breaks most.

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
        """Weights (O, M) of durations in the priced sum of rows: the makespan is at least their product.

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


Highs: TypeAlias = Any
"""A HiGHS model; loaded only when needed."""

ROUNDS = 30
"""Most rounds of adding rows that the last solution breaks."""

TOLERANCE = 1e-6
"""Relative error of a mixed-integer bound (the feasibility tolerance of HiGHS)."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A bound (s) and the solution behind it.

    `modes` and `starts_s` (on a clock that stands still while an operator holds the whole chip) are by operator;
    they are no schedule, but the start of one.
    """

    lower_s: float
    modes: tuple[int, ...]
    starts_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Mixed(Relaxation):
    """Relaxation with mixtures of modes. `share` (O, M) is the weighting that proves the bound."""

    share: Floats


def silent_highs() -> Highs:
    """An empty HiGHS that says nothing, not even the greeting which 1.16 prints as soon as callbacks are enabled."""
    import highspy

    base: Any = highspy.Highs

    class Silent(base):  # type: ignore[misc] # its base is untyped in older versions
        def enableCallbacks(self) -> None:  # noqa: N802 - HiGHS calls it so, when it is made
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    silent = Silent()
    silent.setOptionValue("output_flag", False)
    return silent


class ModeProgram:
    """The program of the modes that `bounds` leaves; `upper_s`, the incumbent, sets the unit of time."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, upper_s: float) -> None:
        """All rows but those that `mixed` adds where they are broken."""
        import highspy

        self._unit_s = upper_s
        self._make = ModeRows(ix, bounds, upper_s)
        self._rows: list[Row] = []
        self._integer = highspy.HighsVarType.kInteger
        self._highs = silent_highs()
        self._highs.setOptionValue("threads", 1)  # as everywhere in a process: HiGHS bears no change
        for column in range(self._make.columns):
            self._highs.addVar(0.0, highspy.kHighsInf)
            self._highs.changeColCost(column, float(column == MAKESPAN))
        for _ in self._make.owner:
            self._highs.addVar(0.0, 1.0)
        for i in range(ix.size):
            modes = np.flatnonzero(self._make.owner == i) + self._make.columns
            self._highs.addRow(1.0, 1.0, len(modes), modes, np.ones(len(modes)))
        self._add(self._make.first())

    def _add(self, rows: Iterable[Row]) -> None:
        moments = self._make.columns
        for row in rows:
            used = np.flatnonzero(row.counts * self._make.latency)
            ends = {column: value for column, value in ((row.after, 1.0), (row.before, -1.0)) if column >= 0}
            columns = np.array([*ends, *(used + moments)], dtype=np.int32)
            values = np.array([*ends.values(), *(-row.counts * self._make.latency)[used]])
            self._highs.addRow(0.0, np.inf, len(columns), columns, values)
            self._rows.append(row)

    def mixed(self) -> Mixed:
        """Solve with mixtures of modes, adding rows until none is broken."""
        values = self._run()
        for _ in range(ROUNDS):
            broken = self._make.broken(*np.split(values, [self._make.columns]))
            if not broken:
                break
            self._add(broken)
            values = self._run()
        prices = np.array(self._highs.getSolution().row_dual)[self._make.shape[0] :]
        share = self._make.weighting(self._rows, prices)
        work = np.full(self._make.shape, np.inf)
        place = self._make.owner, self._make.mode
        work[place] = share[place] * self._make.latency
        lower = float(work.min(axis=1, initial=np.inf).sum())
        return Mixed(lower * self._unit_s, *self._suggestion(values), share)

    def integral(self, nodes: int, time_limit_s: float) -> Relaxation:
        """One mode for every operator, by branching on top of the rows found so far.

        Stops after so many nodes of the search tree, which unlike the time is the same on every machine; without a
        solution until then, the modes are the fastest.
        """
        for column in range(len(self._make.owner)):
            self._highs.changeColIntegrality(self._make.columns + column, self._integer)
        self._highs.setOptionValue("mip_max_nodes", nodes)
        self._highs.setOptionValue("time_limit", max(0.0, time_limit_s))
        values = self._run()
        bound = max(0.0, self._highs.getInfo().mip_dual_bound * (1.0 - TOLERANCE))
        return Relaxation(bound * self._unit_s, *self._suggestion(values))

    def _suggestion(self, values: NDArray[np.float64]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The mode with the largest fraction and the start on the shared clock (s) of every operator."""
        moments, fractions = np.split(values, [self._make.columns])
        size = self._make.shape[0]
        chosen = np.zeros(self._make.shape)
        chosen[self._make.owner, self._make.mode] = fractions
        starts = moments[FIRST : FIRST + size] * self._unit_s
        return tuple(chosen.argmax(axis=1).tolist()), tuple(starts.tolist())

    def _run(self) -> NDArray[np.float64]:
        self._highs.run()
        return np.array(self._highs.getSolution().col_value)


LATER = (1.0, 0.8, 0.6, 0.4, 0.2)
"""Shares of the operators, those nearest to the end, that one weighting each is made for."""


def weightings(ix: IndexedProblem, bounds: Bounds) -> Floats:
    """Weights of every operator and mode (rows, O, M): one row for the problem, more for its later parts.

    What runs at one moment never weighs more than 1, so the least weight times duration of what is left, summed
    up, bounds the time left.
    """
    rank = np.argsort(np.argsort(bounds.tails, kind="stable"))
    return np.array([_weighting(ix, bounds, rank < share * ix.size) for share in LATER])


def _weighting(
    ix: IndexedProblem, bounds: Bounds, counted: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Floats:
    """The best weighting for some operators, as if all others took no time."""
    latency = tuple(
        row if counts else tuple(value if value == inf else 0.0 for value in row)
        for row, counts in zip(bounds.latency, counted.tolist(), strict=True)
    )
    mixed = ModeProgram(ix, replace(bounds, latency=latency), bounds.lower_s).mixed()
    return mixed.share
