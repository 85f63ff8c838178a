"""Which pipeline stages there are to search: stages of equal layers in equal proportion are one kind."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from phaze.placement.plan import Plan, StagePlan
from phaze.workload.work import LayerChain


@dataclass(frozen=True, slots=True)
class StageKind:
    """Stages that spend their time alike.

    `forward`, `backward`: how often each unique layer's pass runs, in lowest terms: a stage of ten equal layers
    is searched as one layer. `positions`: the stages of the pipeline that are of this kind; `repeats`: for each,
    how many times the lowest terms it does.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    positions: tuple[int, ...]
    repeats: tuple[int, ...]


def stage_kinds(plan: Plan, chain: LayerChain) -> tuple[StageKind, ...]:
    """The distinct kinds of stage of a plan, in the order in which they first appear."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
    for position, stage in enumerate(plan.stages):
        forward, backward, repeats = _lowest_terms(stage, chain)
        found.setdefault((forward, backward), []).append((position, repeats))
    return tuple(
        StageKind(forward, backward, *(tuple(column) for column in zip(*entries, strict=True)))
        for (forward, backward), entries in found.items()
    )


def _lowest_terms(stage: StagePlan, chain: LayerChain) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    held = chain.index[stage.first : stage.last + 1]
    counts = [held.count(unique) for unique in range(len(chain.layers))]
    common = gcd(*counts)
    once = tuple(count // common for count in counts)
    forward = tuple(2 * count for count in once) if stage.recompute else once
    return forward, once, common
