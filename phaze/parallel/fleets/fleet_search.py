"""The best pipeline across the pools of a fleet: stages by a global program, best first, with a certified bound."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

import numpy as np

from phaze.errors import InputError
from phaze.parallel.cluster import Recompute
from phaze.parallel.fleets.fleet_file import Fleet
from phaze.parallel.fleets.stage_options import Common, Member, StageOptions, Width
from phaze.parallel.fleets.unlike_pipeline import StagePlace, UnlikePipeline
from phaze.parallel.parallel_plan import ParallelPlan, Zero, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.memory_fit import PlanFootprint
from phaze.scheduling.passes import NEVER_S
from phaze.solvers.placement.pools import PoolPlan, PoolSearch, PoolStage

MOST_LOOKS = 400
"""Pipelines that are worked out before a search ends with a gap."""

MOST_STAGES = 64


@dataclass
class FleetTally:
    """Work of a search: programs solved, pipelines worked out, and those among them that did not fit."""

    solved: int = 0
    looked_at: int = 0
    unfit: int = 0


@dataclass(frozen=True)
class FleetFound:
    """The best pipeline across pools, its value, and a value that no pipeline of the space is better than."""

    pipeline: UnlikePipeline | None
    value: float
    bound: float


_Entry = tuple[float, int, "Common | tuple[Common, PoolPlan, Iterator[PoolPlan]]"]


@dataclass
class FleetSearch:
    """Pipelines of one chunk on each device, 1F1B, whose stages have a pool and a tensor width each.

    `rated`: whether the value is seconds x the rates of devices in use, or seconds alone; `paid`: whether money for
    what leaves zones is added. `below`: values from there on are of no interest.
    """

    fleet: Fleet
    members: tuple[Member, ...]
    rated: bool = False
    paid: bool = False
    below: float = inf
    most_looks: int = MOST_LOOKS
    tally: FleetTally = field(default_factory=FleetTally)
    _options: dict[int, StageOptions] = field(default_factory=dict)

    def best(self) -> FleetFound:
        """The best of all; ends early after so many looks, with the bound of what is left."""
        found, best, shut = None, self.below, inf
        queue, numbers = self._queue(), count()
        while queue:
            bound, _, entry = heapq.heappop(queue)
            if bound >= best:
                break
            if self.tally.looked_at >= self.most_looks:
                return FleetFound(found, best, min(bound, shut))
            if isinstance(entry, Common):
                if not self._of(entry).opens(entry):
                    shut = min(shut, bound)
                    continue
                common, plans = entry, self._opened(entry, best).plans()
            else:
                common, plan, plans = entry
                pipeline = self._worked_out(common, plan)
                if pipeline is not None and (value := self.value(pipeline)) < best:
                    found, best = pipeline, value
            if (following := next(plans, None)) is not None:
                heapq.heappush(
                    queue, (max(following.value, bound), next(numbers), (common, following, plans))
                )
        return FleetFound(found, best, min(best, shut))

    def value(self, pipeline: UnlikePipeline) -> float:
        """What is minimised, of a pipeline."""
        seconds = pipeline.iteration.iteration_s
        if not self.rated:
            return seconds if seconds < NEVER_S else inf
        rates = {member.pool.name: member.rate for member in self.members}
        value = seconds * sum(rates[name] * n for name, n in pipeline.used.items())
        return value + pipeline.egress_usd if self.paid else value

    # -- what is looked at -----------------------------------------------------------------------------------

    def _queue(self) -> list[_Entry]:
        """What stages may share, by bounds."""
        found: list[_Entry] = []
        for number, common in enumerate(self.commons()):
            options = self._of(common)
            rate = min((m.rate for m in self.members), default=1.0) if self.rated else 1.0
            found.append((options.least_s(common) * rate, -1 - number, common))
        heapq.heapify(found)
        return found

    def commons(self) -> Iterator[Common]:
        """Microbatches, replicas and what these divide."""
        first = self.members[0]
        space = first.space
        if Schedule.ONE_F_ONE_B not in space.schedules or 1 not in space.chunks:
            return
        if frozenset() not in space.offloads or {*space.context, *space.expert}.isdisjoint({1}):
            return
        batch = first.estimator.cluster.global_batch
        for microbatch in first.space.microbatches:
            total, rest = divmod(batch, microbatch)
            most = max(member.pool.devices for member in self.members)
            for replicas in range(1, 0 if rest else min(total, most) + 1):
                if (total % replicas and not first.space.ragged) or replicas not in (
                    first.space.data or (replicas,)
                ):
                    continue
                if -(-total // -(-total // replicas)) != replicas:
                    continue  # fewer have the same number of microbatches each
                for zero in self._zeros(first, microbatch, replicas):
                    yield Common(microbatch, replicas, zero)

    @staticmethod
    def _zeros(member: Member, microbatch: int, replicas: int) -> tuple[Zero, ...]:
        return member.space.choices(ParallelPlan(microbatch, replicas, 2))[0]

    def _of(self, common: Common) -> StageOptions:
        if common.microbatch not in self._options:
            self._options[common.microbatch] = StageOptions(self.members, common.microbatch)
        return self._options[common.microbatch]

    def _opened(self, common: Common, below: float) -> PoolSearch:
        self.tally.solved += 1
        rates = [common.replicas * member.rate for member in self.members] if self.rated else None
        stages = self.members[0].space.pipeline or range(1, MOST_STAGES + 1)
        return PoolSearch(self._of(common).chain(common), stages, below, rates)

    # -- one pipeline ----------------------------------------------------------------------------------------

    def _worked_out(self, common: Common, plan: PoolPlan) -> UnlikePipeline | None:
        """A pipeline with as few blocks recomputed as memory asks for; None where it does not fit, or is none."""
        if len({self._width(common, stage).member.pool.name for stage in plan.stages}) < 2:
            return None  # what ordinary plans are for
        self.tally.looked_at += 1
        places = self._places(common, plan.stages)
        if places is None:
            self.tally.unfit += 1
            return None
        return UnlikePipeline(self.fleet, places)

    def _width(self, common: Common, stage: PoolStage) -> Width:
        return self._of(common).widths[stage.option]

    def _places(self, common: Common, stages: tuple[PoolStage, ...]) -> tuple[StagePlace, ...] | None:
        widths = [self._width(common, stage) for stage in stages]
        cut = {
            "data_parallel": common.replicas,
            "pipeline_parallel": len(stages),
            "zero": common.zero,
            "stages": tuple(stage.last + 1 - stage.first for stage in stages),
        }
        plans = [changed_plan(width.shape, **cut) for width in widths]
        again = [
            self._least(width, plan, i) for i, (width, plan) in enumerate(zip(widths, plans, strict=True))
        ]
        if any(n is None for n in again):
            return None
        blocks = tuple(n or 0 for n in again)
        return tuple(
            StagePlace(width.member.pool, width.member.estimator, _with(plan, blocks))
            for width, plan in zip(widths, plans, strict=True)
        )

    @staticmethod
    def _least(width: Width, plan: ParallelPlan, stage: int) -> int | None:
        """Fewest blocks of a stage that recompute so that it fits; None where it does not."""
        try:
            room = PlanFootprint.of(width.member.estimator.layouts, plan, (plan.zero,))
        except InputError:
            return None
        fits = np.flatnonzero(room.need_bytes[0, :, stage] <= width.member.capacity_bytes)
        return int(fits[0]) if len(fits) else None


def _with(plan: ParallelPlan, blocks: tuple[int, ...]) -> ParallelPlan:
    """The plan that recomputes so many blocks of each stage, where it recomputes as few as need be."""
    if plan.recompute is not Recompute.FULL or plan.recomputed is None:
        return plan
    if not any(blocks):
        return replace(plan, recompute=Recompute.NONE, recomputed=None)
    return replace(plan, recomputed=blocks)
