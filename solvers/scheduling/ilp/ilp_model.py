"""The mixed-integer program of one problem in Pyomo: one constraint family per method.

Variables: start t, choice y of a mode, order x of the pairs that can conflict; makespan T. Symmetric cores are
counted, not named, except where pairs matter. Times are in units of the incumbent's makespan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf
from typing import Any, TypeAlias

from ..indexed_problem import IndexedProblem
from ..schedule_bounds import Bounds

Pyomo: TypeAlias = Any
"""A Pyomo model or expression: Pyomo ships no types."""

TOLERANCE = 1e-6
"""Least relative improvement on the incumbent that is looked for; so much may a proven optimum be undercut."""

Limit: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""A resource, and operators with modes that may not all hold it at one moment."""


class OrderModel:
    """A program whose solutions beat the incumbent; limits of three or more operators are added from outside."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, upper_s: float, lower_s: float) -> None:
        """Build every family; `upper_s` is the makespan of the incumbent, `lower_s` a bound on any."""
        import pyomo.environ as pyo

        self.pyo, self.ix, self.unit_s = pyo, ix, upper_s
        self.latency = [[value / upper_s for value in row] for row in bounds.latency]
        self.alive = [[m for m, value in enumerate(row) if value < inf] for row in self.latency]
        self.heads = [value / upper_s for value in bounds.heads]
        self.tails = [value / upper_s for value in bounds.tails]
        self.pairs = list(self._conflicts())
        self.model = self._variables(lower_s / upper_s)
        self._paths()
        self._orders()
        self._exclusions()
        self._work(bounds)
        self._twins()
        if ix.pair is not None:
            self._named_cores()

    def _conflicts(self) -> Iterator[tuple[int, int]]:
        """Pairs that nothing orders and that hold a resource of which there may be too little."""
        ix = self.ix
        most = [
            [max(ix.modes[i][m].demand[u] for m in row) for i, row in enumerate(self.alive)]
            for u in range(len(ix.capacity))
        ]
        short = [
            row
            for row, count in zip(most, ix.capacity, strict=True)
            if ix.pair is not None or sum(row) > count
        ]
        for i, j in combinations(range(ix.size), 2):
            ordered = (ix.ancestors[i] | ix.descendants[i]) >> j & 1
            if not ordered and any(row[i] and row[j] for row in short):
                yield i, j

    def _variables(self, lower: float) -> Pyomo:
        pyo, ix, cutoff = self.pyo, self.ix, 1.0 - TOLERANCE
        model = pyo.ConcreteModel()
        model.makespan = pyo.Var(bounds=(min(lower, cutoff), cutoff))
        model.start = pyo.Var(range(ix.size), bounds=lambda _, i: (self.heads[i], max(self.heads[i], 1.0)))
        choices = [(i, m) for i, row in enumerate(self.alive) for m in row]
        model.mode = pyo.Var(choices, domain=pyo.Binary)
        arcs = [*self.pairs, *((j, i) for i, j in self.pairs)]
        model.before = pyo.Var(arcs, domain=pyo.Binary)
        model.rows = pyo.ConstraintList()
        model.goal = pyo.Objective(expr=model.makespan)
        for i, row in enumerate(self.alive):
            model.rows.add(sum(model.mode[i, m] for m in row) == 1)
        return model

    def _in_mode(self, i: int, modes: Sequence[int]) -> Pyomo:
        """1 where the operator runs in one of these modes."""
        return sum(self.model.mode[i, m] for m in modes)

    def _duration(self, i: int) -> Pyomo:
        return sum(self.latency[i][m] * self.model.mode[i, m] for m in self.alive[i])

    def _ordered(self, i: int, j: int) -> Pyomo:
        """1 where one of the two ends before the other starts."""
        return self.model.before[i, j] + self.model.before[j, i]

    def _paths(self) -> None:
        """Precedence, and the makespan behind every operator's tail."""
        model, ix = self.model, self.ix
        for i in range(ix.size):
            end = model.start[i] + self._duration(i)
            model.rows.add(end + self.tails[i] <= model.makespan)
            for j in ix.succs[i]:
                model.rows.add(end <= model.start[j])

    def _orders(self) -> None:
        """An order of a pair separates it in time.

        The big-M of "i before j" is the latest end of i minus the earliest start of j.
        """
        model = self.model
        for i, j in self.pairs:
            model.rows.add(self._ordered(i, j) <= 1)
            for a, b in ((i, j), (j, i)):
                slack = max(0.0, 1.0 - self.tails[a] - self.heads[b])
                end = model.start[a] + self._duration(a)
                model.rows.add(end <= model.start[b] + slack * (1 - model.before[a, b]))
                shortest = [min(self.latency[k]) for k in (a, b)]
                if self.heads[a] + sum(shortest) + self.tails[b] > 1.0:
                    model.before[a, b].fix(0)

    def _exclusions(self) -> None:
        """Two operators are ordered where their modes together overflow a resource."""
        for i, j in self.pairs:
            clashes = set(self._clashes(i, j))
            for mine, other in sorted(clashes):
                if not any(mine <= a and other <= b for a, b in clashes - {(mine, other)}):
                    both = self._in_mode(i, sorted(mine)) + self._in_mode(j, sorted(other))
                    self.model.rows.add(both - 1 <= self._ordered(i, j))

    def _clashes(self, i: int, j: int) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """Sets of modes of both, any two of which overflow the same resource."""
        for u, count in enumerate(self.ix.capacity):
            mine, other = ({m: self.ix.modes[k][m].demand[u] for m in self.alive[k]} for k in (i, j))
            for least in set(mine.values()):
                over = frozenset(n for n, held in other.items() if held > count - least)
                if over:
                    yield frozenset(m for m, held in mine.items() if held >= least), over

    def _work(self, bounds: Bounds) -> None:
        """The core time of every weighting of the units fits below the makespan, modes included."""
        model = self.model
        for row in bounds.share:
            terms = [
                float(row[i, m]) * self.latency[i][m] * model.mode[i, m]
                for i, alive in enumerate(self.alive)
                for m in alive
            ]
            model.rows.add(sum(terms) <= model.makespan)

    def _twins(self) -> None:
        """Operators that differ in nothing start in the order of their positions."""
        ix, model = self.ix, self.model
        alike: dict[tuple[object, ...], list[int]] = {}
        for i in range(ix.size):
            modes = tuple((mode.latency_s, mode.demand) for mode in ix.modes[i])
            key = (ix.preds[i], frozenset(ix.succs[i]), ix.units[i], modes, tuple(self.alive[i]))
            alike.setdefault(key, []).append(i)
        for group in alike.values():
            for i, j in combinations(group, 2):
                model.rows.add(model.start[i] <= model.start[j])
                if (j, i) in model.before:
                    model.before[j, i].fix(0)

    def _named_cores(self) -> None:
        """Every single operator holds named cores, of one pair where it needs both; sharing forces an order."""
        model, ix, pyo = self.model, self.ix, self.pyo
        slots = [(i, u, k) for i in range(ix.size) for u in ix.units[i] for k in range(ix.capacity[u])]
        model.holds = pyo.Var(slots, domain=pyo.Binary)
        for i, alive in enumerate(self.alive):
            single = self._in_mode(i, [m for m in alive if not ix.whole[i][m]])
            for u in ix.units[i]:
                model.rows.add(sum(model.holds[i, u, k] for k in range(ix.capacity[u])) == single)
            self._pair(i)
        for i, j in self.pairs:
            for u in set(ix.units[i]) & set(ix.units[j]):
                for k in range(ix.capacity[u]):
                    model.rows.add(self._ordered(i, j) >= model.holds[i, u, k] + model.holds[j, u, k] - 1)

    def _pair(self, i: int) -> None:
        assert self.ix.pair is not None
        tensor, vector = self.ix.pair
        if not {tensor, vector} <= set(self.ix.units[i]):
            return
        for k in range(max(self.ix.capacity[tensor], self.ix.capacity[vector])):
            held = [self.model.holds[i, u, k] for u in (tensor, vector) if k < self.ix.capacity[u]]
            self.model.rows.add(held[0] == (held[1] if len(held) == 2 else 0))

    def limit(self, resource: int, group: tuple[tuple[int, int], ...]) -> None:
        """Of operators that overflow a resource in their modes, some two are ordered or one takes less.

        Where one takes more, or is in another mode of no less, the same holds.
        """
        model = self.model
        members = [i for i, _ in group]
        orders = sum(self._ordered(i, j) for i, j in combinations(members, 2) if (i, j) in model.before)
        less = sum(
            model.mode[i, n]
            for i, m in group
            for n in self.alive[i]
            if self.ix.modes[i][n].demand[resource] < self.ix.modes[i][m].demand[resource]
        )
        model.rows.add(orders + less >= 1)
