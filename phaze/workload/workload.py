"""A workload: a model with its numerics and batch, able to turn itself into a chain of layers."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from phaze.workload.fusion_rules import Fusion
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Format, LayerChain, LayerGraph


class Mode(StrEnum):
    """Mode of a run: a training step, one forward pass over whole sequences, or one token more of each sequence."""

    TRAINING = "training"
    PREFILL = "prefill"
    DECODE = "decode"


class Attention(StrEnum):
    """Flash keeps no score tensor; unfused writes scores, softmax and its dropout out.

    Eager does as well, by the kernels of a framework that launches operators one by one: heads are copied, scores
    scaled and then masked; gradients of softmax, dropout and norms take several kernels.
    """

    FLASH = "flash"
    UNFUSED = "unfused"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Numerics:
    """Bytes and vector work per parameter, by precision and optimizer (definitions: training numerics).

    `state_bytes`: device memory per parameter (18 = 2 weight + 4 gradient + 4 master + 4 + 4 moments for
    mixed-precision Adam; 2 forward only). `gradient_bytes`: what data-parallel ranks reduce.
    `optimizer_traffic_bytes`, `optimizer_vector_cycles`: HBM bytes moved and fp32-ALU cycles of one step.
    `weight_bytes`: the weight that products read; with the gradient it is a part of the state.
    """

    state_bytes: float
    gradient_bytes: float
    optimizer_traffic_bytes: float
    optimizer_vector_cycles: float
    weight_bytes: float = 2.0


class Workload(Protocol):
    """Workload of the explorer, whichever front end its model came from."""

    @property
    def name(self) -> str:
        """Short name, as in results."""

    @property
    def mode(self) -> Mode:
        """Training, prefill or decode."""

    @property
    def sequence_length(self) -> int | None:
        """Tokens of one sample (decode: 1); None where samples are no sequences, or nobody said."""

    @property
    def context(self) -> int:
        """Tokens of each sequence that are in the key-value cache before the pass."""

    @property
    def fusion(self) -> Set[Fusion]:
        """Rules of fusion that are on."""

    def global_batch(self, devices: int) -> int:
        """Samples per iteration on that many devices: the workload's own, or a default, in training by tokens."""

    @property
    def parameter_count(self) -> int:
        """Parameters of the whole model, tied ones once."""

    @property
    def numerics(self) -> Numerics:
        """Bytes and vector work per parameter."""

    @property
    def noise_scale(self) -> float | None:
        """Published gradient noise scale of a whole training, in samples, if one is known."""

    def tensor_parallel_widths(self, limit: int) -> tuple[int, ...]:
        """Admissible tensor-parallel widths up to `limit`, ascending, starting with 1.

        Powers of two that divide the attention heads; where 1 is the only one, every divisor;
        networks without heads: 1.
        """

    def tensor_parallel_divisors(self, limit: int) -> tuple[int, ...]:
        """Widths of plans, ascending: divisors of the heads, and of those of keys and values or multiples of them."""

    @property
    def expert_count(self) -> int:
        """Experts of a layer that has some; 0 without experts."""

    def expert_parallel_divisors(self, limit: int) -> tuple[int, ...]:
        """Numbers of groups that experts are dealt among, ascending: divisors of the experts of every layer."""

    @property
    def operands(self) -> Format | None:
        """Format in which products take their operands; None: the tensor cores' own."""

    def in_recipe(self, recipe: Recipe) -> Workload:
        """The same model with its linear layers in few bits."""

    @property
    def recipe(self) -> Recipe | None:
        """Recipe by which linear layers run in few bits, if they do."""

    @property
    def expert_plan(self) -> tuple[int, int, int] | None:
        """A published hand-made plan for 1024 devices: (pipeline, tensor, data) degrees, if one is known."""

    def chain(
        self,
        microbatch: int,
        sharding: int | Sharding,
        *,
        selective: bool = False,
        keeps_products: bool = False,
    ) -> LayerChain:
        """The model as a chain of layers at one microbatch size (cached); a number is a tensor-parallel width.

        `selective`: attention keeps nothing between its inputs and its result, and runs again in backward.
        `keeps_products`: then all runs again but attention and every second product.
        """

    def layer_graph(
        self,
        microbatch: int,
        sharding: int | Sharding,
        *,
        selective: bool = False,
        keeps_products: bool = False,
    ) -> LayerGraph:
        """The model as a graph of layers, branches in one piece each; options are those of `chain`."""

    def operator_graph(self, microbatch: int) -> OperatorGraph:
        """The whole forward graph as run: with its loss in training, without dropout in inference."""
