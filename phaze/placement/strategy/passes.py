"""Seconds of one microbatch in the chunks of many strategies at once, without the exchanges of ZeRO and the host's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.placement.pipelines.chunks import Chunks
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.figures import LayerFigures, PassFigures
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.load import waits_s


@dataclass(frozen=True)
class GroupPasses:
    """Every group of layers in its three passes, forward, again and backward, (N, 7, G) for N models.

    Rows: seconds on the device by pass, seconds that launches take by pass, and seconds of weight gradients.
    """

    rows: Floats

    def chunks(self, first_groups: Integers, again: NDArray[np.bool_], framework: Framework) -> ChunkPasses:
        """Of chunks that start with some groups, (N, C), where some groups run again, (N, G)."""
        count, _, groups = self.rows.shape
        rows = self.rows.transpose(1, 0, 2).copy()
        rows[[1, 4]] *= again
        starts = (first_groups + groups * np.arange(count)[:, None]).ravel()
        summed = np.add.reduceat(rows.reshape(7, -1), starts, axis=1).reshape(7, *first_groups.shape)
        return ChunkPasses(summed[:3], summed[3:6], summed[6], framework)


def group_passes(figures: LayerFigures, division: Division, framework: Framework) -> Floats:
    """The rows of `GroupPasses` of one model that is cut into the groups of a division, (7, G)."""
    return passes_of(figures, division.groups, framework)


def passes_of(figures: LayerFigures, groups: Sequence[tuple[int, int]], framework: Framework) -> Floats:
    """The same of runs of layers, (first, last) positions in the chain, on many architectures (7, A, G)."""
    index = np.array(figures.chain.index)
    positions = np.concatenate([np.arange(first, last + 1) for first, last in groups])
    first = np.cumsum([0, *(last + 1 - first for first, last in groups[:-1])])
    last = index[[last for _, last in groups]]
    layers = (figures.forward, figures.again, figures.backward)
    dispatch_s = (framework.dispatch_s, framework.dispatch_s, framework.dispatch_backward_s)
    seconds = [_device_s(each, framework) for each in layers]
    launches = [each.launches * one for each, one in zip(layers, dispatch_s, strict=True)]
    rows = np.stack(np.broadcast_arrays(*seconds, *launches, figures.backward.weight_s * framework.stretch))
    summed: Floats = np.add.reduceat(rows[..., index[positions]], first, axis=-1)
    ending = (_device_s(figures.ending, framework), figures.ending.launches * framework.dispatch_s)
    for row, ends in zip((1, 4), ending, strict=True):
        summed[row] += (ends - rows[row])[..., last]
    return summed


def _device_s(figures: PassFigures, framework: Framework) -> Floats:
    computing = figures.kernels_s * framework.stretch + framework.interference * figures.hidden_s
    found: Floats = sum(figures.exposed_s.values(), computing)
    return found


@dataclass(frozen=True)
class ChunkPasses:
    """Every chunk: `device_s`, `launches_s` (3, ..., C) by pass, `weight_s` (..., C) of weight gradients."""

    device_s: Floats
    launches_s: Floats
    weight_s: Floats
    framework: Framework

    def take(self, rows: Integers) -> ChunkPasses:
        """Some of the strategies."""
        return replace(
            self,
            device_s=self.device_s[:, rows],
            launches_s=self.launches_s[:, rows],
            weight_s=self.weight_s[rows],
        )

    def beside(self, forward_s: Floats, backward_s: Floats) -> ChunkPasses:
        """With seconds of exchanges that computation does not hide, (..., C) each."""
        first, again, last = self.device_s
        return replace(self, device_s=np.stack([first + forward_s, again, last + backward_s]))

    @property
    def passes_s(self) -> tuple[Floats, Floats]:
        """Forward, and all that follows the loss, (..., C)."""
        late = waits_s(self.launches_s, self.device_s, self.framework, self.weight_s.shape[-1])
        forward, again, backward = self.device_s + late
        return forward, again + backward

    def pipeline(self, transfer_s: Floats) -> Chunks:
        """What a pipeline runs, with transfers (..., C - 1) between chunks."""
        forward, turned = self.passes_s
        weight = np.minimum(self.weight_s, turned)
        return Chunks(forward, turned - weight, weight, transfer_s, not self.framework.hides_transfers)
