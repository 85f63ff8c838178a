"""PHAZE's mixed-integer formulation, made strong, and solved again with core limits until it keeps them all.

The orders that HiGHS chooses make a plan; groups of operators that overflow a resource in it become new limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb, inf
from time import monotonic

from ..indexed_problem import Core, IndexedProblem
from ..list_scheduling import incumbent, list_schedule
from ..schedule_bounds import critical_path_s, lower_bounds
from ..schedule_plan import Outcome, Plan, assign_cores, replay
from .ilp_model import TOLERANCE, Limit, OrderModel

MOST_GROUPS = 1000
"""Groups looked through at most to foresee an overflow: a thousand rows still cost HiGHS little."""


def follow(ix: IndexedProblem, modes: list[int], cores: list[tuple[Core, ...]], before: list[int]) -> Plan:
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


def with_cores(ix: IndexedProblem, plan: Plan) -> Plan:
    """The plan with cores by name, as early as they allow."""
    ends = _ends(ix, plan)
    cores = plan.cores if ix.pair is not None else assign_cores(ix, plan.starts, ends, plan.modes)
    sequence = sorted(range(ix.size), key=lambda i: (plan.starts[i], ends[i]))
    return replay(ix, _topological(ix, sequence), plan.modes, cores)


def crowded(ix: IndexedProblem, plan: Plan) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Resource and least groups of (operator, mode) that overflow it at one moment, each group once.

    Where a resource overflows and operators alike hold it, all groups that ever could overflow it, if they are few.
    Operators that take the whole chip are ordered against all others already.
    """
    ends = _ends(ix, plan)
    for u, capacity in enumerate(ix.capacity):
        held = [ix.modes[i][m].demand[u] for i, m in enumerate(plan.modes)]
        users = [i for i in range(ix.size) if held[i] and not ix.whole[i][plan.modes[i]]]
        groups: dict[tuple[int, ...], None] = {}
        for moment in sorted({plan.starts[i] for i in users}):
            running = [i for i in users if plan.starts[i] <= moment < ends[i]]
            groups.update(dict.fromkeys(_covers(running, held, capacity)))
        if groups and len({held[i] for i in users}) == 1:
            groups.update(dict.fromkeys(_unordered(ix, users, capacity // held[users[0]] + 1)))
        for group in groups:
            yield u, tuple((i, plan.modes[i]) for i in group)


def _unordered(ix: IndexedProblem, users: list[int], size: int) -> list[tuple[int, ...]]:
    """Groups of a size without precedence inside; none if they are many."""
    if comb(len(users), size) > MOST_GROUPS:
        return []
    related = [ix.ancestors[i] | ix.descendants[i] for i in range(ix.size)]
    groups = combinations(users, size)
    return [g for g in groups if not any(related[i] >> j & 1 for i, j in combinations(g, 2))]


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


def _topological(ix: IndexedProblem, sequence: list[int]) -> list[int]:
    """The sequence with every operator moved behind its predecessors, which rounding may have undone."""
    placed, done, left = [], 0, list(sequence)
    while left:
        i = next(i for i in left if not ix.preds[i] & ~done)
        placed.append(i)
        done |= 1 << i
        left.remove(i)
    return placed


FEASIBILITY = 1e-9
"""Tolerance of HiGHS on a row, relative to the incumbent: summed along a path, far below `TOLERANCE`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The plan found (cores only where named; None: none), the proven bound (s), and nodes of the search.

    A bound of inf says that the program has no solution: nothing beats the incumbent.
    """

    plan: Plan | None
    bound_s: float
    nodes: int


def solve_model(order: OrderModel, time_limit_s: float) -> Answer:
    """Solve the program as it stands."""
    from pyomo.contrib.solver.common.results import TerminationCondition
    from pyomo.contrib.solver.solvers.highs import Highs

    solver = Highs()
    solver.config.time_limit = time_limit_s
    solver.config.threads = 1
    solver.config.load_solutions = False
    solver.config.raise_exception_on_nonoptimal_result = False
    solver.config.rel_gap = 0.0
    solver.config.solver_options = {
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_feasibility_tolerance": FEASIBILITY,
    }
    results = solver.solve(order.model)
    nodes = max(0, getattr(results.extra_info, "mip_node_count", 0))
    if results.termination_condition is TerminationCondition.provenInfeasible:
        return Answer(None, inf, nodes)
    bound = results.objective_bound
    bound_s = 0.0 if bound is None or bound == -inf else bound * order.unit_s
    if results.incumbent_objective is None:
        return Answer(None, bound_s, nodes)
    results.solution_loader.load_vars()
    return Answer(_plan(order), bound_s, nodes)


def _plan(order: OrderModel) -> Plan:
    ix, model = order.ix, order.model
    modes = [max((model.mode[i, m].value or 0.0, m) for m in row)[1] for i, row in enumerate(order.alive)]
    cores: list[tuple[Core, ...]] = [()] * ix.size
    if ix.pair is not None:
        held = [key for key, var in model.holds.items() if round(var.value or 0.0) == 1]
        cores = [tuple((u, k) for j, u, k in held if j == i) for i in range(ix.size)]
    before = [0] * ix.size
    for (i, j), var in model.before.items():
        before[j] |= (round(var.value or 0.0) == 1) << i
    return follow(ix, modes, cores, [own | more for own, more in zip(ix.preds, before, strict=True)])


def solve_ilp(ix: IndexedProblem, deadline: float) -> Outcome:
    """Best plan and bound by the deadline (`time.monotonic`); where they meet, they do within `TOLERANCE`."""
    least = critical_path_s(ix)
    plan, tried = incumbent(ix, least, deadline)
    work = {"list_schedules": tried, "models": 0, "nodes": 0, "core_limits": 0}
    outcome = Outcome(plan, least, work)
    limits: list[Limit] = []
    while not outcome.proven:
        bounds = lower_bounds(ix, outcome.plan.makespan_s)
        outcome.lower_s = max(outcome.lower_s, bounds.lower_s)
        left = deadline - monotonic()
        if outcome.proven or left <= 0.0:
            break
        model = OrderModel(ix, bounds, outcome.plan.makespan_s, outcome.lower_s)
        for limit in limits:
            model.limit(*limit)
        answer = solve_model(model, left)
        work["models"] += 1
        work["nodes"] += answer.nodes
        found = _learn(ix, outcome, answer)
        if not found:
            break
        limits += found
        work["core_limits"] += len(found)
    return outcome


def _learn(ix: IndexedProblem, outcome: Outcome, answer: Answer) -> list[Limit]:
    """Take over bound and plan; the core limits that the plan breaks, none where nothing is left to do."""
    bound_s = answer.bound_s * (1.0 - TOLERANCE)
    outcome.lower_s = min(max(outcome.lower_s, bound_s), outcome.plan.makespan_s)
    if answer.plan is None:
        return []
    found = list(crowded(ix, answer.plan)) if ix.pair is None else []
    _adopt(outcome, _repaired(ix, answer.plan) if found else with_cores(ix, answer.plan))
    if not found and answer.bound_s >= outcome.plan.makespan_s * (1.0 - TOLERANCE):
        outcome.lower_s = outcome.plan.makespan_s
    return found


def _adopt(outcome: Outcome, plan: Plan) -> None:
    if plan.makespan_s < outcome.plan.makespan_s:
        outcome.plan = plan


def _repaired(ix: IndexedProblem, plan: Plan) -> Plan:
    """The list schedule in the order and modes of a plan that overflows some resource."""
    return list_schedule(ix, plan.modes, [-start for start in plan.starts])
