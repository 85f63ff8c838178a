"""The least that has to be recomputed for plans to fit in memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, Zero, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.training.memory.memory_footprint import (
    ChunkFootprint,
    GroupFootprint,
    ranks_of,
    recomputed_groups,
)
from phaze.parallel.training.plan_layouts import PlanLayouts


@dataclass(frozen=True, slots=True)
class Fit:
    """A plan that fits, or none; `least_bytes`: of its fullest device, with the recompute that helps most.

    `least_host_bytes`: the same in the memory of its host, where that alone is too small.
    """

    plan: ParallelPlan | None
    least_bytes: float
    least_host_bytes: float = inf


def fits(
    layouts: PlanLayouts,
    plan: ParallelPlan,
    zeros: Sequence[Zero],
    capacity_bytes: float,
    host_bytes: float = inf,
) -> list[Fit]:
    """For each of what ranks may divide, the fewest blocks of every device recomputed that make the plan fit.

    What it leaves to the hosts has to fit there, too, into `host_bytes` for a device.
    """
    return PlanFootprint.of(layouts, plan, zeros).fits(capacity_bytes, host_bytes)


@dataclass(frozen=True)
class PlanFootprint:
    """Memory footprint of a plan in bytes, for each ZeRO stage that it may have, however much is recomputed.

    Blocks recompute where it asks for full recompute of none of them; others fit as they are or not at all. Devices
    recompute from their first chunk on, which keeps the most microbatches. Fewer blocks never take longer, and no
    device gains by what another recomputes, so that no other choice of blocks alike is faster.
    `need_bytes`, `host_bytes` (Z, N, p): on every device, and in its host, with 0 .. N - 1 blocks recomputed.
    """

    plan: ParallelPlan
    zeros: tuple[Zero, ...]
    own: Integers
    blocks: Integers
    need_bytes: Floats
    host_bytes: Floats

    @classmethod
    def of(cls, layouts: PlanLayouts, plan: ParallelPlan, zeros: Sequence[Zero]) -> PlanFootprint:
        """Footprint of a plan that divides each of those in turn."""
        many = FootprintBatch.of(layouts, [plan], zeros)
        return cls(plan, many.zeros, many.own, many.blocks[0], many.need_bytes[:, 0], many.host_bytes[:, 0])

    def fits(self, capacity_bytes: float, host_bytes: float = inf) -> list[Fit]:
        """Fit of each into a capacity, or none."""
        fitted = FittedLevels.of(self.need_bytes, self.host_bytes, capacity_bytes, host_bytes)
        return [self._fit(z, fitted) for z in range(len(self.zeros))]

    def _fit(self, z: int, fitted: FittedLevels) -> Fit:
        least, host = float(fitted.least_bytes[z]), float(fitted.least_host_bytes[z])
        if not fitted.fits[z]:
            return Fit(None, least, host)
        return Fit(self.at(replace(self.plan, zero=self.zeros[z]), fitted.levels[z]), least)

    def at(self, plan: ParallelPlan, levels: Integers) -> ParallelPlan:
        """A plan that divides something of these where devices recompute so many blocks, (p,)."""
        return with_blocks(plan, spread(levels, self.own, self.blocks), frugal(self.plan))


@dataclass(frozen=True)
class FittedLevels:
    """Which of some footprints (...) fit into a capacity, with the fewest blocks `levels` (..., p) that do it.

    `least_bytes`: of the fullest device with the recompute that helps most; `least_host_bytes`: the same in the memory
    of its host, where that alone is too small, otherwise infinite.
    """

    fits: Flags
    levels: Integers
    least_bytes: Floats
    least_host_bytes: Floats

    @classmethod
    def of(
        cls, need_bytes: Floats, host_needs_bytes: Floats, capacity_bytes: float, host_bytes: float
    ) -> FittedLevels:
        """Fits of footprints (..., N, p) into the memory of devices and hosts."""
        fitting = (need_bytes <= capacity_bytes) & (host_needs_bytes <= host_bytes)
        fits = np.asarray(fitting.any(axis=-2).all(axis=-1))
        least = need_bytes.min(axis=-2).max(axis=-1)
        hosts = np.where(~fits & (least <= capacity_bytes), host_needs_bytes.min(axis=-2).max(axis=-1), inf)
        return cls(fits, fitting.argmax(axis=-2), least, hosts)


@dataclass(frozen=True)
class FootprintBatch:
    """Footprints of plans (B,) that are `alike`, as of `PlanFootprint`, (Z, B, N, p).

    N is that of the one with the most blocks on a device; others have their last row again. `blocks` (B, C).
    """

    zeros: tuple[Zero, ...]
    own: Integers
    blocks: Integers
    need_bytes: Floats
    host_bytes: Floats

    @classmethod
    def of(cls, layouts: PlanLayouts, plans: Sequence[ParallelPlan], zeros: Sequence[Zero]) -> FootprintBatch:
        """Footprints of plans that divide each of those in turn."""
        s = plans[0]
        own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
        divisions = [layouts.division(one) for one in plans]
        blocks = np.array([division.blocks for division in divisions])
        recomputation = (
            _first_blocks(divisions, own, blocks)
            if frugal(s)
            else np.array([[recomputed_groups(d, one)] for d, one in zip(divisions, plans, strict=True)])
        )
        return cls(tuple(zeros), own, blocks, *_footprints(layouts, plans, zeros, recomputation))


def alike(layouts: PlanLayouts, plan: ParallelPlan) -> Hashable:
    """Key of plans whose footprints are made together.

    They have as many stages and chunks, in the same places, cut out of the same groups, swap chunks or do not, and
    differ in layers, cuts, replicas and microbatches.
    """
    s, division = plan, layouts.division(plan)
    return (
        *(s.schedule.joins_ends, s.schedule.weight_copies, s.pipeline_parallel, s.chunks),
        *(division.groups, division.body, frugal(s), s.offload, not s.offloaded, s.reshards),
        s.schedule.chunk_by_chunk,
    )


def _first_blocks(divisions: Sequence[Division], own: Integers, blocks: Integers) -> Flags:
    """Groups that run again where all devices recompute 0 .. N - 1 blocks, or all that they have, (B, N, G)."""
    most = int(blocks[:, own].sum(axis=2).max())
    counts = np.broadcast_to(np.arange(most + 1)[:, None], (len(blocks), most + 1, len(own)))
    return first_blocks(divisions, spread(counts, own, blocks[:, None]))


def first_blocks(divisions: Sequence[Division], counts: Integers) -> Flags:
    """`Division.first_blocks` of each of as many divisions, (B, ..., G), of counts (B, ..., C)."""
    inside = (len(divisions), *[1] * (counts.ndim - 2), -1)
    chunk = np.array([division.chunk_of_groups for division in divisions]).reshape(inside)
    ranks = np.array([division.ranks for division in divisions]).reshape(inside)
    chunk = np.broadcast_to(chunk, (*counts.shape[:-1], chunk.shape[-1]))
    found: Flags = ranks < np.take_along_axis(counts, chunk, axis=-1)
    return found


def frugal(plan: ParallelPlan) -> bool:
    """Whether as few blocks recompute as memory asks for."""
    return plan.recompute is Recompute.FULL and plan.recomputed == 0


def _footprints(
    layouts: PlanLayouts, plans: Sequence[ParallelPlan], zeros: Sequence[Zero], recomputation: Flags
) -> tuple[Floats, Floats]:
    """Bytes on every device, and in its host, (Z, B, N, p), where groups run again, (B, N, G)."""
    s, firsts = plans[0], np.array([layouts.division(one).first_groups for one in plans])
    groups = GroupFootprint.stacked([layouts.memory_footprint(one) for one in plans])
    footprint = ChunkFootprint.cut(groups, firsts, layouts.division(s).body, recomputation)
    own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
    held = _held(layouts, plans)
    ranks = tuple(np.array([ranks_of(one) for one in plans]).T[..., None, None])
    memories = [
        replace(layouts.memory_of(changed_plan(s, zero=zero), footprint), divided_by=ranks) for zero in zeros
    ]
    fixed = np.array([memory.fixed_bytes(own) for memory in memories])
    kept, working = memories[0].activations_bytes(own, held)
    if s.branches:
        waiting = np.array([layouts.waiting_bytes(one) for one in plans])[:, None]
        kept = kept + (1 + layouts.framework.fragmentation) * waiting
    none = np.zeros((*recomputation.shape[:2], 1))
    host = np.array([none + memory.host_bytes(own, held) for memory in memories])
    return fixed + (kept + working), host


def _held(layouts: PlanLayouts, plans: Sequence[ParallelPlan]) -> Integers:
    """Microbatches in flight, (B, 1, p, K, slots); of fewer combinations than others the first one again."""
    each = [layouts.held(one) for one in plans]
    most = max(one.shape[1] for one in each)
    return np.array(
        [[np.concatenate([one, one[:, :1].repeat(most - one.shape[1], axis=1)], axis=1)] for one in each]
    )


def with_blocks(plan: ParallelPlan, counts: Integers, frugal: bool) -> ParallelPlan:
    """The plan that recomputes so many blocks of every chunk, (C,); as it is where it is not `frugal`."""
    if not frugal:
        return plan
    if not counts.any():
        return changed_plan(plan, recompute=Recompute.NONE)
    return changed_plan(plan, recomputed=tuple(counts.tolist()))


def spread(counts: Integers, own: Integers, blocks: Integers) -> Integers:
    """Blocks of every chunk (..., C) from those of every device (..., p), its first chunks first.

    `blocks` (C,), or what broadcasts to (..., C). Of the copies of a chunk, the larger number.
    """
    lead, stages = counts.shape[:-1], len(own)
    limits = np.moveaxis(np.broadcast_to(blocks, (*lead, blocks.shape[-1])), -1, 0)
    found, left = np.zeros(limits.shape, dtype=np.int64), np.moveaxis(counts, -1, 0)
    halves = (slice(stages // 2), slice(stages // 2, stages))  # copies of a chunk lie in different ones
    for slot in own.T:
        here = np.minimum(left, limits[slot])
        for half in halves:
            found[slot[half]] = np.maximum(found[slot[half]], here[half])
        left = left - here
    return np.moveaxis(found, 0, -1)
