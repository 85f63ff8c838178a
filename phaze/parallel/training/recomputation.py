"""Recomputation: operators of a forward pass that run again for the backward pass, under full recompute."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from phaze.arrays import Flags
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import Pass, Unit, Work


def runs_again(pass_: Pass, kept: Set[str], *, ends: bool, prunes: bool) -> Flags:
    """Operators that run again, (O,), where the results of those named in `kept` are not lost.

    Without a compiler that `prunes`, all others. With one, those of them whose result backward reads, or something
    that runs again. Sums and collectives do not need their operands in backward, so that where a layer `ends` what
    is recomputed, the product before its residual sum does not run.
    """
    works = pass_.works
    lost = np.array([not has_name(work, kept) for work in works], dtype=np.bool_)
    if not prunes:
        return lost
    after: list[list[int]] = [[] for _ in works]
    for first, second in pass_.edges:
        after[first].append(second)
    recomputed = np.zeros(len(works), dtype=np.bool_)
    for i in reversed(range(len(works))):
        read = not after[i] and not ends
        for j in after[i]:
            read |= bool(recomputed[j]) or not _passes_on(works[j])
        recomputed[i] = lost[i] and read
    return recomputed


def has_name(work: Work, names: Set[str]) -> bool:
    """Whether an operator, or the first of those fused to it, has one of the names."""
    return work.name.split("+")[0] in names


def _passes_on(work: Work) -> bool:
    """Whether the gradients of an operator that does not run again need none of its operands: collectives and sums.

    No block ends with another element-wise operator than sums and dropout.
    """
    return work.unit is Unit.LINK or (work.kind == OpKind.ELEMENTWISE and not work.gemms)
