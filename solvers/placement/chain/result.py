"""What the placement solver answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PlacementStatus(StrEnum):
    """Both answers are proofs: the search is exhaustive."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: its layer ids in topological order and its devices in one pipeline."""

    layers: tuple[int, ...]
    devices: int


@dataclass(frozen=True)
class PlacementResult:
    """The best plan, first stage first; every field but status and runtime is None or empty if nothing fits.

    `lower_bound_s` equals `time_per_batch_s`, since the optimum is proven; it is infinite if nothing fits.
    """

    status: PlacementStatus
    time_per_batch_s: float | None
    lower_bound_s: float
    num_stages: int | None
    data_parallel: int | None
    tensor_parallel: int | None
    stages: tuple[Stage, ...]
    runtime_s: float
