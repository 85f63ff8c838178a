"""Roles of operators in tensor parallelism, as front ends give them.

What becomes of an operator with a role is in `tensor_parallelism.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from math import ceil, exp, log1p
from types import MappingProxyType

from phaze.tolerances import LAST_DIGITS
from phaze.workload.operators.operator_graph import Operator, OpKind


class Shard(StrEnum):
    """Role of an operator in tensor parallelism."""

    NONE = "none"  # replicated
    COLUMN = "column"  # divided result
    ROW = "row"  # divided contraction, summed result
    HEADS = "heads"  # divided by attention heads
    VOCAB = "vocab"  # divided vocabulary: gather, logits, loss


def shard_of(op: Operator) -> Shard:
    """Sharding role of an operator."""
    return Shard(str(op.attributes.get("shard", Shard.NONE)))


def divides_output(op: Operator) -> bool:
    """Whether the operator's outputs are divided over the group."""
    role = shard_of(op)
    if role is Shard.VOCAB or op.kind is OpKind.DISPATCH:
        return op.kind is OpKind.MATMUL
    return role in (Shard.COLUMN, Shard.HEADS)


def sums_output(op: Operator) -> bool:
    """Whether each device has a partial sum of the output, to be added up at once.

    Inside a mixture of experts the sums wait for the COMBINE, whose result is smaller.
    """
    role = shard_of(op)
    return (role is Shard.ROW and not in_expert(op)) or (role is Shard.VOCAB and not divides_output(op))


def needs_whole_inputs(op: Operator) -> bool:
    """Whether undivided inputs enter a divided region here, so that their gradients need a sum."""
    if shard_of(op) is Shard.NONE or in_expert(op):
        return False
    return divides_output(op) or op.kind in (OpKind.DISPATCH, OpKind.COMBINE)


def in_expert(op: Operator) -> bool:
    """Whether the operator stands between a DISPATCH and its COMBINE."""
    return "experts" in op.attributes


def experts_reached(experts: int, chosen: int, tokens: int) -> int:
    """Experts that some tokens are sent to, whose weights are read: n (1 - (1 - k / n)^t), rounded up.

    Of n experts each token chooses k, all choices as likely.
    """
    missed = 0.0 if chosen >= experts else exp(tokens * log1p(-chosen / experts))
    return min(experts, ceil(experts * (1 - missed) * (1 - LAST_DIGITS)))


def among_experts(op: Operator) -> bool:
    """Whether the operator stands between a DISPATCH and its COMBINE, or is one of them."""
    return in_expert(op) or op.kind in (OpKind.DISPATCH, OpKind.COMBINE)


def undivided(op: Operator) -> Operator:
    """The operator without a role in tensor parallelism."""
    return replace(op, attributes=MappingProxyType({**op.attributes, "shard": Shard.NONE}))


def local_size(parts: Iterable[tuple[int, int]], width: int) -> int:
    """Elements of a divided axis on one device: each part's units split, rounded up."""
    return sum(-(-units // width) * size for units, size in parts)
