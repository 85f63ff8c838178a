"""PHAZE's mixed-integer formulation in Pyomo, solved by HiGHS, made strong.

Variables: start t, choice y of a mode, order x of the pairs that can conflict; makespan T. Limits of cores and
bandwidth are added only where a solution overflows them; symmetric cores are counted, not named, except where
pairs matter. Times are in units of the incumbent's makespan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import inf
from time import monotonic
from typing import Any, TypeAlias

from .bounds import Bounds, critical_path_s, lower_bounds
from .critical_path import incumbent
from .exact import Outcome
from .indexed import Core, IndexedProblem
from .plan import Plan, assign_cores, replay

Pyomo: TypeAlias = Any
"""A Pyomo model or expression: Pyomo ships no types."""

TOLERANCE = 1e-6
"""Relative error of HiGHS (its feasibility tolerance): the proven bound is lowered by it, or meets the
plan within it."""


def solve_ilp(ix: IndexedProblem, deadline: float) -> Outcome:
    """Best plan and bound by the deadline (`time.monotonic`)."""
    least = critical_path_s(ix)
    plan, tried = incumbent(ix, least, deadline)
    outcome = Outcome(plan, least, {"list_schedules": tried, "models": 0, "core_limits": 0})
    if outcome.proven:
        return outcome
    bounds = lower_bounds(ix, plan.makespan_s)
    outcome.lower_s = max(least, bounds.lower_s)
    if not outcome.proven:
        _solve(ix, bounds, outcome, deadline)
    return outcome


def _solve(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, deadline: float) -> None:
    """Solve, replay, add the core limits that the replay breaks, until it breaks none."""
    model = OrderModel(ix, bounds, outcome.plan.makespan_s)
    while (left := deadline - monotonic()) > 0.0:
        outcome.work["models"] += 1
        solution, bound = model.solve(left)
        outcome.lower_s = min(max(outcome.lower_s, bound * (1.0 - TOLERANCE)), outcome.plan.makespan_s)
        if solution is None:
            return
        crowded = list(_crowded(ix, solution)) if ix.pair is None else []
        if not crowded:
            plan = _with_cores(ix, solution)
            if plan.makespan_s < outcome.plan.makespan_s:
                outcome.plan = plan
            if bound >= outcome.plan.makespan_s * (1.0 - TOLERANCE):
                outcome.lower_s = outcome.plan.makespan_s
            return
        outcome.work["core_limits"] += len(crowded)
        for resource, group in crowded:
            model.limit(resource, group)


class OrderModel:
    """The Pyomo model of one problem; one constraint family per method."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, upper_s: float) -> None:
        """Build every family of constraints; `upper_s` is the makespan of the incumbent."""
        import pyomo.environ as pyo

        self.pyo, self.ix, self.unit = pyo, ix, upper_s
        self.latency = [[value / upper_s for value in row] for row in bounds.latency]
        self.alive = [[m for m, value in enumerate(row) if value < inf] for row in self.latency]
        self.heads = [value / upper_s for value in bounds.heads]
        self.tails = [value / upper_s for value in bounds.tails]
        self.pairs = [pair for pair in combinations(range(ix.size), 2) if self._may_conflict(*pair)]
        self.model = self._variables(bounds.lower_s / upper_s)
        self._paths()
        self._orders()
        self._work(bounds)
        if ix.pair is not None:
            self._named_cores()

    def _may_conflict(self, i: int, j: int) -> bool:
        """Whether nothing orders a pair that could compete for a core or exclude each other."""
        ix = self.ix
        if (ix.ancestors[i] | ix.descendants[i]) >> j & 1 or not ix.units[i] or not ix.units[j]:
            return False
        whole = any(ix.whole[k][m] for k in (i, j) for m in self.alive[k])
        return self._overflow(i, j, max) or (ix.core[i] and ix.core[j] and whole)

    def _overflow(self, i: int, j: int, pick: Callable[[Iterator[int]], int]) -> bool:
        """Whether two operators, in modes of largest (smallest) demand, share a resource that could be short."""
        ix = self.ix
        shared = set(ix.units[i]) & set(ix.units[j]) | set(range(len(ix.unit_names), len(ix.capacity)))
        held = [[pick(ix.modes[k][m].demand[u] for m in self.alive[k]) for k in (i, j)] for u in shared]
        if pick is max:
            return any(min(pair) > 0 for pair in held)
        return any(sum(pair) > ix.capacity[u] for u, pair in zip(shared, held, strict=True))

    def _variables(self, lower: float) -> Pyomo:
        pyo, ix = self.pyo, self.ix
        model = pyo.ConcreteModel()
        model.makespan = pyo.Var(bounds=(lower, 1.0))
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

    def _duration(self, i: int) -> Pyomo:
        return sum(self.latency[i][m] * self.model.mode[i, m] for m in self.alive[i])

    def _whole(self, i: int) -> Pyomo:
        """1 where the operator takes the whole chip."""
        return sum(self.model.mode[i, m] for m in self.alive[i] if self.ix.whole[i][m])

    def _paths(self) -> None:
        """Precedence, and the makespan behind every operator's tail."""
        model, ix = self.model, self.ix
        for i in range(ix.size):
            end = model.start[i] + self._duration(i)
            model.rows.add(end + self.tails[i] <= model.makespan)
            for j in ix.succs[i]:
                model.rows.add(end <= model.start[j])

    def _orders(self) -> None:
        """An order of a pair separates it in time; a core-parallel operator needs one with every rival.

        The big-M of "i before j" is the latest end of i minus the earliest start of j.
        """
        model, ix = self.model, self.ix
        for i, j in self.pairs:
            for a, b in ((i, j), (j, i)):
                slack = max(0.0, 1.0 - self.tails[a] - self.heads[b])
                model.rows.add(
                    model.start[a] + self._duration(a) <= model.start[b] + slack * (1 - model.before[a, b])
                )
                shortest = [min(self.latency[k]) for k in (a, b)]
                if self.heads[a] + sum(shortest) + self.tails[b] > 1.0 + TOLERANCE:
                    model.before[a, b].fix(0)
            model.rows.add(model.before[i, j] + model.before[j, i] <= 1)
            ordered = model.before[i, j] + model.before[j, i]
            if ix.core[i] and ix.core[j]:
                model.rows.add(self._whole(i) <= ordered)
                model.rows.add(self._whole(j) <= ordered)
            if self._overflow(i, j, min):
                model.rows.add(ordered >= 1)

    def _work(self, bounds: Bounds) -> None:
        """The core time of every weighting of the units fits below the makespan, modes included."""
        model, ix = self.model, self.ix
        for row in bounds.weights:
            terms = [
                float(row @ ix.modes[i][m].demand) * self.latency[i][m] * model.mode[i, m]
                for i, alive in enumerate(self.alive)
                for m in alive
            ]
            model.rows.add(sum(terms) <= model.makespan)

    def _named_cores(self) -> None:
        """Every single operator holds named cores, of one pair where it needs both; sharing forces an
        order."""
        model, ix, pyo = self.model, self.ix, self.pyo
        slots = [(i, u, k) for i in range(ix.size) for u in ix.units[i] for k in range(ix.capacity[u])]
        model.holds = pyo.Var(slots, domain=pyo.Binary)
        for i in range(ix.size):
            for u in ix.units[i]:
                total = sum(model.holds[i, u, k] for k in range(ix.capacity[u]))
                model.rows.add(total == 1 - self._whole(i))
            self._pair(i)
        for i, j in self.pairs:
            ordered = model.before[i, j] + model.before[j, i]
            for u in set(ix.units[i]) & set(ix.units[j]):
                for k in range(ix.capacity[u]):
                    model.rows.add(ordered >= model.holds[i, u, k] + model.holds[j, u, k] - 1)

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
        orders = sum(
            model.before[i, j] + model.before[j, i]
            for (i, _), (j, _) in combinations(group, 2)
            if (i, j) in model.before
        )
        less = sum(
            model.mode[i, n]
            for i, m in group
            for n in self.alive[i]
            if self.ix.modes[i][n].demand[resource] < self.ix.modes[i][m].demand[resource]
        )
        model.rows.add(orders + less >= 1)

    def solve(self, time_limit_s: float) -> tuple[Plan | None, float]:
        """The replayed solution (cores only where named), None without one; and the proven bound, s."""
        from pyomo.contrib.solver.solvers.highs import Highs

        solver = Highs()
        solver.config.time_limit = time_limit_s
        solver.config.threads = 1
        solver.config.load_solutions = False
        solver.config.raise_exception_on_nonoptimal_result = False
        solver.config.rel_gap = 0.0
        results = solver.solve(self.model)
        bound = results.objective_bound
        bound_s = 0.0 if bound is None or bound == -inf else bound * self.unit
        if results.incumbent_objective is None:
            return None, bound_s
        results.solution_loader.load_vars()
        return self._plan(), bound_s

    def _plan(self) -> Plan:
        ix, model = self.ix, self.model
        modes = [max((model.mode[i, m].value or 0.0, m) for m in row)[1] for i, row in enumerate(self.alive)]
        cores: list[tuple[Core, ...]] = [()] * ix.size
        if ix.pair is not None:
            held = [key for key, var in model.holds.items() if round(var.value or 0.0) == 1]
            cores = [tuple((u, k) for j, u, k in held if j == i) for i in range(ix.size)]
        before = [0] * ix.size
        for (i, j), var in model.before.items():
            before[j] |= (round(var.value or 0.0) == 1) << i
        return _ordered(ix, modes, cores, [own | more for own, more in zip(ix.preds, before, strict=True)])


def _ordered(ix: IndexedProblem, modes: list[int], cores: list[tuple[Core, ...]], before: list[int]) -> Plan:
    """Everything as early as a full set of precedences (masks) allows."""
    starts, ends, done = [0.0] * ix.size, [0.0] * ix.size, 0
    left = list(ix.order)
    while left:
        i = next(i for i in left if not before[i] & ~done)
        starts[i] = max((ends[j] for j in range(ix.size) if before[i] >> j & 1), default=0.0)
        ends[i] = starts[i] + ix.latency[i][modes[i]]
        done |= 1 << i
        left.remove(i)
    return Plan(max(ends), tuple(starts), tuple(modes), tuple(cores))


def _topological(ix: IndexedProblem, sequence: list[int]) -> list[int]:
    """The sequence with every operator moved behind its predecessors, which rounding may have undone."""
    placed, done, left = [], 0, list(sequence)
    while left:
        i = next(i for i in left if not ix.preds[i] & ~done)
        placed.append(i)
        done |= 1 << i
        left.remove(i)
    return placed


def _crowded(ix: IndexedProblem, plan: Plan) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Resource and a least group of (operator, mode) that overflows it at one moment, each group once.

    Operators that take the whole chip are ordered against all others already.
    """
    ends = _ends(ix, plan)
    seen = set()
    for u in range(len(ix.capacity)):
        held = [ix.modes[i][m].demand[u] for i, m in enumerate(plan.modes)]
        users = [i for i in range(ix.size) if held[i] and not ix.whole[i][plan.modes[i]]]
        for moment in sorted({plan.starts[i] for i in users}):
            running = [i for i in users if plan.starts[i] <= moment < ends[i]]
            for group in _covers(running, held, ix.capacity[u]):
                if (u, group) not in seen:
                    seen.add((u, group))
                    yield u, tuple((i, plan.modes[i]) for i in group)


def _covers(running: list[int], held: list[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """Least groups whose demand exceeds the capacity: every one of equal demands, else the largest first."""
    if sum(held[i] for i in running) <= capacity:
        return
    if len({held[i] for i in running}) == 1:
        yield from combinations(running, capacity // held[running[0]] + 1)
        return
    group, total = [], 0
    for i in sorted(running, key=lambda i: (-held[i], i)):
        group.append(i)
        total += held[i]
        if total > capacity:
            break
    yield tuple(sorted(group))


def _ends(ix: IndexedProblem, plan: Plan) -> list[float]:
    return [
        start + ix.latency[i][m] for i, (start, m) in enumerate(zip(plan.starts, plan.modes, strict=True))
    ]


def _with_cores(ix: IndexedProblem, plan: Plan) -> Plan:
    """The plan with cores by name, as early as they allow."""
    ends = _ends(ix, plan)
    cores = plan.cores if ix.pair is not None else assign_cores(ix, plan.starts, ends, plan.modes)
    sequence = sorted(range(ix.size), key=lambda i: (plan.starts[i], ends[i]))
    return replay(ix, _topological(ix, sequence), plan.modes, cores)
