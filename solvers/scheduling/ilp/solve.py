"""PHAZE's mixed-integer formulation, made strong, and solved again with core limits until it keeps them all."""

from __future__ import annotations

from time import monotonic

from ..bounds import critical_path_s, lower_bounds
from ..critical_path import incumbent, list_schedule
from ..indexed import IndexedProblem
from ..outcome import Outcome
from ..plan import Plan
from .highs import Answer, solve_model
from .model import TOLERANCE, Limit, OrderModel
from .plan import crowded, with_cores


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
