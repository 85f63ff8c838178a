"""One plan on pipelines whose devices are some of a few architectures: what each choice of them takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import device_of
from phaze.parallel.pipelines.pipeline_simulation import pipelines_s
from phaze.parallel.plan_batches.cut_pipelines import CutPipeline, FittedPlan, GroupTimes
from phaze.parallel.plan_batches.memory_fit import PlanFootprint
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.solvers.placement.mixed import Goal
from phaze.tolerances import BOUND_ROUNDING

MOST = 256  # limits on what a device has to do that are tried; choices that are all looked at
FEW = 2  # architectures of which every choice is looked at where that is no more


@dataclass(frozen=True)
class Architectures:
    """Architectures of devices, (K,) each; `capacity_bytes`: memory that plans may fill."""

    times: GroupTimes
    capacity_bytes: Floats
    link_bytes_per_s: Floats
    power_w: Floats

    def __len__(self) -> int:
        """Number of architectures."""
        return len(self.power_w)

    @cached_property
    def alike(self) -> list[tuple[float, float, Rows]]:
        """Architectures of one memory and one link: capacity, bandwidth, and which they are."""
        both = np.stack([self.capacity_bytes, self.link_bytes_per_s])
        kinds, which = np.unique(both, axis=1, return_inverse=True)
        found = enumerate(kinds.T.tolist())
        return [(capacity, link, np.flatnonzero(which.ravel() == k)) for k, (capacity, link) in found]


def mixed_pipelines(
    options: ShapeOptions, plan: ParallelPlan, architectures: Architectures
) -> Iterator[MixedPipeline]:
    """A plan with every choice of what ranks divide and which are neighbours; `plan` as before it is fitted."""
    zeros, orders = options.space.choices(plan)
    room = PlanFootprint.of(options.layouts, plan, zeros)
    for z, zero in enumerate(zeros):
        for order in orders:
            one = changed_plan(plan, zero=zero, order=order)
            yield MixedPipeline(options, one, architectures, room, z)


@dataclass(frozen=True)
class MixedPipeline:
    """A plan whose devices are to be of some architectures (K,); those with the same layers (DualPipe) are alike.

    A place stands for the devices that have to be alike. `zero`: which of what the `room` knows ranks divide.
    """

    options: ShapeOptions
    plan: ParallelPlan
    architectures: Architectures
    room: PlanFootprint
    zero: int

    # -- choices ---------------------------------------------------------------------------------------------

    @cached_property
    def place(self) -> Rows:
        """The place of every device, (p,)."""
        device = np.arange(self.plan.pipeline_parallel)
        return np.minimum(device, device[::-1]) if self.plan.schedule.weight_copies > 1 else device

    @cached_property
    def first(self) -> Rows:
        """The first device of every place."""
        return np.unique(self.place, return_index=True)[1]

    def devices(self, choice: Rows) -> Rows:
        """The architecture of every device, (..., p), from those of places."""
        found: Rows = choice[..., self.place]
        return found

    @cached_property
    def able(self) -> Flags:
        """Whether a place can be of an architecture, (K, places)."""
        found: Flags = self._fits[:, self.first]
        return found

    def choices(self, goal: Goal) -> Rows:
        """Choices to look at, (N, places): all that may be best where these are few (`is_exhaustive`).

        Of many: all alike, and the least power within limits on what a device has to do.
        """
        if not self.able.any(axis=0).all():
            return np.empty((0, len(self.first)), dtype=np.intp)
        if self.is_exhaustive(goal):
            return np.array(list(product(*self._of_use(goal))), dtype=np.intp)
        every = [np.full(len(self.first), k) for k in np.flatnonzero(self.able.all(axis=1))]
        return np.unique([*every, *self._within_limits(goal)], axis=0)

    def is_exhaustive(self, goal: Goal) -> bool:
        """Whether no other choice is better than those that are looked at."""
        return len(self.architectures) <= FEW and prod(map(len, self._of_use(goal))) <= MOST

    def _of_use(self, goal: Goal) -> list[Rows]:
        """Architectures of every place without another that takes no longer there, nor more power where it counts."""
        power_w = self.architectures.power_w[:, None] * (goal is Goal.ENERGY)
        return [self._undominated(place, power_w) for place in range(len(self.first))]

    def _undominated(self, place: int, power_w: Floats) -> Rows:
        chunks, sync_s, tie_s = self._each
        devices = np.flatnonzero(self.place == place)
        own, able = self.room.own[devices].ravel(), np.flatnonzero(self.able[:, place])
        passes = (chunks.forward_s, chunks.input_gradient_s, chunks.weight_gradient_s)
        after = sync_s[:, devices], tie_s[:, devices], power_w
        each = np.concatenate([*(some[:, own] for some in passes), chunks.transfer_s, *after], axis=1)[able]
        below = (each[:, None] <= each[None]).all(axis=2)  # [a, b]: a is nowhere longer than b
        first = np.tri(len(able), k=-1, dtype=np.bool_).T  # of equal ones the first
        found: Rows = able[~(below & (~below.T | first)).any(axis=0)]
        return found

    def least_s(self) -> float:
        """Lower bound of the seconds of an iteration of all choices: devices as fast as the best in every pass."""
        s, (chunks, sync_s, tie_s) = self.plan, self._each
        at, device = self._fits[:, device_of(s.schedule, s.pipeline_parallel, s.chunks)[0]], self._fits
        passes = (chunks.forward_s, chunks.input_gradient_s, chunks.weight_gradient_s)
        forward_s, input_s, weight_s = (np.where(at, one, np.inf).min(axis=0)[None] for one in passes)
        relaxed = Chunks(forward_s, input_s, weight_s, chunks.transfer_s.min(axis=0)[None], chunks.blocking)
        last_s = np.where(device, sync_s + tie_s, np.inf).min(axis=0).max()
        busy_s = pipelines_s(s.schedule, self._microbatches, s.pipeline_parallel, relaxed)[0]
        return float(busy_s + last_s + self.options.layouts.framework.iteration_s) * (1 - BOUND_ROUNDING)

    def _within_limits(self, goal: Goal) -> Iterator[Rows]:
        """The architecture of least power, and of those the fastest, within limits from the least that can be kept."""
        busy_s = np.where(self.able, self._busy_s[:, self.first], np.inf)
        least_s = busy_s.min(axis=0).max()
        if goal is Goal.TIME:
            yield busy_s.argmin(axis=0)
            return
        limits = np.unique(busy_s[np.isfinite(busy_s) & (busy_s >= least_s)])
        for limit in limits[np.unique(np.linspace(0, len(limits) - 1, min(MOST, len(limits))).astype(int))]:
            kept = busy_s <= limit
            power_w = np.where(kept, self.architectures.power_w[:, None], np.inf)
            yield np.where(power_w == power_w.min(axis=0), busy_s, np.inf).argmin(axis=0)

    def neighbours(self, rows: Sequence[int]) -> Rows:
        """All choices that differ from the architectures of devices (p,) in one place."""
        choice = np.array(rows)[self.first]
        places, others = np.nonzero(self.able.T)
        found = np.repeat(choice[None], len(places), axis=0)
        found[np.arange(len(places)), places] = others
        other: Rows = found[(found != choice).any(axis=1)]
        return other

    # -- what they take --------------------------------------------------------------------------------------

    def iteration_s(self, choices: Rows) -> Floats:
        """Seconds of an iteration, (N,), of choices of architectures for places (N, places)."""
        s, rows, (chunks, sync_s, tie_s) = self.plan, self.devices(choices), self._each
        of, at = rows[:, device_of(s.schedule, s.pipeline_parallel, s.chunks)[0]], np.arange(s.parts)
        ways = chunks.transfer_s
        mixed = Chunks(
            chunks.forward_s[of, at],
            chunks.input_gradient_s[of, at],
            chunks.weight_gradient_s[of, at],
            np.maximum(ways[of[:, :-1], at[:-1]], ways[of[:, 1:], at[:-1]]),
            chunks.blocking,
        )
        busy_s = pipelines_s(s.schedule, self._microbatches, s.pipeline_parallel, mixed)
        device = np.arange(s.pipeline_parallel)
        last_s, tied_s = sync_s[rows, device], tie_s[rows, device]
        last_s[:, [0, -1]] += tied_s[:, [0, -1]].max(axis=1, keepdims=True)
        found: Floats = busy_s + last_s.max(axis=1) + self.options.layouts.framework.iteration_s
        return found

    @cached_property
    def _microbatches(self) -> int:
        return self.options.layouts.microbatches(self.plan)

    @cached_property
    def _levels(self) -> list[tuple[Integers, Flags]]:
        """Blocks of each device that recompute, and whether it then fits, (p,) both, for each memory and link."""
        need = self.room.need_bytes[self.zero]
        each = (need <= capacity for capacity, *_ in self.architectures.alike)
        return [(np.argmax(fitting, axis=0), np.any(fitting, axis=0)) for fitting in each]

    @cached_property
    def _fits(self) -> Flags:
        """Whether a device can be of an architecture, (K, p)."""
        found = np.empty((len(self.architectures), self.plan.pipeline_parallel), dtype=np.bool_)
        for (*_, at), (_, fits) in zip(self.architectures.alike, self._levels, strict=True):
            found[at] = fits
        return found

    @cached_property
    def _each(self) -> tuple[Chunks, Floats, Floats]:
        """Chunks (K, C); gradient synchronisation without and of sums of both ends, (K, p) each, all devices alike."""
        chips, s = self.architectures, self.plan
        passes, ways = np.empty((3, len(chips), s.parts)), np.empty((len(chips), s.parts - 1))
        sync_s, tie_s = np.empty((2, len(chips), s.pipeline_parallel))
        for (_, link, at), (levels, _) in zip(chips.alike, self._levels, strict=True):
            fitted, times = self._on(levels, link), chips.times.take(at)
            chunks = fitted.chunks(times)
            passes[:, at] = chunks.forward_s, chunks.input_gradient_s, chunks.weight_gradient_s
            ways[at], tie_s[at] = chunks.transfer_s, fitted.gradient_sync_work.tie_s
            sync_s[at] = fitted.gradient_sync(times, chunks).total_s - fitted.gradient_sync_work.tie_s
        forward_s, input_s, weight_s = passes
        blocking = not self.options.layouts.framework.hides_transfers
        return Chunks(forward_s, input_s, weight_s, ways, blocking), sync_s, tie_s

    @cached_property
    def _busy_s(self) -> Floats:
        """Seconds of all passes of a device and of what follows, (K, p)."""
        s, (chunks, sync_s, tie_s) = self.plan, self._each
        own = self.room.own
        runs = self._microbatches / s.schedule.weight_copies
        found: Floats = runs * (chunks.forward_s + chunks.backward_s)[:, own].sum(axis=2) + sync_s + tie_s
        return found

    def _on(self, levels: Integers, link: float) -> FittedPlan:
        """The plan where devices recompute so many blocks, (p,)."""
        plan = self.room.at(self.plan, levels)
        return FittedPlan(CutPipeline.of(self.options, plan, link), plan)

    def fitted(self, rows: Rows) -> ParallelPlan:
        """The plan as it fits where devices are of these architectures, (p,)."""
        levels = np.empty(len(rows), dtype=np.int64)
        for (*_, at), (some, _) in zip(self.architectures.alike, self._levels, strict=True):
            mine = np.isin(rows, at)
            levels[mine] = some[mine]
        return self.room.at(self.plan, levels)
