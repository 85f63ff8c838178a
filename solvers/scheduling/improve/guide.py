"""Better plans and bounds where beams and a long search left a gap: modes by branching, and local search."""

from __future__ import annotations

from time import monotonic

from ..indexed import IndexedProblem
from ..outcome import Limits, Outcome
from ..relaxation.program import ModeProgram
from .local_search import Effort, Start, improve

NODES = 50
"""Most nodes of the mixed-integer program: more hardly raise its bound."""

TRIES = 3_000
"""Schedules that the local search makes from each start."""

HEATS = (0.005, 0.015, 0.03)
"""How boldly a plan is varied, in turn: none is best for every problem."""

PART = 0.1
"""Most of the time left that one step may take."""


def suggest(ix: IndexedProblem, outcome: Outcome, limits: Limits) -> None:
    """Raise the bound by the choice of modes alone; improve the plan by local search from the modes chosen."""
    program = ModeProgram(ix, outcome.tighten(ix), outcome.plan.makespan_s)
    mixed = program.mixed()
    integral = program.integral(NODES, _until(limits) - monotonic())
    best = max(mixed.lower_s, integral.lower_s, outcome.lower_s)
    outcome.lower_s = min(best, outcome.plan.makespan_s)
    for found in (integral, mixed):
        _improve(ix, outcome, limits, Start(found.modes, found.starts_s), HEATS[1])


def polish(ix: IndexedProblem, outcome: Outcome, limits: Limits) -> None:
    """Improve the plan by local search around it."""
    for heat in HEATS:
        _improve(ix, outcome, limits, Start(outcome.plan.modes, outcome.plan.starts), heat)


def _improve(ix: IndexedProblem, outcome: Outcome, limits: Limits, start: Start, heat: float) -> None:
    if not outcome.over(limits):
        outcome.adopt(improve(ix, start, Effort(TRIES, _until(limits), outcome.lower_s, heat)))


def _until(limits: Limits) -> float:
    """When a step has to end."""
    now = monotonic()
    return now + PART * (limits.deadline - now)
