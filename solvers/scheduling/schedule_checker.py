"""Independent check of a schedule against the rules, sharing no code with the solvers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from .schedule_problem import Mode, Operator, ScheduleProblem, ScheduleResult

TOLERANCE = 1e-9
"""Overlap, relative to the makespan, below which two intervals count as touching: room for rounding only."""


class ScheduleError(AssertionError):
    """A schedule that breaks a rule: a defect of the solver that made it."""


def check_schedule(problem: ScheduleProblem, result: ScheduleResult) -> None:
    """Verify precedence, latencies, cores, blocking, pairing, bandwidth and the reported makespan.

    Raises ScheduleError that names the rule and the operators.
    """
    _check_names(problem, result)
    slack = TOLERANCE * result.makespan_s
    modes = _modes(problem, result)
    spans = _spans(result, modes, slack)
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
        _check_cores(problem, operator, modes[operator.id], result.cores[operator.id])
    _check_bandwidth(problem, modes, spans, slack)
    _check_exclusion(problem, result, spans, slack)


def _check_names(problem: ScheduleProblem, result: ScheduleResult) -> None:
    ids = {operator.id for operator in problem.operators}
    if any(set(keyed) != ids for keyed in (result.starts_s, result.ends_s, result.modes, result.cores)):
        raise ScheduleError("the schedule does not name exactly the operators of the problem")


def _modes(problem: ScheduleProblem, result: ScheduleResult) -> dict[str, Mode]:
    """The mode of every operator; `parallel` names exactly those that are core-parallel."""
    modes = {}
    for operator in problem.operators:
        position = result.modes[operator.id]
        if not 0 <= position < len(operator.modes):
            raise ScheduleError(f"{operator.id!r} has no mode {position}")
        modes[operator.id] = operator.modes[position]
    if set(result.parallel) != {name for name, mode in modes.items() if mode.cores is None}:
        raise ScheduleError("`parallel` does not list exactly the operators in a core-parallel mode")
    return modes


def _spans(result: ScheduleResult, modes: Mapping[str, Mode], slack: float) -> dict[str, tuple[float, float]]:
    """Start and end of every operator, with the duration of its mode."""
    spans = {name: (start, start + modes[name].latency_s) for name, start in result.starts_s.items()}
    for name, (_, end) in spans.items():
        if abs(result.ends_s[name] - end) > slack:
            raise ScheduleError(f"{name!r} ends at {end}, reported as {result.ends_s[name]}")
    return spans


def _check_cores(problem: ScheduleProblem, operator: Operator, mode: Mode, held: tuple[str, ...]) -> None:
    """As many different existing cores of each unit as the mode says, and one pair where pairing rules."""
    if mode.cores is None:
        return
    numbers: dict[str, set[int]] = {unit: set() for unit in operator.units}
    for name in held:
        unit = next((u for u in operator.units if name.startswith(u) and name[len(u) :].isdecimal()), "")
        if not unit or int(name[len(unit) :]) >= problem.capacity[unit]:
            raise ScheduleError(f"{operator.id!r} holds {name!r}, which is no core of its units")
        numbers[unit].add(int(name[len(unit) :]))
    wrong = len(held) != mode.cores * len(operator.units)
    if wrong or any(len(cores) != mode.cores for cores in numbers.values()):
        raise ScheduleError(f"{operator.id!r} holds {held}, not {mode.cores} of each unit")
    if problem.pairing and {"TC", "VC"} <= set(numbers) and numbers["TC"] != numbers["VC"]:
        raise ScheduleError(f"{operator.id!r} holds {held}, which are not one pair")


def _check_bandwidth(
    problem: ScheduleProblem,
    modes: Mapping[str, Mode],
    spans: Mapping[str, tuple[float, float]],
    slack: float,
) -> None:
    """At no start do the operators that run draw more than the shared bandwidth."""
    for moment, _ in spans.values():
        running = [name for name, (start, end) in spans.items() if start <= moment < end - slack]
        drawn = sum(modes[name].bandwidth for name in running)
        if drawn > (problem.bandwidth or 0.0) * (1.0 + TOLERANCE):
            raise ScheduleError(f"{', '.join(map(repr, running))} together draw {drawn} of the bandwidth")


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
