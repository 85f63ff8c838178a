"""Independent check of a schedule against the rules, sharing no code with the solvers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from .problem import Operator, ScheduleProblem
from .result import ScheduleResult

TOLERANCE = 1e-9
"""Overlap, relative to the makespan, below which two intervals count as touching: room for rounding only."""


class ScheduleError(AssertionError):
    """A schedule that breaks a rule: a defect of the solver that made it."""


def check_schedule(problem: ScheduleProblem, result: ScheduleResult) -> None:
    """Verify precedence, latencies, core capacity, blocking, pairing and the reported makespan.

    Raises ScheduleError that names the rule and the operators.
    """
    _check_names(problem, result)
    slack = TOLERANCE * result.makespan_s
    spans = _spans(problem, result)
    if min((start for start, _ in spans.values()), default=0.0) < 0:
        raise ScheduleError("an operator starts before time zero")
    last = max((end for _, end in spans.values()), default=0.0)
    if abs(last - result.makespan_s) > slack:
        raise ScheduleError(f"the makespan is {last}, reported as {result.makespan_s}")
    if result.lower_bound_s > result.makespan_s + slack:
        raise ScheduleError(
            f"the lower bound {result.lower_bound_s} exceeds the makespan {result.makespan_s}"
        )
    for before, after in problem.edges:
        if spans[after][0] < spans[before][1] - slack:
            raise ScheduleError(f"{after!r} starts before its predecessor {before!r} ends")
    for operator in problem.operators:
        _check_cores(problem, operator, result)
    _check_exclusion(problem, result, spans, slack)


def _check_names(problem: ScheduleProblem, result: ScheduleResult) -> None:
    ids = {operator.id for operator in problem.operators}
    if set(result.starts_s) != ids or set(result.cores) != ids or not set(result.parallel) <= ids:
        raise ScheduleError("the schedule does not name exactly the operators of the problem")


def _spans(problem: ScheduleProblem, result: ScheduleResult) -> dict[str, tuple[float, float]]:
    """Start and end of every operator, with the duration of its mode."""
    parallel = set(result.parallel)
    spans = {}
    for operator in problem.operators:
        duration = operator.parallel_latency_s if operator.id in parallel else operator.latency_s
        if duration is None:
            raise ScheduleError(f"{operator.id!r} cannot run core-parallel")
        start = result.starts_s[operator.id]
        spans[operator.id] = (start, start + duration)
    return spans


def _check_cores(problem: ScheduleProblem, operator: Operator, result: ScheduleResult) -> None:
    """A single operator holds one existing core of each of its units, and of one pair where pairing rules."""
    if operator.id in result.parallel:
        return
    numbers: dict[str, int] = {}
    for name in result.cores[operator.id]:
        unit = next((u for u in problem.capacity if name.startswith(u) and name[len(u) :].isdecimal()), "")
        numbers[unit] = int(name[len(unit) :] or -1) if unit else -1
    wrong = len(result.cores[operator.id]) != len(operator.units) or set(numbers) != set(operator.units)
    if wrong or any(not 0 <= number < problem.capacity[unit] for unit, number in numbers.items()):
        raise ScheduleError(f"{operator.id!r} holds {result.cores[operator.id]}, not one core of each unit")
    if problem.pairing and {"TC", "VC"} <= set(numbers) and numbers["TC"] != numbers["VC"]:
        raise ScheduleError(f"{operator.id!r} holds {result.cores[operator.id]}, which are not one pair")


def _check_exclusion(
    problem: ScheduleProblem,
    result: ScheduleResult,
    spans: Mapping[str, tuple[float, float]],
    slack: float,
) -> None:
    """Two operators that overlap in time share no core, and neither blocks the other."""
    parallel = set(result.parallel)
    blocked = {op.id for op in problem.operators if set(op.units) - problem.unblocked}
    timed = sorted(
        (op for op in problem.operators if spans[op.id][0] < spans[op.id][1]), key=lambda op: spans[op.id]
    )
    for one, two in combinations(timed, 2):
        if spans[two.id][0] >= spans[one.id][1] - slack or spans[one.id][0] >= spans[two.id][1] - slack:
            continue
        if (one.id in parallel or two.id in parallel) and one.id in blocked and two.id in blocked:
            raise ScheduleError(f"{one.id!r} and {two.id!r} overlap although one of them is core-parallel")
        if set(result.cores[one.id]) & set(result.cores[two.id]):
            raise ScheduleError(f"{one.id!r} and {two.id!r} hold the same core at the same time")
