"""The plan document: what `dse plan` and `dse evaluate` of a fixed plan print with `--json`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from phaze.explore.document import Manifest
from phaze.explore.record import Record

PLAN_SCHEMA = "dse-plan/3"


class StrategyRecord(Record):
    """How the model is spread and run."""

    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    expert_parallel: int
    sequence_parallel: bool = Field(description="tokens divided between the divided products (Megatron-LM)")
    whole_layers: list[str] = Field(
        default_factory=list,
        description="layers that every device of a tensor group keeps whole: embedding, attention, mlp, head",
    )
    microbatch_size: int
    microbatches: int = Field(description="of each pipeline")
    schedule: str
    chunks: int = Field(description="parts of the model on each device (interleaving)")
    recompute: str = Field(description="none, selective or full")
    recomputed_blocks: list[int] | None = Field(
        default=None,
        description="full recompute: blocks of each part, in model order, that recompute; none: all",
    )
    zero_stage: int = Field(
        description="what data-parallel ranks divide: 1 optimizer, 2 gradients, 3 weights"
    )
    shard_group: int | None = Field(
        default=None, description="ranks that ZeRO divides over; none: all replicas"
    )
    order: str = Field(description="groups from neighbours to strangers")
    blocks: list[int] | None = Field(default=None, description="blocks of each part; none: as even as can be")
    offload: list[str] = Field(
        default_factory=list, description="what lies in the host's memory: weights, activations, optimizer"
    )


class PlanBreakdown(Record):
    """Seconds of one iteration on the device with most to do; all but `hidden_s` sum to the iteration."""

    product_s: float = Field(description="matrix products, convolutions, attention")
    vector_s: float = Field(description="everything else that is computed")
    recompute_s: float = Field(description="forward passes run again")
    tensor_s: float = Field(description="exposed collectives of tensor-parallel groups")
    context_s: float = Field(description="exposed exchanges of context-parallel groups")
    expert_s: float = Field(description="exposed exchanges of expert-parallel groups")
    transfer_s: float = Field(description="exposed transfers between stages")
    gather_s: float = Field(description="exposed gathers of divided weights")
    reduction_s: float = Field(description="exposed reduction of gradients")
    offload_s: float = Field(default=0.0, description="exposed transfers with the host's memory")
    bubble_s: float = Field(description="waiting for other stages")
    optimizer_s: float
    host_s: float = Field(description="waiting for the host")
    hidden_s: float = Field(description="exchanges beside computation, no part of the sum")


class PlanKind(Record):
    """One kind of operator, forward and backward, on the device with most to do; together products and vectors."""

    kind: str = Field(description="what the operators compute: matmul, attention, norm, ...")
    time_s: float = Field(description="of all of them in one iteration")
    stall_s: float = Field(description="of it, arithmetic waiting for device memory")


class PlanMemory(Record):
    """Bytes on the device that needs most."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    buffers_bytes: float
    reserved_bytes: float
    total_bytes: float
    host_bytes: float = Field(default=0.0, description="in the memory of its host, no part of the total")


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
