"""Candidate strategies of a layer: ordered ways to divide the devices of a stage among axes of parallelism.

For every pipeline degree P, a power of two, the N / P devices of a stage are divided into levels, each of another axis
and of a power of two (arXiv 2211.13878). The order counts: devices of the last level are neighbours, those of a level
before stand as far apart as what comes after it has devices, where links may be slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Axis(StrEnum):
    """What the devices of a level share out: the batch, the batch and the states of the model, or tensors."""

    DATA = "d"
    SHARDED = "s"
    TENSOR = "t"


@dataclass(frozen=True)
class LayerStrategy:
    """Levels of a stage's devices, outermost first, in a pipeline of so many stages, with or without recompute."""

    pipeline: int
    levels: tuple[tuple[Axis, int], ...]
    recompute: bool = False

    @property
    def devices(self) -> int:
        """Devices of the stage."""
        return math.prod(degree for _, degree in self.levels)

    @property
    def name(self) -> str:
        """For instance `p2-d2-t4` or `p1-s8-r`."""
        levels = [f"{axis.value}{degree}" for axis, degree in self.levels]
        return "-".join([f"p{self.pipeline}", *levels, *(["r"] if self.recompute else [])])

    def degree(self, axis: Axis) -> int:
        """Devices of a group of an axis; 1 where no level is of it."""
        return dict(self.levels).get(axis, 1)

    def stride(self, axis: Axis) -> int:
        """Distance between devices of a group of an axis that follow each other; 1: neighbours."""
        at = [one for one, _ in self.levels].index(axis) if axis in dict(self.levels) else len(self.levels)
        return math.prod(degree for _, degree in self.levels[at + 1 :])


def candidate_strategies(
    devices: int, *, recompute: bool = False, mixed: bool = False
) -> tuple[LayerStrategy, ...]:
    """All candidates on `devices` N, a power of two, from no pipeline to one of N stages.

    `recompute`: each with activations kept, and recomputed. `mixed`: also those that divide the batch by both the data
    and the sharded axis, which Galvatron leaves out (34 candidates for 8 devices instead of 22).
    Raises ValueError where N is no power of two.
    """
    if devices < 1 or devices & (devices - 1):
        raise ValueError(f"candidates divide a number of devices that is a power of two, not {devices}")
    found = []
    for pipeline in _powers(devices, least=1):
        for levels in _levels(devices // pipeline, tuple(Axis)):
            axes = {axis for axis, _ in levels}
            if mixed or not {Axis.DATA, Axis.SHARDED} <= axes:
                found += [LayerStrategy(pipeline, levels, again) for again in (False, True)[: 1 + recompute]]
    return tuple(found)


def _levels(devices: int, axes: tuple[Axis, ...]) -> Iterator[tuple[tuple[Axis, int], ...]]:
    """Ordered factorisations of a number of devices over distinct axes."""
    if devices == 1:
        yield ()
        return
    for axis in axes:
        rest = tuple(other for other in axes if other is not axis)
        for degree in _powers(devices, least=2):
            yield from (((axis, degree), *inner) for inner in _levels(devices // degree, rest))


def _powers(devices: int, least: int) -> list[int]:
    """Powers of two from `least` to a number of devices."""
    return [1 << n for n in range(least.bit_length() - 1, devices.bit_length())]
