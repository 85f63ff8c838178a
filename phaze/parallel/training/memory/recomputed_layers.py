"""Layers that run again in backward, also where blocks recompute each in its own way, and the bytes of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain as joined

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import BLOCK, EACH, NOTHING, ParallelPlan
from phaze.parallel.training.memory.memory_footprint import GroupFootprint, recomputed_groups
from phaze.workload.work import Layer, LayerChain, layer_in_block

Unit = tuple[int, int]
"""First and last position in the chain of layers that run again together, from the input of the first."""


def ways_again(names: Sequence[str]) -> tuple[str, ...]:
    """What of a group of layers, by their `names`, may run again: none, each layer alone, each on its own, or all.

    Of two ways that come to the same the later one is left out.
    """
    inside = [layer_in_block(name) for name in names]
    if len(inside) == 1 or not all(inside) or len(set(inside)) < len(inside):
        return NOTHING, BLOCK
    return NOTHING, *inside, EACH, BLOCK


def units_of(names: Sequence[str], again: str, first: int = 0) -> tuple[Unit, ...]:
    """Layers of a group that run again, the first at position `first`. Raises InputError for a layer it has not."""
    last = first + len(names) - 1
    if again == NOTHING:
        return ()
    if again == BLOCK:
        return ((first, last),)
    if again == EACH:
        return tuple((at, at) for at in range(first, last + 1))
    inside = [layer_in_block(name) for name in names]
    if again not in inside:
        raise InputError(f"{again} is no layer of a block of {', '.join(inside)}")
    at = first + inside.index(again)
    return ((at, at),)


def recomputed_units(names: Sequence[str], division: Division, plan: ParallelPlan) -> list[tuple[Unit, ...]]:
    """Of every group (G,), the layers that run again. Raises InputError where the plan tells of other groups."""
    if not plan.layers:
        again = recomputed_groups(division, plan).tolist()
        return [(span,) if some else () for span, some in zip(division.groups, again, strict=True)]
    told = list(joined.from_iterable([one.again] * one.blocks for one in plan.layers))
    if len(told) != sum(division.body) or plan.recompute is not Recompute.FULL:
        raise InputError(f"recompute of {len(told)} blocks is told of {sum(division.body)}")
    if plan.kept or plan.offload or plan.offloaded:
        raise InputError(
            "where blocks recompute each in its own way nothing of them is spared or left to hosts"
        )
    ways = iter(told)
    return [
        units_of(names[first : last + 1], next(ways), first) if body else ()
        for (first, last), body in zip(division.groups, division.body, strict=True)
    ]


def again_and_ends(units: Sequence[tuple[Unit, ...]], layers: int) -> tuple[Floats, Floats]:
    """Positions that run again, (L,), but for the last of those together; and these last ones: 1, others 0."""
    again, ends = np.zeros((2, layers))
    for first, last in joined.from_iterable(units):
        again[first:last] = 1.0
        ends[last] = 1.0
    return again, ends


def with_units(
    footprint: GroupFootprint, chain: LayerChain, division: Division, units: Sequence[tuple[Unit, ...]]
) -> GroupFootprint:
    """Footprint of groups that keep less where these of their layers run again.

    kept = sum over layers that do not of what they save + sum over units of the input of their first layer;
    while backward runs: max over layers of (working + what the layer's own unit saves).
    """
    kept, again = footprint.spared_bytes.copy(), footprint.again_bytes.copy()
    for group, (span, some) in enumerate(zip(division.groups, units, strict=True)):
        if some:
            kept[group], again[group] = group_bytes(chain, span, some)
    return replace(footprint, spared_bytes=kept, again_bytes=again)


def group_bytes(chain: LayerChain, span: Unit, units: tuple[Unit, ...]) -> tuple[float, float]:
    """Bytes that a group keeps of a microbatch, and those it then adds to its working set, where units run again."""
    inputs = chain.sharding.tensor if chain.sharding.sequence else 1
    layers = {at: chain.layers[chain.index[at]] for at in range(span[0], span[1] + 1)}
    inside = {at: unit for unit in units for at in range(unit[0], unit[1] + 1)}
    kept = sum(_saved(layer) for at, layer in layers.items() if at not in inside)
    kept += sum(layers[first].input_bytes / inputs for first, _ in units)
    saved = {unit: sum(map(_saved, _layers(layers, unit))) for unit in units}
    most = max(
        layer.working_bytes + (saved[inside[at]] if at in inside else 0.0) for at, layer in layers.items()
    )
    return kept, most - max(layer.working_bytes for layer in layers.values())


def _layers(layers: dict[int, Layer], unit: Unit) -> Iterator[Layer]:
    return (layers[at] for at in range(unit[0], unit[1] + 1))


def _saved(layer: Layer) -> float:
    return layer.saved_bytes + layer.cache_bytes
