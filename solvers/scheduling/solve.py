"""One function in front of the scheduling methods: solve, name, check."""

from __future__ import annotations

from functools import partial
from math import inf
from time import monotonic

from .bounds import critical_path_s, lower_bounds
from .checker import check_schedule
from .critical_path import incumbent
from .exact.solve import solve_exact
from .indexed import IndexedProblem, index_problem
from .operators import Mode
from .outcome import Limits, Outcome
from .plan import Plan
from .problem import ScheduleProblem
from .result import Method, ScheduleResult, Status
from .series import solve_series


def schedule(
    problem: ScheduleProblem,
    method: Method = Method.EXACT,
    time_limit_s: float = 60.0,
    *,
    cutoff_s: float | None = None,
    state_limit: int | None = None,
) -> ScheduleResult:
    """Smallest makespan of a problem, with a proven lower bound.

    A limit gives the best schedule found and the bound proven so far. Every schedule passes the checker.
    The exact method also stops (feasible, unless optimal already) once the bound reaches `cutoff_s`, and after
    `state_limit` expanded states, which unlike time is the same on every machine; the others ignore both.
    """
    began = monotonic()
    ix = index_problem(problem)
    cutoff = inf if cutoff_s is None else cutoff_s
    limits = Limits(began + time_limit_s, cutoff, state_limit)
    outcome = solve_series(ix, limits, partial(_solve, method))
    result = _result(ix, outcome, method, monotonic() - began)
    check_schedule(problem, result)
    return result


def _solve(method: Method, ix: IndexedProblem, limits: Limits) -> Outcome:
    match method:
        case Method.EXACT:
            return solve_exact(ix, limits)
        case Method.ILP:
            from .ilp.solve import solve_ilp

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
