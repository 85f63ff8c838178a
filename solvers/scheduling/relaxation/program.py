"""The choice of modes as a linear program: paths, work and the serial time of the whole chip, all at once.

Modes may be mixed, or (much dearer) not. The dual prices say how much every operator and mode counts at any
moment: a weighting for the bounds of a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats
from ..bounds import Bounds
from ..indexed import IndexedProblem
from .rows import FIRST, MAKESPAN, ModeRows, Row

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
    """With mixtures of modes. `share` (O, M) is the weighting that proves the bound."""

    share: Floats


class ModeProgram:
    """The program of the modes that `bounds` leaves; `upper_s`, the incumbent, sets the unit of time."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, upper_s: float) -> None:
        """All rows but those that `mixed` adds where they are broken."""
        import highspy

        empty: Highs = highspy.Highs
        self._unit_s = upper_s
        self._make = ModeRows(ix, bounds, upper_s)
        self._rows: list[Row] = []
        self._integer = highspy.HighsVarType.kInteger
        self._highs = empty()
        self._highs.setOptionValue("output_flag", False)
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
