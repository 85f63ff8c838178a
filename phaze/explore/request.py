"""What is asked of the explorer, every default spelled out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from phaze.errors import InputError
from phaze.hardware.network import Network
from phaze.hardware.space import DesignSpace
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.workload.workload import Mode, Workload

MICROBATCHES = (1, 2, 4, 8, 16, 32)


class Objective(StrEnum):
    """What is optimised; the direction is built in.

    Each is a function of throughput and TDP that a Pareto frontier of the two is certain to contain, so the
    complete frontier proves the optimum of all of them.
    """

    THROUGHPUT = "throughput"
    THROUGHPUT_PER_TDP = "throughput_per_tdp"
    TDP = "tdp"


@dataclass(frozen=True)
class Budgets:
    """Limits per accelerator; None means no limit. TDP counts with `tdp_margin`.

    `dvfs`: lower the clock of an architecture, to whole MHz, until it keeps the power budget.
    """

    power_w: float | None = None
    area_mm2: float | None = None
    tdp_margin: float = 1.0
    dvfs: bool = False


@dataclass(frozen=True)
class Task:
    """A workload on a cluster: everything but the architecture."""

    workload: Workload
    devices: int
    network: Network
    global_batch: int | None = None
    fixed: FixedDegrees = field(default_factory=FixedDegrees)

    @property
    def cluster(self) -> Cluster:
        """Devices, network and the batch they share."""
        batch = self.global_batch or self.workload.global_batch(self.devices)
        return Cluster(self.devices, batch, self.network)

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Microbatch sizes to try: powers of two up to 32 that divide the global batch."""
        batch = self.cluster.global_batch
        if self.fixed.microbatch is not None:
            if batch % self.fixed.microbatch:
                raise InputError(
                    f"microbatch {self.fixed.microbatch} does not divide the global batch {batch}"
                )
            return (self.fixed.microbatch,)
        return tuple(b for b in MICROBATCHES if batch % b == 0)

    @property
    def widths(self) -> tuple[int, ...]:
        """Tensor-parallel widths to try: those of the workload that stay inside a scale-up domain."""
        limit = min(self.devices, self.network.scale_up_devices)
        admissible = self.workload.tensor_parallel_widths(limit)
        wanted = self.fixed.tensor_parallel
        if wanted is None:
            return admissible
        if wanted not in admissible:
            choices = ", ".join(map(str, admissible))
            raise InputError(
                f"tensor-parallel width {wanted} is not possible for {self.workload.name}; possible: {choices}"
            )
        return (wanted,)

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Recompute choices to try; inference keeps nothing, so there is nothing to recompute."""
        if self.workload.mode is not Mode.TRAINING:
            return (Recompute.NONE,)
        return (self.fixed.recompute,) if self.fixed.recompute else tuple(Recompute)


@dataclass(frozen=True)
class ExploreRequest:
    """The main job: the best architecture of a space for a task under budgets."""

    task: Task
    space: DesignSpace
    budgets: Budgets = field(default_factory=Budgets)
    objective: Objective = Objective.THROUGHPUT
    time_limit_s: float = 60.0
    gap: float = 0.0
    seed: int = 0
    others: tuple[Task, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every workload the design is for; one common design where there are several."""
        return (self.task, *self.others)
