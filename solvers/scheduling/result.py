"""What every scheduling method answers: a schedule, a proven bound, and what it cost to find them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Method(StrEnum):
    """How to solve: state-space search, mixed-integer programming, or list scheduling."""

    EXACT = "exact"
    ILP = "ilp"
    CRITICAL_PATH = "critical-path"


class Status(StrEnum):
    """What is known about the makespan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NO_SOLUTION = "no_solution"


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """A schedule and how good it provably is; all times in seconds.

    `starts_s`, `ends_s`, `modes` (position in `Operator.modes`) and `cores` (names such as "TC0") are keyed by
    operator id, `parallel` lists the core-parallel operators. `gap` = (makespan_s - lower_bound_s) / makespan_s.
    `work` counts what the method did (states expanded, models solved, ...).
    """

    status: Status
    method: Method
    makespan_s: float
    lower_bound_s: float
    gap: float
    runtime_s: float
    starts_s: Mapping[str, float]
    ends_s: Mapping[str, float]
    modes: Mapping[str, int]
    parallel: tuple[str, ...]
    cores: Mapping[str, tuple[str, ...]]
    work: Mapping[str, int] = field(default_factory=dict)

    @property
    def optimal(self) -> bool:
        """Whether the makespan is proven to be the smallest possible."""
        return self.status is Status.OPTIMAL
