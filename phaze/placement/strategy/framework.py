"""Frameworks: what the software that runs a plan adds to the work of the chips, as data with sources."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze.hardware.catalogue import Catalogue, find, packaged
from phaze.placement.strategy.strategy import Offload
from phaze.workload.fusion_rules import Fusion
from phaze.workload.workload import Attention
from phaze.yaml_file import checked, read_yaml


class TensorOverlap(StrEnum):
    """What hides collectives inside layers."""

    NONE = "none"
    WEIGHT_GRADIENT = "weight-gradient"  # those of backward, by the other gradient product of the same weight
    CHUNKED = "chunked"  # all next to a product, cut into as many chunks as the group has members


class Framework(BaseModel):
    """What a training framework of one generation does; the defaults cost nothing and hide nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    source: str

    # -- the host
    dispatch_s: Annotated[
        float,
        Field(
            description="host time to launch a kernel of forward; a pass is never faster than its launches, s"
        ),
    ] = 0.0
    dispatch_backward_s: Annotated[float, Field(description="the same of backward, s")] = 0.0
    microbatch_s: Annotated[float, Field(description="host time of each microbatch on a stage, s")] = 0.0
    iteration_s: Annotated[float, Field(description="host time of an iteration, s")] = 0.0
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
    stretch: Annotated[float, Field(description="kernels in training over the same alone")] = 1.0
    attention_stretch: Annotated[float, Field(description="those of flash attention, beyond that")] = 1.0
    vector_stretch: Annotated[
        float,
        Field(
            description="those of vector operators, which eager frameworks run as several kernels, beyond that"
        ),
    ] = 1.0
    interference: Annotated[
        float,
        Field(description="share of the shorter of computation and a collective beside it that is lost"),
    ] = 0.0
    score_passes: Annotated[
        float,
        Field(
            description="readings of the scores of the vocabulary in every microbatch beside the loss's own"
        ),
    ] = 0.0
    optimizer_stretch: Annotated[
        float, Field(description="optimizer step over its memory traffic, with gradient norms and casts")
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
    expert_passes: Annotated[
        float, Field(description="how often rows go through memory once more around each product of experts")
    ] = 0.0
    expert_room: Annotated[
        float, Field(description="rows that each expert computes, over its balanced share (capacity factor)")
    ] = 1.0
    # -- exchanges
    tensor_overlap: Annotated[
        TensorOverlap,
        Field(description="what hides collectives inside layers: none, weight-gradient or chunked"),
    ] = TensorOverlap.NONE
    hides_context: Annotated[
        float, Field(description="share of context exchanges that runs beside computation")
    ] = 0.0
    hides_experts: Annotated[
        float, Field(description="share of expert exchanges that runs beside computation")
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
        float | None, Field(description="bytes of one gradient on the wire; none: as stored")
    ] = None
    reduces_every_microbatch: Annotated[
        bool, Field(description="ZeRO 2 and 3 reduce gradients after every microbatch, not after the last")
    ] = True
    hides_gathers: Annotated[
        bool, Field(description="weights that ZeRO divides are gathered one group of layers ahead")
    ] = False
    gathered_bytes: Annotated[
        float | None, Field(description="bytes of one weight on the wire; none: as products read it")
    ] = None
    gathers: Annotated[
        int, Field(description="exchanges in which ZeRO 3 gathers the weights of a group of layers")
    ] = 1
    gather_rank_s: Annotated[
        float,
        Field(description="host time of each of them for every rank, whose part is copied out alone, s"),
    ] = 0.0
    hides_offload: Annotated[bool, Field(description="transfers with the host run beside computation")] = (
        False
    )
    offloads: Annotated[
        tuple[frozenset[Offload], ...] | None,
        Field(description="what it can leave to the host, each way one list; none: anything"),
    ] = None
    # -- memory
    weight_bytes: Annotated[
        float | None, Field(description="kept per parameter; none: by the workload's numerics")
    ] = None
    gradient_bytes: Annotated[float | None, Field(description="the same of gradients")] = None
    optimizer_bytes: Annotated[float | None, Field(description="the same of optimizer state")] = None
    reserved_bytes: Annotated[float, Field(description="bytes of device memory taken by libraries")] = 0.0
    fragmentation: Annotated[float, Field(description="share of activations lost by the allocator")] = 0.0
    score_copies: Annotated[
        float,
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
