"""What comes out of placing a chain on a mixed pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.solvers.placement.chain.result import PlacementStatus
from phaze.solvers.placement.mixed.problem import MixedStage


@dataclass(frozen=True)
class MixedResult:
    """The best plan: `value` in s (time) or J per device (energy), which no plan is proven to beat.

    `line`: its position among the lines asked for, -1 if no plan keeps the limits. `lines_solved`, `solved`:
    lines that their bound did not rule out, and runs of the dynamic program.
    """

    status: PlacementStatus
    value: float
    lower_bound: float
    gap: float
    time_s: float
    mean_power_w: float
    line: int
    stages: tuple[MixedStage, ...]
    lines_solved: int
    solved: int
    runtime_s: float
