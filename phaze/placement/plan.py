"""A placement: which layers run where, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.placement.cluster import Recompute


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Layers `first` to `last` (positions in the chain, inclusive) on one tensor-parallel group.

    `recompute`: whether this stage recomputes. `load_s`: time one microbatch occupies it, transfers included;
    `transfer_s` the part of it that is transfers; `memory_bytes`: peak on one device.
    """

    first: int
    last: int
    recompute: bool
    load_s: float
    transfer_s: float
    parameters: int
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The best placement of a chain on a cluster; times in seconds per iteration.

    iteration_s = slots x max(load) + reduction_s + optimizer_s.
    """

    microbatch: int
    tensor_parallel: int
    recompute: Recompute
    data_parallel: int
    microbatches: int
    stages: tuple[StagePlan, ...]
    reduction_s: float
    optimizer_s: float
    iteration_s: float

    @property
    def pipeline_parallel(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def slots(self) -> int:
        """How many times the slowest stage's load fits into the iteration (1F1B)."""
        return self.microbatches + len(self.stages) - 1

    @property
    def slowest(self) -> StagePlan:
        """The stage that sets the pace."""
        return max(self.stages, key=lambda s: s.load_s)

    @property
    def devices_used(self) -> int:
        """Devices that hold a part of the model."""
        return self.data_parallel * self.tensor_parallel * len(self.stages)

    @property
    def memory_bytes(self) -> float:
        """Largest peak on one device."""
        return max(s.memory_bytes for s in self.stages)
