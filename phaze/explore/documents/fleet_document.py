"""The fleet document, which `dse plan pools` prints with `--json`: the best plan on pools of unlike devices."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.document_names import DocumentName
from phaze.explore.documents.document_record import Record
from phaze.explore.documents.plan_document import PlanResult
from phaze.explore.documents.plan_record import PlanBreakdown
from phaze.explore.documents.result_document import Manifest

FLEET_SCHEMA = DocumentName.FLEET.version(1)


class FleetStage(Record):
    """One stage of a pipeline across pools, in the order of the model."""

    pool: str = Field(description="name of its pool")
    chip: str = Field(description="name of its chip")
    zone: str = Field(description="where the pool is")
    devices: int = Field(description="of the pool, all replicas together")
    tensor_parallel: int
    blocks: int = Field(description="of the model in this stage")
    recomputed_blocks: int = Field(description="of them, in backward")
    load_s: float = Field(description="of one microbatch, forward and backward")
    memory_bytes: float


class FleetPipeline(Record):
    """Replicas of a pipeline whose stages lie on several pools."""

    data_parallel: int
    microbatch_size: int
    microbatches: int = Field(description="of each pipeline")
    zero_stage: int = Field(
        description="what data-parallel ranks divide: 1 optimizer, 2 gradients, 3 weights"
    )
    stages: list[FleetStage]
    breakdown: PlanBreakdown
    links_s: float = Field(description="in which the busiest path between zones has sent everything, one way")


class FleetPlan(Record):
    """A plan in a fleet: an ordinary one on one pool, or a pipeline across pools."""

    pools: dict[str, int] = Field(description="devices in use, by pool")
    iteration_time_s: float
    throughput_samples_per_s: float
    throughput_tokens_per_s: float | None
    mfu: float = Field(description="model FLOPs over (iteration time x peak of all devices of the fleet)")
    cost_per_iteration_usd: float | None = Field(description="devices in use and egress; none without prices")
    cost_per_sample_usd: float | None
    egress_usd: float = Field(description="of the iteration, for what leaves a zone")
    energy_at_tdp_per_sample_j: float = Field(description="devices in use at their worst-case power")
    plan: PlanResult | None = Field(default=None, description="of one pool")
    pipeline: FleetPipeline | None = Field(default=None, description="across pools")


class FleetCertificate(Record):
    """How far any plan of the space could be better."""

    optimal: bool
    objective: str
    value: float = Field(description="what is minimised: seconds, USD or joules of an iteration")
    lower_bound: float = Field(description="value that no plan of the space is better than")
    gap: float = Field(description="(value - lower_bound) / lower_bound")
    programs_solved: int = Field(description="dynamic programs over blocks and devices left")
    pipelines_worked_out: int = Field(description="across pools, simulated")
    scope: list[str]


class FleetDocument(Record):
    """The best plan, the best on each pool alone and across them, and the bound."""

    schema_: str = Field(default=FLEET_SCHEMA, alias="schema")
    request: dict[str, Any]
    best: FleetPlan
    others: list[FleetPlan]
    unfit: dict[str, str] = Field(description="why a pool alone has no plan, by pool")
    certificate: FleetCertificate
    manifest: Manifest
