"""The least that has to be recomputed for plans to fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.training.memory_footprint import ChunkFootprint, recomputed_groups
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
        s = plan
        own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
        blocks = layouts.division(s).blocks
        choices = None
        if _frugal(s):
            most = int(blocks[own].sum(axis=1).max())
            counts = np.broadcast_to(np.arange(most + 1)[:, None], (most + 1, len(own)))
            choices = spread(counts, own, blocks)
        return cls(s, tuple(zeros), own, blocks, *_footprint(layouts, s, zeros, choices))

    def fits(self, capacity_bytes: float, host_bytes: float = inf) -> list[Fit]:
        """Fit of each into a capacity, or none."""
        return [self._fit(z, capacity_bytes, host_bytes) for z in range(len(self.zeros))]

    def _fit(self, z: int, capacity_bytes: float, host_bytes: float) -> Fit:
        need, host = self.need_bytes[z], self.host_bytes[z]
        fitting = (need <= capacity_bytes) & (host <= host_bytes)
        least = float(need.min(axis=0).max())
        if not fitting.any(axis=0).all():
            return Fit(None, least, float(host.min(axis=0).max()) if least <= capacity_bytes else inf)
        return Fit(self.at(replace(self.plan, zero=self.zeros[z]), fitting.argmax(axis=0)), least)

    def at(self, plan: ParallelPlan, levels: Integers) -> ParallelPlan:
        """A plan that divides something of these where devices recompute so many blocks, (p,)."""
        return with_blocks(plan, spread(levels, self.own, self.blocks), _frugal(self.plan))


def _frugal(plan: ParallelPlan) -> bool:
    """Whether as few blocks recompute as memory asks for."""
    return plan.recompute is Recompute.FULL and plan.recomputed == 0


def _footprint(
    layouts: PlanLayouts, plan: ParallelPlan, zeros: Sequence[Zero], choices: Integers | None
) -> tuple[Floats, Floats]:
    """Bytes on every device, and in its host (zeros, N, p), under N choices of blocks that recompute, (N, C).

    None: the plan's own.
    """
    s, division = plan, layouts.division(plan)
    recomputation = (
        recomputed_groups(division, s)[None] if choices is None else division.first_blocks(choices)
    )
    footprint = ChunkFootprint.of(layouts.memory_footprint(s), division, recomputation)
    own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
    held = in_flight_peak(s.schedule, s.pipeline_parallel, layouts.microbatches(s), s.chunks)
    memories = [layouts.memory_of(replace(s, zero=zero), footprint) for zero in zeros]
    fixed = np.array([memory.fixed_bytes(own) for memory in memories])
    kept, working = memories[0].activations_bytes(own, held)
    host = np.array([np.zeros((len(recomputation), 1)) + memory.host_bytes(own, held) for memory in memories])
    return fixed[:, None] + (kept + working), host


def with_blocks(plan: ParallelPlan, counts: Integers, frugal: bool) -> ParallelPlan:
    """The plan that recomputes so many blocks of every chunk, (C,); as it is where it is not `frugal`."""
    if not frugal:
        return plan
    if not counts.any():
        return replace(plan, recompute=Recompute.NONE)
    return replace(plan, recomputed=tuple(counts.tolist()))


def spread(counts: Integers, own: Integers, blocks: Integers) -> Integers:
    """Blocks of every chunk (..., C) from those of every device (..., p), its first chunks first.

    Of the copies of a chunk, the larger number.
    """
    found, left = np.zeros((len(blocks), *counts.shape[:-1]), dtype=np.int64), counts.T
    for slot in own.T:
        here = np.minimum(left.T, blocks[slot]).T
        np.maximum.at(found, slot, here)
        left = left - here
    return found.T
