"""The plan document: what `dse plan` and `dse evaluate` of a fixed plan print with `--json`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.explore.document import Manifest
from phaze.explore.plan_record import PlanBreakdown, PlanKind, PlanMemory, StrategyRecord
from phaze.explore.record import Record

PLAN_SCHEMA = "dse-plan/3"


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
    memory: PlanMemory
    breakdown: PlanBreakdown
    kinds: list[PlanKind] = Field(default_factory=list, description="computation by kind of operator")


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
