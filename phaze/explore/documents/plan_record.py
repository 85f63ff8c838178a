"""A plan of training as documents tell it: its choices, where its time goes, what its memory holds."""

from __future__ import annotations

from pydantic import Field

from phaze.explore.documents.document_record import Record


class LayerRunRecord(Record):
    """Blocks that follow one another: what of each of them runs again, and whether replicas divide its weights."""

    blocks: int = Field(description="how many, one after the other in the model")
    again: str = Field(
        description="none, block (all of it as one), each-layer (every layer of it on its own), or the one layer of it "
        "that does, by name: mlp of block7.mlp"
    )
    sharded: bool = Field(
        default=False,
        description="whether replicas divide the weights of these blocks (ZeRO 3), those of others being whole",
    )


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
    layers: list[LayerRunRecord] | None = Field(
        default=None,
        description="full recompute that differs by block: what of each runs again, all blocks in model order; "
        "none: all of those that recompute",
    )
    zero_stage: int = Field(
        description="what data-parallel ranks divide: 1 optimizer, 2 gradients, 3 weights"
    )
    shard_group: int | None = Field(
        default=None, description="ranks that ZeRO divides over; none: all replicas"
    )
    order: str = Field(description="groups from neighbours to strangers")
    blocks: list[int] | None = Field(default=None, description="blocks of each part; none: as even as can be")
    feeds: list[list[int]] | None = Field(
        default=None,
        description="branches side by side: the stages, from 1, that each stage feeds; none: the next one alone",
    )
    layer_order: list[int] | None = Field(
        default=None,
        description="branches side by side: layers, from 0, in the order in which stages take them, so that a stage "
        "may hold parts of several branches; none: that of the model",
    )
    grain: str = Field(
        default="block",
        description="what counts as one of the blocks that are cut and recomputed: block, or layer (half a block)",
    )
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
    stall_s: float = Field(
        description="of it, arithmetic waiting for HBM, or what else the memory beside the die is"
    )
    global_buffer_s: float | None = Field(
        default=None,
        description="of it, arithmetic waiting for the global buffer (on GPUs inside the laws of kernels: 0); none in "
        "older documents",
    )


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
