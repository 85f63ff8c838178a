"""A lower bound on the time of the best plan that costs microseconds per architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.batch import PlacementBatch
from phaze.solvers.placement.chain.load_bound import LoadBound
from phaze.solvers.placement.chain.time_bound import TimeBound
from phaze.solvers.placement.chain.width import Width, widths

# Memories of a batch are rounded up to so many different ones, for each of which stages are counted.
_MEMORIES = 4
# Plans are bounded apart by their narrow stages: with none, with one, ..., with so many or more.
_NARROW_RANGES = 4
# Architectures bounded at once: their arrays stay in the cache.
_BLOCK = 512


@dataclass(frozen=True)
class Candidates:
    """R architectures of one width, and what is known of them before the search.

    `forward_s`, `backward_s` (L, R); `memory_bytes` (R,), or (1,) if all have the same; `bound_s` (n, depth, R):
    seconds that plans of S stages take at least, at [:, S - 1], for n ranges of narrow stages;
    `device_time_s` (R,): see TimeBound.
    """

    forward_s: Floats
    backward_s: Floats
    memory_bytes: Floats
    bound_s: Floats
    device_time_s: Floats

    @property
    def least_s(self) -> Floats:
        """Seconds (R,) that any plan takes at least."""
        least: Floats = self.bound_s.min(axis=(0, 1))
        return least

    def __getitem__(self, rows: Integers) -> Candidates:
        """Some of them."""
        memory_bytes = self.memory_bytes if self.memory_bytes.size == 1 else self.memory_bytes[rows]
        arrays = (self.forward_s, self.backward_s, self.bound_s, self.device_time_s)
        forward_s, backward_s, bound_s, device_time_s = (array[..., rows] for array in arrays)
        return Candidates(forward_s, backward_s, memory_bytes, bound_s, device_time_s)


class WidthBound:
    """The bounds of one width for the architectures of a batch, one `times` for each range of narrow stages."""

    def __init__(self, batch: PlacementBatch, width: Width) -> None:
        """Prepare what all architectures share."""
        self.width = width
        most = int(width.devices.most_narrow[width.depth])
        ranges = [range(count, count + 1) for count in range(min(most + 1, _NARROW_RANGES))]
        ranges[-1] = range(ranges[-1][0], most + 1)
        self.times = [TimeBound(width, narrow) for narrow in ranges]
        self._forward_s, self._backward_s = batch.forward_s[:, width.index], batch.backward_s[:, width.index]
        self._memory_bytes = batch.device_memory_bytes
        self._typical_s = self._forward_s.sum(axis=0), self._backward_s.sum(axis=0)
        self._loads: dict[float, LoadBound] = {}
        wide = np.array(width.model.is_tensor_parallel)
        devices = np.where(wide, width.devices.wide, 1.0)
        self._share = devices * (width.problem.microbatches_per_batch / width.problem.num_devices)

    def candidates(self, rows: Integers, most_bytes: float) -> Candidates:
        """Bounds of some architectures, none of which has more than so much memory."""
        if most_bytes not in self._loads:
            self._loads[most_bytes] = LoadBound(self.width, most_bytes, *self._typical_s)
        forward_s, backward_s = (
            np.ascontiguousarray(latency[rows].T) for latency in (self._forward_s, self._backward_s)
        )
        # x * q is no less, whatever the degree.
        device_time_s = self._share @ (forward_s + backward_s)
        loads = self._loads[most_bytes].loads(forward_s, backward_s)
        bound_s = np.empty((len(self.times), *loads[0].shape))
        for bound, out in zip(self.times, bound_s, strict=True):
            bound.times(*loads, device_time_s, out)
        memory_bytes = np.unique(self._memory_bytes[rows])
        if memory_bytes.size > 1:
            memory_bytes = self._memory_bytes[rows]
        return Candidates(forward_s, backward_s, memory_bytes, bound_s, device_time_s)


def width_bounds(batch: PlacementBatch) -> list[WidthBound]:
    """The bounds of all widths that can be placed at all."""
    return [WidthBound(batch, width) for width in widths(batch.problem)]


def lower_bound(batch: PlacementBatch) -> Floats:
    """Seconds per batch (A,) that no plan beats; infinite only where no plan fits.

    For every width and number of stages, the largest load is bounded by the work and the transfers that the
    stages share, by the largest layer, and by the share of the large layers that one stage must hold in view of
    memory. The time follows from the fewest microbatches per pipeline that the devices allow, the filling of the
    pipeline, the all-reduce of the first layer, and the work that all devices share.
    """
    bounds, best_s = width_bounds(batch), np.full(batch.architectures, np.inf)
    for rows, most_bytes in _memory_groups(batch.device_memory_bytes):
        for bound in bounds:
            best_s[rows] = np.minimum(best_s[rows], bound.candidates(rows, most_bytes).least_s)
    return best_s


def _memory_groups(memory_bytes: Floats) -> Iterator[tuple[Integers, float]]:
    """Blocks of architectures of similar memory, and the most that any of their group has."""
    levels = np.unique(memory_bytes)
    if levels.size > _MEMORIES:
        levels = levels[np.linspace(0, levels.size - 1, _MEMORIES + 1).astype(np.int64)[1:]]
    level = np.searchsorted(levels, memory_bytes)
    for group, most_bytes in enumerate(levels.tolist()):
        rows = np.flatnonzero(level == group)
        for begin in range(0, rows.size, _BLOCK):
            yield rows[begin : begin + _BLOCK], most_bytes
