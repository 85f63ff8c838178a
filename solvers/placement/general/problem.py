"""The general placement problem: a graph of layers, several device types, options per stage, a pipeline schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Schedule(StrEnum):
    """In which order a stage runs forward and backward passes of the microbatches."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved-1f1b"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"

    @property
    def zero_bubble(self) -> bool:
        """Weight gradients are computed late, to fill the bubble."""
        return self in {Schedule.ZB_H1, Schedule.ZB_H2}


class Recompute(StrEnum):
    """What a stage keeps of a microbatch until its backward pass: all activations, or its inputs alone."""

    NONE = "none"
    FULL = "full"


class Transfers(StrEnum):
    """What a tensor between stages costs: nothing; its receiver, behind earlier work; both ends, always."""

    HIDDEN = "hidden"
    OVERLAPPED = "overlapped"
    EXPOSED = "exposed"


class Reduced(StrEnum):
    """Whose gradient reduction counts: that of the stages nothing feeds, or that of every stage."""

    FIRST = "first"
    EVERY = "every"


@dataclass(frozen=True)
class DeviceType:
    """Devices of one kind."""

    name: str
    count: int
    memory_bytes: float


@dataclass(frozen=True)
class Model:
    """The layers on one device type at one tensor-parallel width, per device and microbatch.

    Layers are in topological order; `boundary_bytes` are in the order of the problem's edges.
    """

    device_type: int
    tensor_parallel: int
    forward_s: tuple[float, ...]
    input_gradient_s: tuple[float, ...]
    weight_gradient_s: tuple[float, ...]
    parameter_bytes: tuple[float, ...]
    activation_bytes: tuple[float, ...]
    is_tensor_parallel: tuple[bool, ...]
    boundary_bytes: tuple[float, ...]


@dataclass(frozen=True)
class Conventions:
    """What is counted, and how.

    `reduction_factor`: how often an all-reduce moves its bytes (2 for a ring; PHAZE charges 4).
    `in_flight_capped`: no stage holds more microbatches than there are.
    """

    transfers: Transfers
    reduced: Reduced
    reduction_factor: float
    in_flight_capped: bool


PHAZE = Conventions(Transfers.OVERLAPPED, Reduced.FIRST, 4.0, in_flight_capped=False)


@dataclass(frozen=True)
class GeneralProblem:
    """One instance of `dse-placement/2`.

    Layers are in topological order, among free ones the one listed first; edges are (source, target)
    positions. `optimizer_state_ratio`: bytes of optimizer states per byte of parameters. `virtual_stages`:
    stages per group of devices, 1 unless interleaved. `recompute`, `zero`: what each stage may choose from.
    """

    microbatches_per_batch: int
    link_bandwidth_bytes_per_s: float
    optimizer_state_ratio: float
    schedule: Schedule
    virtual_stages: int
    recompute: tuple[Recompute, ...]
    zero: tuple[int, ...]
    uniform_width: bool
    conventions: Conventions
    device_types: tuple[DeviceType, ...]
    layer_ids: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    models: tuple[Model, ...]


def with_phaze_conventions(problem: GeneralProblem) -> GeneralProblem:
    """The same instance as PHAZE counts: one width, first stage reduced, twice a ring, transfers overlapped."""
    return replace(problem, conventions=PHAZE, uniform_width=True)
