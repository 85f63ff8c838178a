"""Places of the chunks of pipelines, and microbatches that devices keep: counts that need no bytes or times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_schedule import Schedule, device_of


@dataclass(frozen=True)
class ChunkPlaces:
    """Groups of layers of every kind, K, on the devices of a pipeline, p, whose chunks are `own` (p, slots).

    `kinds` (G,): of every group of the division. Levels (L,) are 0 .. n of the n blocks of a device that run again, its
    first slots first, device after device.
    """

    division: Division
    kinds: Integers
    own: Integers

    def __len__(self) -> int:
        """Devices."""
        return len(self.own)

    @cached_property
    def counts(self) -> Floats:
        """Groups of each kind in every chunk, (C, K)."""
        return np.add.reduceat(np.eye(self.kinds.max() + 1)[self.kinds], self.division.first_groups, axis=0)

    @cached_property
    def device(self) -> Floats:
        """Groups of each kind on every device, (p, K)."""
        found: Floats = self.counts[self.own].sum(axis=1)
        return found

    @cached_property
    def first(self) -> Integers:
        """The first chunk of every device in model order, (p,)."""
        found: Integers = self.own.min(axis=1)
        return found

    @cached_property
    def ahead(self) -> Floats:
        """Groups ahead of the first chunk of every device, (p, K)."""
        found: Floats = (np.cumsum(self.counts, axis=0) - self.counts)[self.first]
        return found

    @cached_property
    def sorts(self) -> tuple[Floats, Integers]:
        """Groups of every kind on every sort of device, and whether it is an end, (R, K + 1); which each is, (p,)."""
        ends = np.zeros((len(self.own), 1))
        ends[[0, -1]] = 1.0
        rows = np.concatenate([self.device, ends], axis=1)
        found, which = np.unique(rows, axis=0, return_inverse=True)
        return found, which.ravel()

    @cached_property
    def bounding(self) -> Integers:
        """Devices that bounds are made of, (T,): of every sort the first and the last one, and the deepest."""
        at, (_, which) = np.arange(len(self)), self.sorts
        order = np.lexsort((at, self.first, which))
        last = np.flatnonzero(np.diff(which[order], append=-1))
        deepest = order[last]
        first, latest = np.full(len(last), len(self)), np.zeros(len(last), dtype=np.int64)
        np.minimum.at(first, which, at)
        np.maximum.at(latest, which, at)
        return np.unique(np.concatenate([first, latest, deepest]))

    @cached_property
    def edges(self) -> tuple[Floats, Floats]:
        """Blocks of every kind that begin and that end the chunks of every device, (p, K) each.

        An end of a chunk that is no block does not count.
        """
        body, first = np.array(self.division.body, dtype=np.float64), self.division.first_groups
        last = np.append(first[1:], len(body)) - 1
        one = np.eye(self.counts.shape[1])[self.kinds] * body[:, None]
        begin, end = (one[some][self.own].sum(axis=1) for some in (first, last))
        return begin, end

    @property
    def begin(self) -> Floats:
        """Blocks that begin the chunks of every device, (p, K)."""
        return self.edges[0]

    @property
    def end(self) -> Floats:
        """Blocks that end them, (p, K)."""
        return self.edges[1]

    # -- recompute -------------------------------------------------------------------------------------------

    @cached_property
    def levels(self) -> Integers:
        """Levels of every device, (p,)."""
        found: Integers = self.division.blocks[self.own].sum(axis=1) + 1
        return found

    @cached_property
    def _at(self) -> Integers:
        """The device of every level, (L,)."""
        return np.repeat(np.arange(len(self)), self.levels)

    @cached_property
    def recomputation(self) -> Floats:
        """Groups of each kind that run again in every slot on every level, (L, slots, K)."""
        body = np.array(self.division.body, dtype=np.float64)
        known = np.zeros((len(body) + 1, self.counts.shape[1]))
        known[1:] = np.cumsum(np.eye(known.shape[1])[self.kinds] * body[:, None], axis=0)
        blocks = self.division.blocks[self.own]
        before = np.cumsum(blocks, axis=1) - blocks
        level = np.arange(len(self._at)) - np.repeat(np.cumsum(self.levels) - self.levels, self.levels)
        taken = np.clip(level[:, None] - before[self._at], 0, blocks[self._at])
        # Blocks lie one after the other: the first n of a chunk end n groups behind its first one.
        ahead = [int(np.argmax(body[a : b + 1])) for a, b in self.division.chunks]
        begin = (self.division.first_groups + ahead)[self.own][self._at]
        found: Floats = known[begin + taken] - known[begin]
        return found

    @cached_property
    def recomputation_device(self) -> Floats:
        """Groups that run again in all slots of a device, (L, K)."""
        found: Floats = self.recomputation.sum(axis=1)
        return found

    @cached_property
    def recomputation_first(self) -> Floats:
        """Groups that run again in its first slot, (L, K)."""
        return np.ascontiguousarray(self.recomputation[:, 0])

    def in_flight(self, schedule: Schedule, microbatches: int) -> tuple[Floats, Integers]:
        """Groups times microbatches that a device keeps at once, (H, 2 K): as they are, and those that run again.

        On every level one row for every combination of microbatches one of which weighs most; rows of each (L,).
        """
        chunks = self.own.shape[1] // schedule.weight_copies
        peaks = in_flight_peak(schedule, len(self), microbatches, chunks).astype(np.float64)[self._at]
        recomputation = peaks @ self.recomputation
        both = np.concatenate(
            [peaks @ self.counts[self.own][self._at] - recomputation, recomputation], axis=2
        )
        return both.reshape(-1, both.shape[2]), np.full(len(both), both.shape[1])

    # -- transfers -------------------------------------------------------------------------------------------

    @cached_property
    def boundaries(self) -> Integers:
        """The last layer of every chunk but the last one, by its position in the chain, (C - 1,)."""
        found: Integers = self.division.first_layers[1:] - 1
        return found

    @cached_property
    def received(self) -> Floats:
        """Receipts of a microbatch by a device from another one over every boundary, (p, C - 1).

        Activations into its chunks, gradients back into them.
        """
        return self._comes(back=True)

    @cached_property
    def arriving(self) -> Floats:
        """Receipts of activations alone."""
        return self._comes(back=False)

    def _comes(self, *, back: bool) -> Floats:
        crossed = np.flatnonzero(self._crossed)
        found = np.zeros((len(self.counts), len(self.counts) - 1))
        found[crossed + 1, crossed] += 1
        found[crossed, crossed] += back
        comes: Floats = found[self.own].sum(axis=1)
        return comes

    @cached_property
    def entered(self) -> Floats:
        """Whether a microbatch comes from another device over a boundary on the way to each, (p, C - 1)."""
        ahead = np.arange(len(self._crossed)) < self.first[:, None]
        return (ahead & self._crossed).astype(np.float64)

    @cached_property
    def _crossed(self) -> NDArray[np.bool_]:
        """Boundaries between chunks of different devices, (C - 1,)."""
        p, slots = self.own.shape
        copies = slots * p // len(self.counts)
        device = np.argsort(self.own.ravel(), kind="stable") // slots
        if copies > 1:
            device = device_of(Schedule.DUALPIPE, p)[0]
        crossed: NDArray[np.bool_] = device[1:] != device[:-1]
        return crossed
