"""Pipelines as they fit into memory, many at once, with lower bounds that know what has to run again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.parallel_plan import ParallelPlan, RankOrder, Zero, changed_plan
from phaze.parallel.plan_batches.memory_fit import (
    FittedLevels,
    FootprintBatch,
    alike,
    first_blocks,
    frugal,
    spread,
    with_blocks,
)
from phaze.parallel.plan_search.plan_lower_bounds import busy_bound_s
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.stage_times import GroupPasses

_AT_ONCE = 256
"""Pipelines that are fitted at once, so that arrays stay small."""


class FittedPipeline(NamedTuple):
    """Plans that fit, which differ in their rank order alone, and a bound of their pipelines.

    `which`: the pipeline that was asked for; `number`: the first of the plans among all of this pipeline. `counts`:
    blocks of every chunk that run again, where as few do as memory asks for. `short_bytes` (p,): what every device
    lacks where none does. `mixes`: replicas may divide the weights of some blocks beside others, so that it may fit
    even where these plans do not, which then are `unfit`.
    """

    which: int
    number: int
    busy_s: float
    pipeline: ParallelPlan
    zero: Zero
    counts: Integers
    orders: tuple[RankOrder, ...]
    short_bytes: Floats
    mixes: bool = False
    unfit: bool = False

    @property
    def plans(self) -> Iterator[ParallelPlan]:
        """Each of them."""
        divided = changed_plan(self.pipeline, zero=self.zero)
        one = with_blocks(divided, self.counts, frugal(self.pipeline))
        return (changed_plan(one, order=order) for order in self.orders)


@dataclass
class MemoryTally:
    """What was seen of memory: plans that do not fit, what the leanest needs, batches that were worked out."""

    out_of_memory: int = 0
    least_bytes: float = inf
    least_host_bytes: float = inf
    batches: int = 0


class _Open(NamedTuple):
    """A pipeline whose ZeRO stage is open, under one choice of what hosts keep."""

    which: int
    number: int
    plan: ParallelPlan
    zeros: tuple[Zero, ...]
    orders: tuple[RankOrder, ...]


@dataclass(frozen=True)
class PipelineFits:
    """Fits of pipelines of a space into the memory of one architecture."""

    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    tally: MemoryTally

    def fitted(self, pipelines: Sequence[ParallelPlan]) -> Iterator[FittedPipeline]:
        """Variants of pipelines that fit in memory, as they fit."""
        batches: dict[Hashable, list[_Open]] = {}
        for one in self._opened(pipelines):
            batches.setdefault((one.zeros, alike(self.estimator.layouts, one.plan)), []).append(one)
        for some in batches.values():
            for start in range(0, len(some), _AT_ONCE):
                yield from self._batch(some[start : start + _AT_ONCE])

    def least(self, pipelines: Sequence[ParallelPlan]) -> MemoryTally:
        """What the leanest of pipelines need of which none fits."""
        alone = replace(self, tally=MemoryTally())
        for _ in alone.fitted(pipelines):
            raise ValueError("one of them fits")
        return alone.tally

    def _opened(self, pipelines: Sequence[ParallelPlan]) -> Iterator[_Open]:
        for which, pipeline in enumerate(pipelines):
            zeros, orders = self.space.choices(pipeline)
            for place, plan in enumerate(self.space.offloaded(pipeline)):
                yield _Open(which, place * len(zeros) * len(orders), plan, zeros, orders)

    def _batch(self, some: Sequence[_Open]) -> Iterator[FittedPipeline]:
        """Variants of pipelines that are alike."""
        plans, zeros = [one.plan for one in some], some[0].zeros
        room = FootprintBatch.of(self.estimator.layouts, plans, zeros)
        self.tally.batches += 1
        host = self.estimator.host_capacity_bytes(plans[0])
        fitted = FittedLevels.of(room.need_bytes, room.host_bytes, self.capacity_bytes, host)
        self._told(fitted, some)
        yield from self._mixed(some, room, fitted)
        divided, which = np.nonzero(fitted.fits)
        if not len(which):
            return
        counts = spread(fitted.levels[divided, which], room.own, room.blocks[which])
        busy_s = self._busy_s([plans[row] for row in which.tolist()], counts).tolist()
        for z, row, seconds, blocks in zip(divided.tolist(), which.tolist(), busy_s, counts, strict=True):
            one = some[row]
            number = one.number + z * len(one.orders)
            short = room.need_bytes[z, row, 0] - self.capacity_bytes
            yield FittedPipeline(one.which, number, seconds, one.plan, zeros[z], blocks, one.orders, short)

    def _mixed(
        self, some: Sequence[_Open], room: FootprintBatch, fitted: FittedLevels
    ) -> Iterator[FittedPipeline]:
        """Pipelines under ZeRO 1, some blocks of which may be divided as under ZeRO 3."""
        first, zeros = some[0].plan, some[0].zeros
        if not self.space.by_layer or not frugal(first) or not {Zero.OPTIMIZER, Zero.WEIGHTS} <= {*zeros}:
            return
        if first.offload or not first.reshards or first.schedule.weight_copies > 1:
            return
        z = zeros.index(Zero.OPTIMIZER)
        short = room.need_bytes[z, :, 0] - self.capacity_bytes
        none = np.zeros(room.blocks.shape[1], dtype=np.int64)
        for row in range(len(some)):
            one, unfit = some[row], not fitted.fits[z, row]
            number = one.number + z * len(one.orders)
            for at, order in enumerate(one.orders):
                yield FittedPipeline(
                    one.which, number + at, 0.0, one.plan, zeros[z], none, (order,), short[row], True, unfit
                )

    def _told(self, fitted: FittedLevels, some: Sequence[_Open]) -> None:
        """Count what does not fit."""
        tally = self.tally
        tally.least_bytes = min(tally.least_bytes, float(fitted.least_bytes.min()))
        tally.least_host_bytes = min(tally.least_host_bytes, float(fitted.least_host_bytes.min()))
        for one, unfit in zip(some, (~fitted.fits).sum(axis=0).tolist(), strict=True):
            tally.out_of_memory += unfit * len(one.orders)

    def _busy_s(self, plans: Sequence[ParallelPlan], counts: Integers) -> Floats:
        """Lower bound of pipelines that are alike, (n,), where chunks run so many blocks again, (n, C)."""
        e, divisions = self.estimator, [self.estimator.division(s) for s in plans]
        again = (
            first_blocks(divisions, counts)
            if frugal(plans[0])
            else np.array([recomputed_groups(d, s) for d, s in zip(divisions, plans, strict=True)])
        )
        groups = GroupPasses(np.array([e.passes(s) for s in plans]))
        first = np.array([division.first_groups for division in divisions])
        passes = groups.chunks(first, again, e.framework)
        microbatches = np.array([e.microbatches(s) for s in plans])
        schedules = [s.schedule for s in plans]
        found = np.empty(len(plans))
        for schedule in dict.fromkeys(schedules):
            rows = np.flatnonzero([one is schedule for one in schedules])
            stages = plans[0].pipeline_parallel
            found[rows] = busy_bound_s(schedule, stages, passes.take(rows), microbatches[rows])
        return found
