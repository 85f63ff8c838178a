"""The plan document, which `dse plan` and `dse evaluate` of a fixed plan print with `--json`, and that of one thing
varied, the best plan for every value of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.errors import InfeasibleError
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.plan_record import PlanBreakdown, PlanKind, PlanMemory, StrategyRecord
from phaze.explore.documents.result_document import Manifest
from phaze.explore.documents.result_manifest import manifest

PLAN_SCHEMA = DocumentName.PLAN.version(3)


class PlanGoodput(Record):
    """What failures leave of a plan's throughput: shares of the time, which sum to 1, and of its replicas."""

    goodput_samples_per_s: float = Field(description="throughput x share")
    share: float = Field(description="goodput over throughput = working_share x replicas_kept")
    interruptions_per_day: float = Field(description="that nobody planned, of the devices in use")
    checkpoint_interval_s: float | None = Field(
        description="of work between two checkpoints, the best; none: nothing ever fails"
    )
    checkpoint_s: float = Field(description="in which one checkpoint stops the job")
    working_share: float = Field(description="of the time, work that lasts")
    checkpoint_share: float = Field(description="checkpoints being written")
    lost_share: float = Field(description="work done again after a failure")
    restart_share: float = Field(description="from failures to the next step")
    planned_share: float = Field(description="planned interruptions, with their checkpoints")
    replicas_kept: float = Field(
        description="expected share of the samples whose replicas have their devices"
    )
    domain_devices: int = Field(description="devices of a scale-up domain, the blast radius of a failure")
    whole_domains: float = Field(description="share of domains with all their devices")
    devices_out: float = Field(description="share of devices that wait for repair")
    spare_devices: int = Field(
        description="spares in whole groups that keep every replica as it is in 99 % of the time"
    )


class PlanConvergence(Record):
    """What samples of a plan's batch are worth, by the gradient noise scale."""

    global_batch: int = Field(description="samples of an iteration")
    noise_scale_samples: float = Field(description="gradient noise scale")
    efficiency: float = Field(
        description="progress per sample over that in the smallest batches: noise / (noise + batch)"
    )
    goodput_samples_per_s: float = Field(
        description="throughput x efficiency, under failures x their share, as samples/s of small batches"
    )


class StageBubbles(Record):
    """Bubbles of the device of one stage in an iteration, and the memory that is free in them."""

    stage: int = Field(description="the first one is 0")
    fill_drain_s: float = Field(
        description="for the first microbatch to come, or the last ones to be through"
    )
    forward_backward_s: float = Field(description="between its first forward passes and the first gradient")
    scattered_s: float = Field(description="between other passes")
    longest_s: float = Field(description="the longest bubble")
    free_bytes: float = Field(description="of its memory, all the time")
    free_drained_bytes: float = Field(description="of its memory, while no activations are in flight")
    filled_s: float | None = Field(default=None, description="of its bubbles, in which other work runs")
    batch: int | None = Field(default=None, description="samples of a pass of other work, the best")


class PlanFill(Record):
    """Work that fills the bubbles of all devices."""

    workload: str
    samples_per_s: float = Field(description="of all devices")
    recovered_flops_per_s: float = Field(
        description="of one device on average: FLOPs of the work over the time"
    )
    filled_share: float = Field(description="of the bubbles, in which the work runs")
    device_equivalents: float | None = Field(
        description="devices that would do as much if they did nothing else; none: it fits on no device"
    )
    utilisation: float = Field(description="FLOPs of the plan's model and of the work over those at peak")
    switch_s: float = Field(description="what each bubble loses to switching")


class PlanBubbles(Record):
    """Time in which devices wait for one another, as shares of an iteration, the mean over stages."""

    share: float = Field(description="fill_drain_share + forward_backward_share + scattered_share")
    fill_drain_share: float = Field(description="while the pipeline fills and drains")
    forward_backward_share: float = Field(description="between forward and backward passes")
    scattered_share: float = Field(description="between other passes")
    stages: list[StageBubbles]
    fill: PlanFill | None = Field(default=None, description="where bubbles are filled")


class PlanColocation(Record):
    """Another job on the one device of a plan: each one's seconds over those alone, in the long run.

    `together`: kernels lie on the device side by side and contend for what both ask for; `by_cores`: one waits where
    the other keeps its cores busy.
    """

    workload: str
    batch: int = Field(description="samples of a pass of the other job")
    memory_bytes: float = Field(description="of both")
    pass_alone_s: float = Field(description="kernels of a pass of the other job without the plan")
    plan_slowdown_together: float = Field(description="of the plan's kernels")
    other_slowdown_together: float = Field(description="of the other job's")
    devices_worth_together: float = Field(description="devices that would do as much, one job each; turns: 1")
    plan_slowdown_by_cores: float = Field(description="of the plan's kernels")
    other_slowdown_by_cores: float = Field(description="of the other job's")
    devices_worth_by_cores: float = Field(description="devices that would do as much, one job each; turns: 1")
    contended: str | None = Field(
        description="what slows both down for most of the time, side by side; none: nothing does"
    )


class PlanResult(Record):
    """A plan and what it comes to."""

    strategy: StrategyRecord
    iteration_time_s: float
    throughput_samples_per_s: float
    throughput_tokens_per_s: float | None
    mfu: float = Field(
        description="model FLOPs over (iteration time x all devices x peak), with a recipe its format's peak"
    )
    devices_used: int
    energy_per_iteration_j: float = Field(description="all devices")
    memory_bytes: float = Field(description="largest peak on one device")
    host_memory_bytes: float = Field(
        default=0.0, description="largest need of one device in the memory of its host"
    )
    host_link_bytes: float = Field(
        default=0.0, description="exchanged with its host in an iteration, both ways, by the device with most"
    )
    memory: PlanMemory
    breakdown: PlanBreakdown
    kinds: list[PlanKind] = Field(default_factory=list, description="computation by kind of operator")
    goodput: PlanGoodput | None = Field(default=None, description="where failures are told")
    convergence: PlanConvergence | None = Field(default=None, description="where a noise scale is told")
    bubbles: PlanBubbles | None = Field(default=None, description="where bubbles are asked for")
    colocation: PlanColocation | None = Field(default=None, description="where another job shares the device")

    @property
    def best_by(self) -> float | None:
        """Goodput that plans are ordered by, in samples/s; None: by their iterations."""
        if self.convergence is not None:
            return self.convergence.goodput_samples_per_s
        return self.goodput.goodput_samples_per_s if self.goodput else None


class PlanCertificate(Record):
    """No plan of the space that fits is faster: every one was evaluated, bounded away or does not fit."""

    optimal: bool
    space_size: int = Field(description="plans = out_of_memory + pruned + evaluated")
    out_of_memory: int
    pruned: int
    evaluated: int
    scope: list[str]


class PlanDocument(Record):
    """The best plan, the next ones, and the proof."""

    schema_: str = Field(default=PLAN_SCHEMA, alias="schema")
    request: dict[str, Any]
    best: PlanResult
    next_best: list[PlanResult]
    certificate: PlanCertificate
    manifest: Manifest


WHATIF_SCHEMA = DocumentName.WHATIF.version(3)


class WhatIfPoint(Record):
    """The best plan for one value, or why there is none."""

    value: str
    plan: PlanDocument | None
    reason: str | None = Field(default=None, description="why no plan fits")


class WhatIfDocument(Record):
    """The best plans for all values of one thing, everything else as asked."""

    schema_: str = Field(default=WHATIF_SCHEMA, alias="schema")
    varied: str
    points: list[WhatIfPoint]
    manifest: Manifest | None = Field(default=None, description="none in dse-whatif/1")


def vary(name: str, values: Iterable[str], planned: Callable[[str], PlanDocument]) -> WhatIfDocument:
    """`planned` gives the best plan for a value; where none fits, the point says why. Other errors pass through."""
    started = datetime.now(UTC)
    points = [_point(value, planned) for value in values]
    wall_time_s = (datetime.now(UTC) - started).total_seconds()
    return WhatIfDocument(varied=name, points=points, manifest=manifest(started, wall_time_s, seed=0))


def _point(value: str, planned: Callable[[str], PlanDocument]) -> WhatIfPoint:
    found: dict[str, Any] = {}
    try:
        found["plan"] = planned(value)
    except InfeasibleError as error:
        found = {"plan": None, "reason": str(error)}
    return WhatIfPoint(value=value, **found)
