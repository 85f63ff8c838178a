"""One pass over groups of layers whose weights the ranks of a group divide: gathers ahead, reductions behind.

Exchanges run one after the other beside the computation (Zhao et al., PyTorch FSDP, arXiv 2304.11277, section 3.3).
Forward, the weights of a group are gathered while the group before computes; no more than two are whole at a time.
Backward, the next group's are gathered once a group starts, and a group's gradients are reduced once it ends. Groups
that do not repeat (embeddings, head) make one unit that stays whole from the start of forward to the end of backward:
nothing hides its gather, nor its reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Group:
    """Seconds of a group's computation, of gathering its weights and of reducing its gradients."""

    compute_s: float
    gather_s: float
    reduce_s: float
    repeats: bool


def forward_s(groups: Sequence[Group]) -> float:
    """Seconds until the last group has computed."""
    wire = time = sum(group.gather_s for group in groups if not group.repeats)
    done: list[float] = []
    for group in groups:
        if group.repeats:
            freed = done[-2] if len(done) > 1 else 0.0
            wire = max(wire, freed) + group.gather_s
            time = max(time, wire)
            done.append(time + group.compute_s)
        time += group.compute_s
    return time


def backward_s(groups: Sequence[Group]) -> float:
    """Seconds until the last gradient is reduced; `groups` in model order."""
    turned = list(reversed(groups))
    gathers = [group.gather_s for group in turned if group.repeats]
    wire = gathers[0] if gathers else 0.0
    time, ready, number = 0.0, wire, 0
    for group in turned:
        if group.repeats:
            time, number = max(time, ready), number + 1
            if number < len(gathers):
                wire = ready = max(wire, time) + gathers[number]
        time += group.compute_s
        if group.repeats and group.reduce_s:
            wire = max(wire, time) + group.reduce_s
    whole = sum(group.reduce_s for group in groups if not group.repeats)
    return max(time, max(wire, time) + whole) if whole else max(time, wire)


def slowed(groups: Sequence[Group], interference: float) -> list[Group]:
    """The same with computation that takes longer by `interference` while an exchange runs beside it."""
    compute_s = sum(group.compute_s for group in groups)
    exchange_s = sum(group.gather_s + group.reduce_s for group in groups)
    if not compute_s:
        return list(groups)
    factor = 1 + interference * min(1.0, exchange_s / compute_s)
    return [replace(group, compute_s=factor * group.compute_s) for group in groups]
