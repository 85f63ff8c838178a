"""The rules of fusion, each of which can be switched off, and what an application of one saves.

Flash attention is not among them: it is another operator, chosen by `workload.Attention`.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

from phaze.errors import InputError


class Fusion(StrEnum):
    """Operator that may ride on the one that makes its operand. An element-wise step, but for bias gradients."""

    EPILOGUE = "epilogue"  # on a product or convolution: bias, activation, residual sum
    BIAS = "bias"  # the same of a bias alone, which every library's product takes
    BIAS_GRADIENT = "bias-gradient"  # the sum over a gradient on whatever makes that gradient
    NORM_RESIDUAL = "norm-residual"  # on a norm or its gradient: the residual sum that follows
    SOFTMAX = "softmax"  # on a softmax or its gradient: scale (as a factor of its scores), mask, dropout
    ELEMENTWISE = "elementwise"  # on an element-wise step, a gather or the gradient of a loss


ALL_FUSION: Set[Fusion] = frozenset(Fusion)
NO_FUSION: Set[Fusion] = frozenset()
EAGER_FUSION: Set[Fusion] = frozenset({Fusion.BIAS})  # of a framework that launches operators one by one


@dataclass(frozen=True, slots=True)
class Fused:
    """One application of a rule: the names of host and guest, and the HBM bytes that are no longer moved.

    Saved bytes count every operand of a product once; tiling may move some of them more often.
    """

    rule: Fusion
    host: str
    guest: str
    saved_bytes: float


def describe_fusion(rules: Set[Fusion]) -> str:
    """`all`, `none`, or the names of the rules as `parse_fusion` reads them."""
    if rules in (ALL_FUSION, NO_FUSION):
        return "all" if rules else "none"
    return ",".join(rule for rule in Fusion if rule in rules)


def parse_fusion(text: str, where: str) -> Set[Fusion]:
    """Rules from `all`, `none` or their names with commas between. InputError names `where` and the choices."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words in (["all"], ["none"]):
        return ALL_FUSION if words == ["all"] else NO_FUSION
    for word in words or [text]:
        if word not in set(Fusion):
            choices = ", ".join(("all", "none", *Fusion))
            raise InputError(f"{where} {word!r} is not known; choose of {choices}")
    return frozenset(map(Fusion, words))
