"""An iteration under a plan: seconds by cause, bytes by what they hold."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Seconds of one iteration on the device that has most to do; they sum to the iteration, and none is negative.

    `host_s`: what the host makes the device wait; exposed exchanges by what they are for, `offload_s` those with the
    memory of the host; `bubble_s`: waiting for other devices; `hidden_s` is no part of the sum: exchanges beside
    computation.
    """

    product_s: float
    vector_s: float
    recompute_s: float
    tensor_s: float
    context_s: float
    expert_s: float
    transfer_s: float
    gather_s: float
    reduction_s: float
    offload_s: float
    bubble_s: float
    optimizer_s: float
    host_s: float
    hidden_s: float

    @property
    def total_s(self) -> float:
        """The iteration."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name != "hidden_s"))


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Bytes on one device; `host_bytes`: what lies in its host's memory instead, no part of the total."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float
    buffers_bytes: float
    reserved_bytes: float
    host_bytes: float = 0.0

    @property
    def total_bytes(self) -> float:
        """All that lies on the device."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name != "host_bytes"))


@dataclass(frozen=True, slots=True)
class Iteration:
    """One training iteration; `memory` of every device of a pipeline, in stage order.

    `host_link_bytes`: what the device that moves most exchanges with its host, both ways.
    """

    iteration_s: float
    time: TimeBreakdown
    memory: tuple[MemoryBreakdown, ...]
    microbatches: int
    model_flops: float
    host_link_bytes: float = 0.0

    @property
    def memory_bytes(self) -> float:
        """Largest need of one device."""
        return max(part.total_bytes for part in self.memory)

    @property
    def host_bytes(self) -> float:
        """Largest need of one device in the memory of its host."""
        return max(part.host_bytes for part in self.memory)
