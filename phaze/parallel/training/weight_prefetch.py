"""One pass over groups of layers whose weights the ranks of a group divide: gathers ahead, reductions behind.

Exchanges run one after the other beside the computation (Zhao et al., PyTorch FSDP, arXiv 2304.11277, section 3.3).
Forward, the weights of a group are gathered while the group before computes; no more than two are whole at a time.
Backward, the next group's are gathered once a group starts, and a group's gradients are reduced once it ends. Groups
that do not repeat (embeddings, head) make one unit that stays whole from the start of forward to the end of backward:
nothing hides its gather, nor its reduction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.parallel.pipelines.compiled_loops import machine
from phaze.parallel.training import prefetch_loops

_SIDE_BY_SIDE = 8
"""Groups of many plans that take as long side by side as one step of plain Python."""


def _own(values: NDArray[Any]) -> NDArray[Any]:
    """The same in memory that may be written: of others machine code is made anew, which takes seconds."""
    return np.require(values, requirements=("C", "W"))


@dataclass(frozen=True)
class Groups:
    """Seconds of computing, gathering and reducing every group of layers, (V, G) each, of V plans.

    `repeats` (G,): which are blocks. `first` (V, C): the group that every chunk of a pipeline starts with, in model
    order.
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
        if loops := machine(prefetch_loops).compiled("forward", self.compute_s.size // _SIDE_BY_SIDE):
            gathered, found = self.summed(self.gather_s * ~self.repeats), np.empty(self.first.shape)
            rows = (self.compute_s, self.gather_s, self.repeats, self.first)
            loops(*map(_own, rows), gathered, found)
            return found
        return self._plain_forward_s()

    def _plain_forward_s(self) -> Floats:
        ends = np.empty(self.compute_s.T.shape)
        gathered = self._spread(self.summed(self.gather_s * ~self.repeats))
        time = wire = done = before = np.zeros(len(self.compute_s))
        for g, (starts, compute, gather) in enumerate(
            zip(self._starts.T, self.compute_s.T, self.gather_s.T, strict=True)
        ):
            time, wire = np.where(starts, gathered[:, g], (time, wire))
            done, before = np.where(starts, 0.0, (done, before))
            if self.repeats[g]:
                wire = np.maximum(wire, before) + gather
                time = np.maximum(time, wire)
                done, before = time + compute, done
            time = ends[g] = time + compute
        return np.take_along_axis(ends.T, self._last, axis=1)

    def backward_s(self) -> Floats:
        """Seconds until the last gradient of every chunk is reduced, (V, C); its last group comes first."""
        if loops := machine(prefetch_loops).compiled("backward", self.compute_s.size // _SIDE_BY_SIDE):
            found = np.empty(self.first.shape)
            rows = (self.compute_s, self.gather_s, self.reduce_s, self.repeats, self.first)
            loops(*map(_own, rows), found)
            return found + self.summed(self.reduce_s * ~self.repeats)
        return self._plain_backward_s()

    def _plain_backward_s(self) -> Floats:
        ends = np.empty((2, *self.compute_s.T.shape))
        entering, ahead, is_last = self._gathers_ahead()
        turns = np.roll(self._starts, -1, axis=1)
        time = wire = ready = np.zeros(len(self.compute_s))
        for g in reversed(range(len(self.repeats))):
            time = np.where(turns[:, g], 0.0, time)
            wire, ready = np.where(turns[:, g], entering[g], (wire, ready))
            if self.repeats[g]:
                time = np.maximum(time, ready)
                wire, ready = np.where(is_last[g], (wire, ready), np.maximum(wire, time) + ahead[g])
            time = time + self.compute_s[:, g]
            if self.repeats[g]:
                reduce = self.reduce_s[:, g]
                wire = np.where(reduce > 0, np.maximum(wire, time) + reduce, wire)
            ends[:, g] = time, wire
        time, wire = np.take_along_axis(ends, self.first.T[None], axis=1).transpose(0, 2, 1)
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

    def _gathers_ahead(self) -> tuple[Floats, Floats, Flags]:
        """Gathers of every group, (G, V): the last one of its chunk so far, the one before, and if there is none."""
        shape = self.compute_s.T.shape
        entering, ahead, is_last = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
        known, none = np.zeros(shape[1]), np.ones(shape[1], dtype=np.bool_)
        for g, starts in enumerate(self._starts.T):
            known, none = np.where(starts, 0.0, known), none | starts
            ahead[g], is_last[g] = known, none
            if self.repeats[g]:
                known, none = self.gather_s[:, g], np.zeros_like(none)
            entering[g] = known
        return entering, ahead, is_last

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
