"""Devices of stages: t, or one if no layer of the stage is tensor-parallel (a narrow stage)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from phaze.solvers.arrays import Flags, Integers
from phaze.solvers.placement.chain.instance import WidthModel


@dataclass(frozen=True)
class StageDevices:
    """`narrow` (L, L): whether the stage at [length - 1, first layer] is narrow where that makes a difference.

    `wide`: devices of any other stage; `most_narrow` (S + 1,): most narrow stages among S, at [S];
    `most_narrow_behind` (S + 1,): the same without the first layer.
    """

    narrow: Flags
    wide: int
    most_narrow: Integers
    most_narrow_behind: Integers

    def of(self, stages: Integers | int, narrow: Integers | int) -> Integers:
        """Devices of so many stages, some of them narrow (n,)."""
        return np.asarray(self.wide * (stages - narrow) + narrow)


def stage_devices(model: WidthModel, most_stages: int) -> StageDevices:
    """Devices of the stages of one width, for up to so many stages."""
    sharded = np.array(model.is_tensor_parallel)
    layers = sharded.size
    narrow = np.zeros((layers, layers), dtype=np.bool_)
    if model.tensor_parallel == 1 or sharded.all() or not sharded.any():
        wide = model.tensor_parallel if sharded.any() else 1
        none = np.zeros(most_stages + 1, dtype=np.int64)
        return StageDevices(narrow, wide, none, none)
    narrow[:] = np.arange(layers)[:, None] < _run_lengths(sharded)
    most, behind = (_most_narrow(model.is_tensor_parallel[first:], most_stages) for first in (0, 1))
    return StageDevices(narrow, model.tensor_parallel, most, behind)


def _run_lengths(sharded: Flags) -> Integers:
    """Layers from each one on until the next tensor-parallel one (L,)."""
    stops = np.append(np.flatnonzero(sharded), sharded.size)
    ahead: Integers = stops[np.searchsorted(stops, np.arange(sharded.size))] - np.arange(sharded.size)
    return ahead


def _most_narrow(is_tensor_parallel: Sequence[bool], most_stages: int) -> Integers:
    """Narrow stages lie in runs of layers that are not tensor-parallel; w wide stages leave w + 1 runs apart."""
    runs = sorted(
        (len(list(run)) for sharded, run in groupby(is_tensor_parallel) if not sharded), reverse=True
    )
    longest = [0, *accumulate(runs)]
    most = [0]
    for stages in range(1, most_stages + 1):
        # One stage more makes room for one narrow stage more, or none.
        wide = stages - most[-1] - 1
        most.append(most[-1] + (most[-1] < longest[min(wide + 1, len(runs))]))
    return np.array(most)
