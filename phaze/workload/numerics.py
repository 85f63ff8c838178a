"""Training numerics: bytes and vector work per parameter, by optimizer."""

from __future__ import annotations

from enum import StrEnum

from phaze.workload.cycles import DIV, ROOT
from phaze.workload.workload import Mode, Numerics


class Precision(StrEnum):
    """Format of weights and activations in the compute; both take two bytes."""

    BF16 = "bf16"
    FP16 = "fp16"


class Optimizer(StrEnum):
    """Update rule, in mixed precision with an fp32 master copy."""

    ADAM = "adam"
    MOMENTUM = "momentum"
    SGD = "sgd"


# State: 2 weight + 4 gradient + 4 master, and 4 per moment (definitions: training numerics; ZeRO,
# arXiv 1910.02054, section 3.1). Traffic: read gradient, master, moments; write master, moments, weight.
# Adam's cycles: first moment 2 (scale, multiply-add), second 3 (square, scale, multiply-add), two bias
# corrections, square root, epsilon, division, step, weight decay, rounding to the weight (Loshchilov and
# Hutter, arXiv 1711.05101, algorithm 2; base costs in cycles.py).
_NUMERICS = {
    Optimizer.ADAM: Numerics(18, 4, 16 + 14, 2 + 3 + 2 + ROOT + 1 + DIV + 1 + 1 + 1),
    Optimizer.MOMENTUM: Numerics(14, 4, 12 + 10, 1 + 1 + 1),
    Optimizer.SGD: Numerics(10, 4, 8 + 6, 1 + 1),
}
_FORWARD_ONLY = Numerics(2, 0, 0, 0)


def numerics(optimizer: Optimizer, mode: Mode) -> Numerics:
    """Bytes and cycles per parameter; a forward-only workload keeps nothing but its weights."""
    return _NUMERICS[optimizer] if mode is Mode.TRAINING else _FORWARD_ONLY
