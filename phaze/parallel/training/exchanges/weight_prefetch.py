"""One pass over groups of layers whose weights the ranks of a group divide: gathers ahead, reductions behind.

Exchanges run one after the other beside the computation (Zhao et al., PyTorch FSDP, arXiv 2304.11277, section 3.3).
Forward, the weights of a group are gathered while the group before computes; no more than two are whole at a time.
Backward, the next group's are gathered once a group starts, and a group's gradients are reduced once it ends. Groups
that do not repeat (embeddings, head) make one unit that stays whole from the start of forward to the end of backward:
nothing hides its gather, nor its reduction. Where ranks divide the weights of some groups alone, only these take turns:
what lies between them is computation beside the gather of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.parallel.pipelines.compiled_loops import machine
from phaze.parallel.training.exchanges import prefetch_loops

_SIDE_BY_SIDE = 8
"""Groups of many plans that take as long side by side as one step of plain Python."""


def _own(values: NDArray[Any]) -> NDArray[Any]:
    """The same in memory that may be written: of others machine code is made anew, which takes seconds."""
    return np.require(values, requirements=("C", "W"))


@dataclass(frozen=True)
class Groups:
    """Seconds of computing, gathering and reducing every group of layers, (V, G) each, of V plans.

    `repeats` (G,): which take turns: blocks, or those of them that are divided. `first` (V, C): the group
    that every chunk of a pipeline starts with, in model order.
    """

    compute_s: Floats
    gather_s: Floats
    reduce_s: Floats
    repeats: Flags
    first: NDArray[np.int64]

    @property
    def exchange_s(self) -> Floats:
        """Seconds of all exchanges of every chunk, (V, C)."""
        return self.summed(self.gather_s + self.reduce_s)

    def forward_s(self) -> Floats:
        """Seconds until the last group of every chunk has computed, (V, C)."""
        loops = machine(prefetch_loops).compiled("forward", self.compute_s.size // _SIDE_BY_SIDE)
        if loops := loops or (prefetch_loops.forward if len(self.compute_s) == 1 else None):
            gathered, found = self.summed(self.gather_s * ~self.repeats), np.empty(self.first.shape)
            rows = [*map(_own, (self.compute_s, self.gather_s, self.repeats, self.first)), gathered, found]
            loops(*rows)
            return found
        return self._plain_forward_s()

    def _plain_forward_s(self) -> Floats:
        """Of all chunks side by side, group by group."""
        compute_s, gather_s, _, repeats = self._side_by_side
        time = wire = self.summed(self.gather_s * ~self.repeats)
        done = before = np.zeros(time.shape)
        for compute, gather, here in zip(compute_s, gather_s, repeats, strict=True):
            wire = np.where(here, np.maximum(wire, before) + gather, wire)
            time = np.where(here, np.maximum(time, wire), time) + compute
            done, before = np.where(here, (time, done), (done, before))
        return time

    def backward_s(self) -> Floats:
        """Seconds until the last gradient of every chunk is reduced, (V, C); its last group comes first."""
        loops = machine(prefetch_loops).compiled("backward", self.compute_s.size // _SIDE_BY_SIDE)
        if loops := loops or (prefetch_loops.backward if len(self.compute_s) == 1 else None):
            found = np.empty(self.first.shape)
            rows = (self.compute_s, self.gather_s, self.reduce_s, self.repeats, self.first)
            loops(*[*map(_own, rows), found])
            return found + self.summed(self.reduce_s * ~self.repeats)
        return self._plain_backward_s()

    def _plain_backward_s(self) -> Floats:
        """Of all chunks side by side, group by group from the last."""
        compute_s, gather_s, reduce_s, repeats = self._side_by_side
        ahead, is_last = np.zeros(compute_s.shape), np.zeros(compute_s.shape, dtype=np.bool_)
        known, none = np.zeros(self.first.shape), np.ones(self.first.shape, dtype=np.bool_)
        for k, (gather, here) in enumerate(zip(gather_s, repeats, strict=True)):
            ahead[k], is_last[k] = known, none
            known, none = np.where(here, gather, known), none & ~here
        time, wire, ready = np.zeros(known.shape), known, known
        for k in reversed(range(len(compute_s))):
            here, onward = repeats[k], repeats[k] & ~is_last[k]
            time = np.where(here, np.maximum(time, ready), time)
            wire = np.where(onward, np.maximum(wire, time) + ahead[k], wire)
            ready = np.where(onward, wire, ready)
            time = time + compute_s[k]
            wire = np.where(here & (reduce_s[k] > 0), np.maximum(wire, time) + reduce_s[k], wire)
        latest: Floats = np.maximum(time, wire)
        return latest + self.summed(self.reduce_s * ~self.repeats)

    def slowed(self, interference: float) -> Groups:
        """The same with computation that takes longer by `interference` while an exchange runs beside it."""
        compute_s = self.summed(self.compute_s)
        beside_s = np.minimum(self.exchange_s, compute_s)
        factor = 1 + interference * np.divide(
            beside_s, compute_s, out=np.zeros_like(beside_s), where=compute_s > 0
        )
        return replace(self, compute_s=self.compute_s * self._spread(factor))

    def summed(self, seconds: Floats) -> Floats:
        """Sum over all groups of every chunk, (V, C)."""
        rows = np.arange(len(seconds))[:, None] * seconds.shape[1]
        found: Floats = np.add.reduceat(seconds.ravel(), (self.first + rows).ravel())
        return found.reshape(self.first.shape)

    @property
    def _side_by_side(self) -> tuple[Floats, Floats, Floats, Flags]:
        """Seconds of computing, gathering and reducing the groups of every chunk, and which repeat, (N, V, C) each.

        The first of all chunks, the second of all, and so on, to the last of the longest: beyond its last group a chunk
        has some that do nothing.
        """
        sizes = self._last + 1 - self.first
        group = self.first + np.arange(sizes.max())[:, None, None]
        inside = group < self.first + sizes
        at = np.arange(len(self.first))[:, None], np.where(inside, group, 0)
        columns = (self.compute_s, self.gather_s, self.reduce_s)
        compute_s, gather_s, reduce_s = (np.where(inside, one[at], 0.0) for one in columns)
        return compute_s, gather_s, reduce_s, inside & self.repeats[at[1]]

    def _spread(self, chunks: Floats) -> Floats:
        """To every group what its chunk has, (V, G)."""
        return np.take_along_axis(chunks, np.cumsum(self._starts, axis=1) - 1, axis=1)

    @cached_property
    def _starts(self) -> Flags:
        """Groups that chunks start with, (V, G)."""
        found = np.zeros(self.compute_s.shape, dtype=np.bool_)
        np.put_along_axis(found, self.first, values=True, axis=1)
        return found

    @property
    def _last(self) -> NDArray[np.int64]:
        """The group that every chunk ends with, (V, C)."""
        return np.append(self.first[:, 1:], np.full((len(self.first), 1), len(self.repeats)), axis=1) - 1
