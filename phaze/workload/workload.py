"""A workload: a model with its numerics and batch, able to turn itself into a chain of layers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from phaze.workload.work import LayerChain


class Mode(StrEnum):
    """What is run: a training step, or one forward pass."""

    TRAINING = "training"
    PREFILL = "prefill"


class Attention(StrEnum):
    """Flash keeps no score tensor; unfused writes scores, softmax and its dropout out."""

    FLASH = "flash"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True)
class Numerics:
    """Bytes and vector work per parameter, by precision and optimizer (definitions: training numerics).

    `state_bytes`: device memory per parameter (18 = 2 weight + 4 gradient + 4 master + 4 + 4 moments for
    mixed-precision Adam; 2 forward only). `gradient_bytes`: what data-parallel ranks reduce.
    `optimizer_traffic_bytes`, `optimizer_vector_cycles`: HBM bytes moved and fp32-ALU cycles of one step.
    """

    state_bytes: float
    gradient_bytes: float
    optimizer_traffic_bytes: float
    optimizer_vector_cycles: float


class Workload(Protocol):
    """What the explorer needs of a model, whichever front end it came from."""

    @property
    def name(self) -> str:
        """Short name, as in results."""

    @property
    def mode(self) -> Mode:
        """Training or prefill."""

    @property
    def sequence_length(self) -> int | None:
        """Tokens of one sample; None where samples are no sequences, or nobody said."""

    def global_batch(self, devices: int) -> int:
        """Samples per iteration on that many devices: the workload's own, or 32 per device."""

    @property
    def parameter_count(self) -> int:
        """Parameters of the whole model, tied ones once."""

    @property
    def numerics(self) -> Numerics:
        """Bytes and vector work per parameter."""

    def tensor_parallel_widths(self, limit: int) -> tuple[int, ...]:
        """Admissible tensor-parallel widths up to `limit`, ascending, starting with 1.

        Powers of two that divide the attention heads; where 1 is the only one, every divisor;
        networks without heads: 1.
        """

    @property
    def expert_plan(self) -> tuple[int, int, int] | None:
        """A published hand-made plan for 1024 devices: (pipeline, tensor, data) degrees, if one is known."""

    def chain(self, microbatch: int, tensor_parallel: int) -> LayerChain:
        """The model as a chain of layers at one microbatch size and width (cached)."""
