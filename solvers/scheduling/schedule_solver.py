"""One function in front of the scheduling methods: solve, name, check.

Problems fall apart in time where all of one part precedes all of the next: there the optima add up.

Forward passes are chains of such parts (attention heads, experts, branches of a module, and single operators
between them), many of which are alike; each kind is solved once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from time import monotonic

from .exact.exact_schedule import solve_exact
from .indexed_problem import Core, IndexedProblem, index_problem
from .list_scheduling import incumbent
from .schedule_bounds import critical_path_s, lower_bounds
from .schedule_checker import check_schedule
from .schedule_plan import Outcome, Plan, SearchLimits, replay
from .schedule_problem import Method, Mode, ScheduleProblem, ScheduleResult, Status

Part = tuple[int, ...]
"""Positions of operators, in the order of the problem."""

Solver = Callable[[IndexedProblem, SearchLimits], Outcome]

A_LITTLE = 1 / 8
"""Part of its share that every kind has before those that are left have the rest."""


def split(ix: IndexedProblem) -> tuple[Part, ...]:
    """The finest parts such that every operator of one precedes every operator of the next, in order."""
    everything = (1 << ix.size) - 1
    parts: list[Part] = []
    part: list[int] = []
    after, before = everything, 0
    for i in sorted(range(ix.size), key=lambda i: ix.ancestors[i].bit_count()):
        part.append(i)
        before |= 1 << i
        after &= ix.descendants[i]
        if after == everything & ~before:
            parts.append(tuple(sorted(part)))
            part, after = [], everything & ~before
    return tuple(parts)


def solve_series(ix: IndexedProblem, limits: SearchLimits, solver: Solver) -> Outcome:
    """Solve the parts, small ones first, and join their plans; bounds add up.

    Time and states are shared evenly among the kinds still to come, so that what the easy ones leave goes to
    the hard ones. A part may stop once its bound and those known of the others reach the cutoff together. Without a
    limit of states, all kinds first have a little of the time; those that it does not settle are solved again with
    what is left, while that is more than they had.
    """
    parts = split(ix)
    if len(parts) < 2:
        return solver(ix, limits)
    series = _Series(ix, limits, solver, _kinds(ix, parts))
    alone = limits.states is None and isfinite(limits.deadline)
    series.solve(range(len(series.kinds)), A_LITTLE if alone else 1.0)
    while alone and (again := series.open_kinds):
        series.solve(again)
    lower = sum(outcome.lower_s * len(places) for outcome, (_, places) in series.solved)
    found = {place: outcome for outcome, (_, places) in series.solved for place in places}
    plans = [(part, found[k].plan) for k, part in enumerate(parts)]
    return Outcome(_joined(ix, plans), lower, series.work)


class _Series:
    """Kinds of parts, the best outcome of each, and the most time that it was given."""

    def __init__(
        self,
        ix: IndexedProblem,
        limits: SearchLimits,
        solver: Solver,
        kinds: list[tuple[IndexedProblem, list[int]]],
    ) -> None:
        self.ix, self.limits, self.solver, self.kinds = ix, limits, solver, kinds
        self.least = [critical_path_s(part) * len(places) for part, places in kinds]
        self.outcomes: list[Outcome | None] = [None] * len(kinds)
        self.given_s = [0.0] * len(kinds)
        self.work: dict[str, int] = {}

    @property
    def solved(self) -> list[tuple[Outcome, tuple[IndexedProblem, list[int]]]]:
        """Outcomes with their kinds."""
        each = zip(self.outcomes, self.kinds, strict=True)
        return [(outcome, kind) for outcome, kind in each if outcome is not None]

    @property
    def open_kinds(self) -> list[int]:
        """Kinds that are not proven, as many of the dearest as have more time each than they had."""
        left_s = self.limits.deadline - monotonic()
        if sum(self.least) >= self.limits.cutoff_s or self.limits.late:
            return []
        gaps = {
            k: (outcome.plan.makespan_s - outcome.lower_s) * len(places)
            for k, (outcome, (_, places)) in enumerate(self.solved)
            if not outcome.proven
        }
        order = sorted(gaps, key=gaps.__getitem__)
        while order and left_s / len(order) <= max(self.given_s[k] for k in order):
            order = order[1:]
        return order

    def solve(self, some: Sequence[int], part_of_it: float = 1.0) -> None:
        """Solve some kinds, each with its share of what is left, or a part of that."""
        for turn, k in enumerate(some):
            part, places = self.kinds[k]
            others = sum(self.least) - self.least[k]
            cutoff = (self.limits.cutoff_s - others) / len(places)
            left = (len(some) - turn) / part_of_it
            share = _share(self.limits, left, self.work.get("states", 0), cutoff)
            self.given_s[k] = max(self.given_s[k], share.deadline - monotonic())
            outcome = self.solver(part, share)
            for name, count in outcome.work.items():
                self.work[name] = self.work.get(name, 0) + count
            before = self.outcomes[k]
            if before is not None:
                outcome.adopt(before.plan)
                outcome.lower_s = max(outcome.lower_s, before.lower_s)
            self.outcomes[k] = outcome
            self.least[k] = outcome.lower_s * len(places)


def _kinds(ix: IndexedProblem, parts: Sequence[Part]) -> list[tuple[IndexedProblem, list[int]]]:
    """Parts that are the same problem, operator by operator, and their places in the series; small ones first."""
    places: dict[Hashable, list[int]] = {}
    for k, part in enumerate(parts):
        places.setdefault(_description(ix, part), []).append(k)
    alike = sorted(places.values(), key=lambda numbers: len(parts[numbers[0]]))
    return [(index_problem(_induced(ix, parts[numbers[0]])), numbers) for numbers in alike]


def _description(ix: IndexedProblem, part: Part) -> Hashable:
    """Operators without their names, and who follows whom within the part."""
    place = {i: k for k, i in enumerate(part)}
    operators = tuple(replace(ix.problem.operators[i], id="") for i in part)
    return operators, tuple(frozenset(place[j] for j in ix.succs[i] if j in place) for i in part)


def _induced(ix: IndexedProblem, part: Part) -> ScheduleProblem:
    """The problem of some operators and the edges among them."""
    operators = tuple(ix.problem.operators[i] for i in part)
    chosen = set(part)
    edges = tuple(
        (ix.problem.operators[i].id, ix.problem.operators[j].id)
        for i in part
        for j in ix.succs[i]
        if j in chosen
    )
    return replace(ix.problem, operators=operators, edges=edges)


def _share(limits: SearchLimits, left: float, used: int, cutoff_s: float) -> SearchLimits:
    """An even share of what is left for one of `left` parts."""
    now = monotonic()
    states = None if limits.states is None else int(max(0, limits.states - used) // left)
    deadline = now + (limits.deadline - now) / left
    return replace(limits, deadline=deadline, cutoff_s=cutoff_s, states=states)


def _joined(ix: IndexedProblem, solved: Sequence[tuple[Part, Plan]]) -> Plan:
    """One plan of the whole: every part begins when the one before has ended."""
    rank = {i: k for k, i in enumerate(ix.order)}
    modes = [0] * ix.size
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    for part, plan in solved:
        for k, i in enumerate(part):
            modes[i], cores[i] = plan.modes[k], plan.cores[k]
        start = dict(zip(part, plan.starts, strict=True))
        sequence.extend(sorted(part, key=lambda i: (start[i], rank[i])))
    return replay(ix, sequence, modes, cores)


def schedule(
    problem: ScheduleProblem,
    method: Method = Method.EXACT,
    time_limit_s: float = 60.0,
    *,
    cutoff_s: float | None = None,
    state_limit: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> ScheduleResult:
    """Smallest makespan of a problem, with a proven lower bound.

    A limit, or somebody who wants it `stopped`, which is looked at all the time, gives the best schedule found and
    the bound proven so far. Every schedule passes the checker.
    The exact method also stops (feasible, unless optimal already) once the bound reaches `cutoff_s`, and after
    `state_limit` expanded states, which unlike time is the same on every machine; the others ignore both.
    """
    began = monotonic()
    ix = index_problem(problem)
    cutoff = inf if cutoff_s is None else cutoff_s
    limits = SearchLimits(began + time_limit_s, cutoff, state_limit, stopped)
    outcome = solve_series(ix, limits, partial(_solve, method))
    result = _result(ix, outcome, method, monotonic() - began)
    check_schedule(problem, result)
    return result


def _solve(method: Method, ix: IndexedProblem, limits: SearchLimits) -> Outcome:
    match method:
        case Method.EXACT:
            return solve_exact(ix, limits)
        case Method.ILP:
            from .ilp.ilp_schedule import solve_ilp

            return solve_ilp(ix, limits.deadline)
        case Method.CRITICAL_PATH:
            least = critical_path_s(ix)
            plan, tried = incumbent(ix, least, limits.deadline)
            outcome = Outcome(plan, least, {"list_schedules": tried})
            if not outcome.proven:
                outcome.lower_s = max(least, lower_bounds(ix, plan.makespan_s).lower_s)
            return outcome


def _result(ix: IndexedProblem, outcome: Outcome, method: Method, runtime_s: float) -> ScheduleResult:
    plan, problem = outcome.plan, ix.problem
    lower = plan.makespan_s if outcome.proven else outcome.lower_s
    names = [operator.id for operator in problem.operators]
    modes = [ix.modes[i][m] for i, m in enumerate(plan.modes)]
    used = [op.modes[mode.position] for op, mode in zip(problem.operators, modes, strict=True)]
    ends = [start + mode.latency_s for start, mode in zip(plan.starts, modes, strict=True)]
    return ScheduleResult(
        status=Status.OPTIMAL if outcome.proven else Status.FEASIBLE,
        method=method,
        makespan_s=plan.makespan_s,
        lower_bound_s=lower,
        gap=(plan.makespan_s - lower) / plan.makespan_s if plan.makespan_s else 0.0,
        runtime_s=runtime_s,
        starts_s=dict(zip(names, plan.starts, strict=True)),
        ends_s=dict(zip(names, ends, strict=True)),
        modes={name: mode.position for name, mode in zip(names, modes, strict=True)},
        parallel=tuple(name for name, mode in zip(names, used, strict=True) if mode.cores is None),
        cores={name: _core_names(problem, ix, plan, i, used[i]) for i, name in enumerate(names)},
        work=outcome.work,
    )


def _core_names(
    problem: ScheduleProblem, ix: IndexedProblem, plan: Plan, i: int, mode: Mode
) -> tuple[str, ...]:
    """Names such as "TC0"; a core-parallel fused operator is accounted as equally many cores of each unit."""
    if plan.cores[i]:
        return tuple(f"{ix.unit_names[u]}{k}" for u, k in plan.cores[i])
    units = problem.operators[i].units
    count = min(problem.capacity[unit] for unit in units) if mode.cores is None else mode.cores
    return tuple(f"{unit}{k}" for unit in units for k in range(count))
