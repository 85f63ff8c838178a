"""Training numerics: bytes and vector work per parameter, by optimizer and precision."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from phaze.workload.operators.elementwise_cycles import DIV, ROOT
from phaze.workload.operators.operator_graph import OperatorGraph
from phaze.workload.work import Format
from phaze.workload.workload import Mode, Numerics


class Precision(StrEnum):
    """Format of weights and activations in the compute.

    In 16 bits products run on the tensor cores as they are. On GPUs fp32 ones run at the chip's fp32 rate, as
    frameworks do by default, and in tf32 fp32 tensors are rounded on their way into the tensor cores. Systolic
    arrays take every format at their own rate.
    """

    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of a weight or an activation."""
        return HALF_BYTES if self.operands is None else FP32_BYTES

    @property
    def operands(self) -> Format | None:
        """Format in which products take them; None: the tensor cores' own."""
        return {Precision.FP32: Format.FP32, Precision.TF32: Format.TF32}.get(self)


class Optimizer(StrEnum):
    """Update rule; below fp32 with an fp32 master copy of the weights."""

    ADAM = "adam"
    MOMENTUM = "momentum"
    SGD = "sgd"


HALF_BYTES = 2  # front ends build their graphs in 16 bits
FP32_BYTES = 4  # gradients, moments and master copies
_MOMENTS = {Optimizer.ADAM: 2, Optimizer.MOMENTUM: 1, Optimizer.SGD: 0}

# Adam's cycles: first moment 2 (scale, multiply-add), second 3 (square, scale, multiply-add), two bias
# corrections, square root, epsilon, division, step, weight decay (Loshchilov and Hutter, arXiv 1711.05101,
# algorithm 2; base costs in elementwise_cycles.py).
_CYCLES = {
    Optimizer.ADAM: 2 + 3 + 2 + ROOT + 1 + DIV + 1 + 1,
    Optimizer.MOMENTUM: 1 + 1,
    Optimizer.SGD: 1,
}
_ROUNDING_CYCLES = 1  # from the master copy to the weight


def numerics(optimizer: Optimizer, mode: Mode, precision: Precision = Precision.BF16) -> Numerics:
    """Bytes and cycles per parameter; a forward-only workload keeps nothing but its weights.

    State: weight, gradient, moments, and in mixed precision a master copy (definitions: training numerics;
    ZeRO, arXiv 1910.02054, section 3.1: 2 + 4 + 8 + 4 for Adam). A step reads gradient, moments and master
    copy (or weight), and writes moments, master copy and weight.
    """
    weight = precision.element_bytes
    if mode is not Mode.TRAINING:
        return Numerics(weight, 0, 0, 0, weight)
    mixed = precision.operands is None
    updated = FP32_BYTES * (_MOMENTS[optimizer] + 1)  # moments, and the copy in fp32
    return Numerics(
        state_bytes=FP32_BYTES + updated + (weight if mixed else 0),
        gradient_bytes=FP32_BYTES,
        optimizer_traffic_bytes=FP32_BYTES + 2 * updated + (weight if mixed else 0),
        optimizer_vector_cycles=_CYCLES[optimizer] + (_ROUNDING_CYCLES if mixed else 0),
        weight_bytes=weight,
    )


def in_precision(graph: OperatorGraph, precision: Precision) -> OperatorGraph:
    """The graph with weights and activations of that size; ids, masks and statistics keep theirs."""
    if precision.element_bytes == HALF_BYTES:
        return graph
    tensors = {
        name: replace(t, element_bytes=precision.element_bytes) if t.element_bytes == HALF_BYTES else t
        for name, t in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)
