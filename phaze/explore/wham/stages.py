"""Which parts of a pipeline there are to search: devices with equal layers in equal proportion are one kind."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.layouts import Layouts
from phaze.placement.strategy.needs import recomputed
from phaze.placement.strategy.strategy import Strategy

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StageKind:
    """Stages that spend their time alike; a stage is all chunks of a device.

    `forward`, `backward`: how often each unique layer's pass runs, in lowest terms: a stage of ten equal layers
    is searched as one layer. `positions`: the stages of the pipeline that are of this kind; `repeats`: for each,
    how many times the lowest terms it does.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    positions: tuple[int, ...]
    repeats: tuple[int, ...]


def stage_kinds(strategy: Strategy, layouts: Layouts) -> tuple[StageKind, ...]:
    """The distinct kinds of stage of a strategy, in the order in which they first appear."""
    s, chain, division = strategy, layouts.chain(strategy), layouts.division(strategy)
    again = np.repeat(recomputed(division, s), division.sizes)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}
    for position, own in enumerate(chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tolist()):
        held = np.concatenate([np.arange(len(chain.index))[division.layers(chunk)] for chunk in own])
        forward, backward, repeats = _lowest_terms(
            np.array(chain.index)[held], again[held], len(chain.layers)
        )
        found.setdefault((forward, backward), []).append((position, repeats))
    return tuple(
        StageKind(forward, backward, *(tuple(column) for column in zip(*entries, strict=True)))
        for (forward, backward), entries in found.items()
    )


def _lowest_terms(
    held: NDArray[np.int64], again: Flags, unique: int
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Passes of unique layers, forward and backward, of a stage that holds some, of which some run again."""
    once = np.bincount(held, minlength=unique)
    twice = once + np.bincount(held[again], minlength=unique)
    common = gcd(*once.tolist(), *twice.tolist())
    return tuple((twice // common).tolist()), tuple((once // common).tolist()), common
