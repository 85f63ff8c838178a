"""What an exact search may spend and what it has proven."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from time import monotonic

from .bounds import Bounds, lower_bounds
from .indexed import IndexedProblem
from .plan import Plan

SAME = 1e-11
"""Relative difference below which two times are one: what ticks and sums of floats can lose."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: at a time (`time.monotonic`), at a lower bound (s), after a number of expanded states."""

    deadline: float
    cutoff_s: float = inf
    states: int | None = None


@dataclass(slots=True)
class Outcome:
    """Best plan, proven bound (s), and counts of what was done."""

    plan: Plan
    lower_s: float
    work: dict[str, int] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether plan and bound meet, up to rounding."""
        return self.lower_s >= self.plan.makespan_s * (1.0 - SAME)

    def over(self, limits: Limits) -> bool:
        """Whether plan and bound meet or a limit is reached."""
        return (
            self.proven
            or self.lower_s >= limits.cutoff_s
            or (limits.states is not None and self.work["states"] >= limits.states)
            or monotonic() > limits.deadline
        )

    def tighten(self, ix: IndexedProblem) -> Bounds:
        """Bounds under the makespan of the plan, which may raise the proven one."""
        bounds = lower_bounds(ix, self.plan.makespan_s)
        self.lower_s = max(self.lower_s, bounds.lower_s)
        return bounds

    def adopt(self, plan: Plan) -> None:
        """Keep a plan if it is shorter, which rounding may deny."""
        if plan.makespan_s < self.plan.makespan_s:
            self.plan = plan
