"""Frameworks: what the software that runs a plan adds to the work of the chips, as data with sources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.parallel.parallel_plan import Offload
from phaze.parallel.plan_choices import Choices
from phaze.ranges import Bytes, BytesOfNumber, Factor, Line, Members, Portion, Seconds, Share, Stretch
from phaze.workload.fusion_rules import Fusion
from phaze.workload.workload import Attention, Mode, Numerics, Workload
from phaze.yaml_file import checked, read_yaml

USABLE = 0.96
"""Share of a device's memory that plans may fill.

PyTorch tells 79.15 GiB of an H100 of 80, 39.50 of an A100 of 40, 31.74 of a V100 of 32 as the total capacity (its
messages when memory runs out; 0.99), of which the context of a process takes 0.5 GiB (such messages: memory in use less
what PyTorch has allocated and reserved). XLA tells 30.75 GiB of a TPU v4 of 32 (0.96). Buffers of NCCL, about 1.5 GiB
for a handful of communicators, are estimated, not measured: 80 - 0.85 - 0.5 - 1.5 is 0.96 of 80.
"""


class TensorOverlap(StrEnum):
    """Overlap of tensor-parallel collectives inside layers: the computation that hides them."""

    NONE = "none"
    WEIGHT_GRADIENT = "weight-gradient"  # those of backward, by the other gradient product of the same weight
    CHUNKED = "chunked"  # all next to a product, cut into as many chunks as the group has members
    EITHER = "either"  # of each, by whichever of both hides more


_TRAINED = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "gathered_bytes", "reduced_bytes")
"""Bytes that software in training has in its own way."""


@dataclass(frozen=True, slots=True)
class ParameterBytes:
    """Bytes per parameter: kept as weight, gradient and optimizer state; on the wire of a weight and a gradient."""

    weight: float
    gradient: float
    optimizer: float
    gathered: float
    reduced: float


class FittedConstants(BaseModel):
    """Constants of a framework that were fitted to the runs of one comparison of `dse validate`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    to: Annotated[Line, Field(description="data set and metric, with a blank between them")]
    constants: Annotated[tuple[Line, ...], Field(description="fields that were fitted on it")]


class Framework(BaseModel):
    """Training framework of one generation: its overheads and overlaps; the defaults cost nothing and hide nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    name: Line
    source: str
    fitted: Annotated[
        tuple[FittedConstants, ...],
        Field(
            description="which of its constants were fitted, and to what; the others are counted or published"
        ),
    ] = ()

    # -- the host
    dispatch_s: Annotated[
        Seconds,
        Field(
            description="host time to launch a kernel of forward; a pass is never faster than its launches, s"
        ),
    ] = 0.0
    dispatch_backward_s: Annotated[Seconds, Field(description="the same of backward, s")] = 0.0
    exchange_launches: Annotated[
        Factor,
        Field(
            description="launches that a tensor-parallel exchange takes for every rank of its group, "
            "in a job of more than one server"
        ),
    ] = 0.0
    microbatch_s: Annotated[Seconds, Field(description="host time of each microbatch on a stage, s")] = 0.0
    iteration_s: Annotated[Seconds, Field(description="host time of an iteration, s")] = 0.0
    waits: Annotated[
        bool,
        Field(
            description="the host waits for the device at every exchange between stages, and launches nothing ahead"
        ),
    ] = False
    blocking: Annotated[
        bool,
        Field(
            description="a kernel is launched after the one before has ended, and launches are time the device idles"
        ),
    ] = False
    # -- kernels
    stretch: Annotated[Stretch, Field(description="kernels in training over the same alone")] = 1.0
    attention_stretch: Annotated[Stretch, Field(description="those of flash attention, beyond that")] = 1.0
    vector_stretch: Annotated[
        Stretch,
        Field(
            description="those of vector operators, which eager frameworks run as several kernels, beyond that"
        ),
    ] = 1.0
    interference: Annotated[
        Share,
        Field(description="share of the shorter of computation and a collective beside it that is lost"),
    ] = 0.0
    score_passes: Annotated[
        Factor,
        Field(
            description="readings of the scores of the vocabulary in every microbatch beside the loss's own"
        ),
    ] = 0.0
    optimizer_stretch: Annotated[
        Factor,
        Field(
            description="optimizer step over its memory traffic, with gradient norms and casts; 0: none steps"
        ),
    ] = 1.0
    prunes_recompute: Annotated[
        bool,
        Field(
            description="a compiler leaves out what backward does not read of a forward pass that runs again"
        ),
    ] = False
    stops_early: Annotated[
        bool,
        Field(
            description="full recompute ends with the last tensor that backward reads, and gathers for both"
        ),
    ] = False
    keeps_products: Annotated[
        bool,
        Field(
            description="selective recompute keeps attention and every second product, and runs all else again"
        ),
    ] = False
    keeps_gathered: Annotated[
        bool,
        Field(
            description="operands that a tensor-parallel group gathers are kept whole, not gathered again in backward"
        ),
    ] = False
    keeps_gates: Annotated[
        bool, Field(description="gated units of several kernels keep the activated gate for backward, too")
    ] = False
    trains_adapters: Annotated[
        bool,
        Field(description="weights are frozen but for adapters of low rank beside the products of attention"),
    ] = False
    expert_passes: Annotated[
        Factor, Field(description="how often rows go through memory once more around each product of experts")
    ] = 0.0
    expert_room: Annotated[
        Stretch,
        Field(description="rows that each expert computes, over its balanced share (capacity factor)"),
    ] = 1.0
    # -- exchanges
    tensor_overlap: Annotated[
        TensorOverlap,
        Field(description="what hides collectives inside layers: none, weight-gradient, chunked or either"),
    ] = TensorOverlap.NONE
    hides_context: Annotated[
        Share, Field(description="share of context exchanges that runs beside computation")
    ] = 0.0
    hides_experts: Annotated[
        Share, Field(description="share of expert exchanges that runs beside computation")
    ] = 0.0
    merges_copies: Annotated[
        bool, Field(description="a token goes once to a device or domain with several of its experts")
    ] = False
    hides_transfers: Annotated[bool, Field(description="exchanges between stages run beside computation")] = (
        False
    )
    scatters_transfers: Annotated[
        bool, Field(description="members of a tensor group send a share each and gather the rest inside")
    ] = True
    hides_reduction: Annotated[
        bool, Field(description="gradients are reduced during the last backward pass")
    ] = False
    reduced_bytes: Annotated[
        BytesOfNumber | None, Field(description="bytes of one gradient on the wire; none: as stored")
    ] = None
    reduces_every_microbatch: Annotated[
        bool, Field(description="ZeRO 2 and 3 reduce gradients after every microbatch, not after the last")
    ] = True
    hides_gathers: Annotated[
        bool, Field(description="weights that ZeRO divides are gathered one group of layers ahead")
    ] = False
    gathered_bytes: Annotated[
        BytesOfNumber | None,
        Field(description="bytes of one weight on the wire, no fewer than products read; none: as in memory"),
    ] = None
    gathers: Annotated[
        Members, Field(description="exchanges in which ZeRO 3 gathers the weights of a group of layers")
    ] = 1
    gather_rank_s: Annotated[
        Seconds,
        Field(description="host time of each of them for every rank, whose part is copied out alone, s"),
    ] = 0.0
    hides_offload: Annotated[bool, Field(description="transfers with the host run beside computation")] = (
        False
    )
    offloads: Annotated[
        tuple[frozenset[Offload], ...] | None,
        Field(description="what it can leave to the host, each way one list; none: anything"),
    ] = None
    plans: Annotated[
        Choices, Field(description="what its plans may choose, each kind one list; none: anything")
    ] = Choices()
    # -- memory
    weight_bytes: Annotated[
        BytesOfNumber | None, Field(description="kept per parameter; none: by the workload's numerics")
    ] = None
    gradient_bytes: Annotated[BytesOfNumber | None, Field(description="the same of gradients")] = None
    optimizer_bytes: Annotated[BytesOfNumber | None, Field(description="the same of optimizer state")] = None
    reserved_bytes: Annotated[Bytes, Field(description="bytes of device memory taken by libraries")] = 0.0
    usable_memory: Annotated[
        Portion,
        Field(
            description="share of a device's memory that plans may fill: the driver, the context of a process and "
            "buffers of communication have the rest",
        ),
    ] = USABLE
    fragmentation: Annotated[Factor, Field(description="share of activations lost by the allocator")] = 0.0
    score_copies: Annotated[
        Factor,
        Field(
            description="16-bit copies of the scores of the vocabulary that a loss of several kernels keeps"
        ),
    ] = 0.0
    # -- how the workload is built
    fusion: Annotated[frozenset[Fusion], Field(description="rules of fusion that are on")] = frozenset(Fusion)
    attention: Annotated[Attention, Field(description="flash or unfused")] = Attention.FLASH

    @property
    def launches_add_up(self) -> bool:
        """Whether what the host makes a device wait is the same however long its kernels and exchanges take."""
        return self.blocking or not (self.dispatch_s or self.dispatch_backward_s or self.microbatch_s)

    def usable_bytes(self, capacity_bytes: float) -> float:
        """Bytes of a device's memory that plans may fill; `reserved_bytes` are among what they fill."""
        return self.usable_memory * capacity_bytes

    def parameter_bytes(self, numerics: Numerics) -> ParameterBytes:
        """Bytes per parameter: those of the workload's numerics, where the framework does not say otherwise."""
        n = numerics
        rest = n.state_bytes - n.weight_bytes - n.gradient_bytes
        known = (n.weight_bytes, n.gradient_bytes, rest, n.weight_bytes, n.gradient_bytes)
        own = (getattr(self, name) for name in _TRAINED)
        return ParameterBytes(*(k if o is None else o for o, k in zip(own, known, strict=True)))

    def running(self, workload: Workload) -> Framework:
        """Framework as it runs a workload.

        Weights go over the wire in no fewer bits than products read: in 8 with a recipe alone. In inference it keeps
        nothing but them.
        """
        if workload.mode is not Mode.TRAINING:
            return self.model_copy(update=dict.fromkeys(_TRAINED) | {"score_copies": 0.0})
        read = workload.numerics.weight_bytes
        if self.gathered_bytes is None or self.gathered_bytes >= read or workload.recipe is not None:
            return self
        return self.model_copy(update={"gathered_bytes": read})

    def in_one_server(self) -> Framework:
        """Framework as it runs a job inside one server, where no exchange goes through an adapter."""
        return self.model_copy(update={"exchange_launches": 0.0}) if self.exchange_launches else self

    def can_offload(self, what: frozenset[Offload]) -> bool:
        """Whether it can leave these together, and nothing else, to the host."""
        return not what or self.offloads is None or what in self.offloads


def list_frameworks() -> tuple[str, ...]:
    """Names of the packaged frameworks."""
    return tuple(packaged(Catalogue.FRAMEWORK))


def load_framework(name_or_path: str | Path = "ideal") -> Framework:
    """A framework by packaged name or file. Raises InputError."""
    path = find(Catalogue.FRAMEWORK, name_or_path)
    return checked(Framework, read_yaml(path), str(path))
