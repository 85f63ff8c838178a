"""What the general placement solver answers."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.solvers.placement.chain.result import PlacementStatus
from phaze.solvers.placement.general.problem import Recompute


@dataclass(frozen=True)
class GeneralStage:
    """One stage: its layer ids in topological order, its devices in one pipeline, and its options."""

    layers: tuple[int, ...]
    devices: int
    device_type: str
    tensor_parallel: int
    recompute: Recompute
    zero: int


@dataclass(frozen=True)
class GeneralResult:
    """The best plan, stages in topological order; all but status and runtime is None or empty if nothing fits.

    `depth`: stages on the longest path. `lower_bound_s` equals `time_per_batch_s`, since the optimum is
    proven; it is infinite if nothing fits.
    """

    status: PlacementStatus
    time_per_batch_s: float | None
    lower_bound_s: float
    num_stages: int | None
    depth: int | None
    data_parallel: int | None
    devices_used: int | None
    stages: tuple[GeneralStage, ...]
    runtime_s: float
