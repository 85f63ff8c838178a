"""The best plan of a shape on pipelines of mixed architectures: cuts and architectures chosen together, exactly."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf

import numpy as np

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, Zero, changed_plan
from phaze.parallel.plan_batches.plan_outline import PlanTier, plan_lower_bounds_s
from phaze.parallel.plan_batches.plan_table import PlanTable
from phaze.parallel.plan_batches.shape_options import Depth, ShapeOptions
from phaze.parallel.plan_search.mixed_pipelines import FEW, Architectures, MixedPipeline, mixed_pipelines
from phaze.parallel.training.memory.memory_footprint import ChunkFootprint, ranks_of
from phaze.scheduling.passes import NEVER_S
from phaze.solvers.placement.mixed import Goal, MixedChain, line_bounds, place_mixed
from phaze.solvers.placement.mixed import Line as MixedLine
from phaze.solvers.placement.stage_costs import interval_sums
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class Line:
    """A pipeline of one chunk on each device, whose cuts are open; `bound`: what no choice of them is better than."""

    depth: Depth
    pipeline: ParallelPlan
    problem: MixedLine
    bound: float


@dataclass(frozen=True)
class Cutting:
    """Pipelines of one shape on devices of some architectures (K,)."""

    options: ShapeOptions
    architectures: Architectures

    def lines(self, goal: Goal) -> list[Line]:
        """Every number of stages and replicas whose cuts are worth a look, with bounds."""
        deep = [(depth, one) for depth in self.options.depths for one in depth.pipelines]
        some = [(d, s) for d, s in deep if s.chunks == 1 < s.pipeline_parallel < len(self.options.blocks)]
        if not self.options.space.balances or len(self.architectures) < 2:
            return []
        problems = [self._line(plan) for _, plan in some]
        bounds = line_bounds(problems, goal).tolist()
        return [Line(d, s, *rest) for (d, s), *rest in zip(some, problems, bounds, strict=True)]

    def stages(self, line: Line, goal: Goal, most_s: float) -> tuple[int, ...]:
        """Blocks of every stage of the best plan of the program; empty where none fits or keeps `most_s`."""
        found = place_mixed([self._fitting(line.pipeline)], goal, most_s)
        return tuple(stage.last + 1 - stage.first for stage in found.stages)

    # -- without memory --------------------------------------------------------------------------------------

    def _line(self, plan: ParallelPlan) -> MixedLine:
        layouts, chips = self.options.layouts, self.architectures
        ranks = max(ranks_of(plan)) if any(self._zeros(plan)) else 1
        return MixedLine(
            chain=self._chain,
            stages=plan.pipeline_parallel,
            slots=float(layouts.microbatches(plan)),
            rate_s=chips.times.optimizer_s * layouts.framework.optimizer_stretch / ranks,
            latency_s=layouts.framework.iteration_s,
        )

    def _zeros(self, plan: ParallelPlan) -> tuple[Zero, ...]:
        return self.options.space.choices(plan)[0]

    @cached_property
    def _chain(self) -> MixedChain:
        """Blocks with what comes before the first and after the last, whatever fits."""
        first, chips, count = self.options.blocks, self.architectures, len(self.options.blocks)
        inner = self.runs_s(self.options.recomputation)
        sizes = self.options.layouts.sizes(self.options.shape)
        parameters = np.add.reduceat(sizes.parameters[0], [g for g, _ in self.options.division.groups])
        return MixedChain(
            inner_s=inner,
            last_s=inner[:, :, -1].copy(),
            deepest=np.full((1, count, count), count),
            group=np.zeros(len(chips), dtype=np.int64),
            weight=np.add.reduceat(parameters, first),
            power_w=chips.power_w,
        )

    def runs_s(self, recomputation: Flags) -> Floats:
        """Seconds of one microbatch in runs of blocks i..j, of which some kinds run again, (K, L, L)."""
        rows, (_, kinds) = self.architectures.times.rows, self.options.kinds
        seconds = (rows[:, 0] + rows[:, 2] + recomputation * rows[:, 1])[:, kinds]
        return np.stack([interval_sums(one) for one in np.add.reduceat(seconds, self.options.blocks, axis=1)])

    # -- within memory ---------------------------------------------------------------------------------------

    def _fitting(self, plan: ParallelPlan) -> MixedLine:
        """The same with every architecture twice, as it is and with all blocks recomputed, where that is free."""
        line, chain, modes = self._line(plan), self._chain, self.modes
        capacities, group = np.unique(self.architectures.capacity_bytes, return_inverse=True)
        loads = [self.runs_s(recomputation) for recomputation in modes]
        most = replace(plan, zero=max(self._zeros(plan)))
        deepest = [self.deepest(most, recomputation, capacities) for recomputation in modes]
        inner, every = np.concatenate(loads), np.concatenate(deepest)
        groups = np.concatenate([group.ravel() + k * len(capacities) for k in range(len(modes))])
        last = np.where(every[groups][:, :, -1] >= 1, inner[:, :, -1], np.inf)
        power_w, rate_s = (np.tile(each, len(modes)) for each in (chain.power_w, line.rate_s))
        fitting = MixedChain(inner, last, every, groups, chain.weight, power_w)
        return replace(line, chain=fitting, rate_s=rate_s)

    @cached_property
    def modes(self) -> list[Flags]:
        """Kinds of groups that run again: as the shape has it, and all blocks where as few as need be do."""
        shape, (first, which) = self.options.shape, self.options.kinds
        if shape.recompute is not Recompute.FULL or shape.recomputed is None:
            return [self.options.recomputation]
        every = np.zeros(len(first), dtype=np.bool_)
        every[which[np.array(self.options.division.body)]] = True
        return [self.options.recomputation, every]

    def deepest(self, plan: ParallelPlan, recomputation: Flags, capacities: Floats) -> Integers:
        """The largest index from the end at which runs of blocks i..j fit into each memory, (G, L, L).

        Under 1F1B, which holds as many microbatches as there are stages to the end.
        """
        layouts, count = self.options.layouts, len(self.options.blocks)
        memory = layouts.memory_of(plan, self._footprint(recomputation))
        own = np.arange(count * count)[:, None]
        kept, working = memory.activations_bytes(own, np.ones((count * count, 1, 1)))
        room = capacities[:, None] - (memory.fixed_bytes(own) + working)
        most = np.divide(room, kept, out=np.full_like(room, np.inf), where=kept > 0)
        held = np.where(room < 0, 0.0, np.where(most >= layouts.microbatches(plan), count, most))
        return np.minimum(held, count).astype(np.int64).reshape(len(capacities), count, count)

    def _footprint(self, recomputation: Flags) -> ChunkFootprint:
        """Memory footprint of runs of blocks i..j, (L L,)."""
        layouts, (_, which) = self.options.layouts, self.options.kinds
        apart = replace(self.options.shape, pipeline_parallel=len(self.options.blocks), stages=())
        division = layouts.division(apart)
        each = ChunkFootprint.of(
            layouts.memory_footprint(apart), division, recomputation[which] & np.array(division.body)
        )
        largest = {"working_bytes", "largest", "widest_bytes"}
        runs = {f.name: getattr(each, f.name) for f in fields(ChunkFootprint)}
        return ChunkFootprint(
            **{
                n: (interval_maxima if n in largest else interval_sums)(one).ravel()
                for n, one in runs.items()
            }
        )


def interval_maxima(values: Floats) -> Floats:
    """Largest of values[i..j] at [i, j], none of them negative."""
    found: Floats = np.maximum.accumulate(
        np.triu(np.broadcast_to(values, (len(values), len(values)))), axis=1
    )
    return found


@dataclass(frozen=True)
class MixedFound:
    """A plan as it fits, and the architecture of every device of a pipeline, (p,).

    `value`: seconds of an iteration, or joules of a device where power counts.
    """

    plan: ParallelPlan
    rows: tuple[int, ...]
    iteration_s: float
    value: float


@dataclass
class MixedTally:
    """Plans of the space with every cut that was made for them, and those that bounds did not rule out.

    `open_value`: what nothing is better than that was left out: choices of architectures for a plan that was looked
    at, and plans for which time was up.
    """

    plans: int = 0
    looked_at: int = 0
    open_value: float = inf


@dataclass(frozen=True)
class MixedSearch:
    """Plans of one shape, tier by tier (as of `FastestPlans`), on devices of some architectures (K,).

    `most_s`: iterations that take longer are of no use. `over`: whether time is up.
    """

    options: ShapeOptions
    tiers: Sequence[PlanTier]
    architectures: Architectures
    goal: Goal
    most_s: float = inf
    over: Callable[[], bool] = lambda: False
    tally: MixedTally = field(default_factory=MixedTally)

    def best(self, first: ParallelPlan | None = None, below: float = inf) -> MixedFound | None:
        """The best of all whose value is less than `below`; None where there is none, or time was up before.

        `first`: a plan to begin with, whatever it recomputes.
        """
        best: MixedFound | None = None
        if first is not None and (own := self._better(self._whole(first), None, below)):
            best = self._improved(own)
        queue = self._queue()
        while queue and not self.over():
            bound, _, some = heapq.heappop(queue)
            if bound >= (below if best is None else best.value):
                break
            if isinstance(some, Line):
                for plan in self._cut(some):
                    heapq.heappush(queue, (bound, self.tally.plans, plan))
                    self.tally.plans += 1
            else:
                best = self._better(some, best, below)
        if queue and self.over():
            self.tally.open_value = min(self.tally.open_value, queue[0][0])
        return None if best is None else self._improved(best)

    def lower_bound(self) -> float:
        """Lower bound of every mixed pipeline of the shape, for next to nothing."""
        least = (float(tier.outline.least_s(self._terms)[0]) for tier in self.tiers)
        seconds = min(least, default=inf)
        if seconds > self.most_s:
            return inf
        if self.goal is Goal.TIME:
            return seconds
        share = self.options.least_share * (1 - BOUND_ROUNDING)
        return max(seconds * float(self.architectures.power_w.min()), share * self._joules)

    def _whole(self, plan: ParallelPlan) -> ParallelPlan:
        """A plan as the shape has it before anything is fitted."""
        shape = self.options.shape
        return replace(plan, recompute=shape.recompute, recomputed=shape.recomputed)

    # -- in order of bounds ----------------------------------------------------------------------------------

    def _queue(self) -> list[tuple[float, int, ParallelPlan | Line]]:
        """Every plan of the shape by its bound, and every pipeline whose cuts are open."""
        found: list[tuple[float, int, ParallelPlan | Line]] = []
        for tier in self.tiers:
            for bound, plan in zip(self._bounds(tier.sheet).tolist(), tier.sheet.plans, strict=True):
                found.append((bound, self.tally.plans, plan))
                self.tally.plans += 1
        for place, line in enumerate(self.cutting.lines(self.goal)):
            found.append((line.bound, -1 - place, line))
        heapq.heapify(found)
        return found

    def _bounds(self, sheet: PlanTable) -> Floats:
        """Lower bound of the mixed pipelines of each plan, (S,)."""
        seconds: Floats = plan_lower_bounds_s(sheet, self._terms)[:, 0]
        seconds = np.where(seconds <= self.most_s, seconds, inf)
        if self.goal is Goal.TIME:
            return seconds
        stages = np.array([s.pipeline_parallel / s.schedule.weight_copies for s in sheet.plans])
        shared = sheet.each / stages * self._joules * (1 - BOUND_ROUNDING)
        found: Floats = np.maximum(seconds * self.architectures.power_w.min(), shared)
        return found

    @property
    def _terms(self) -> Floats:
        """The best that any of the architectures has of each term, (3 K + 2, 1)."""
        found: Floats = self.architectures.times.terms.min(axis=1)[:, None]
        return found

    @cached_property
    def _joules(self) -> float:
        """Lower bound of the joules of all passes of a microbatch: somebody does each of them, at its power."""
        chips, (_, kinds) = self.architectures, self.options.kinds
        rows = (
            chips.times.rows[:, 0]
            + chips.times.rows[:, 2]
            + self.options.recomputation * chips.times.rows[:, 1]
        )
        return float((rows * chips.power_w[:, None]).min(axis=0)[kinds].sum())

    @cached_property
    def cutting(self) -> Cutting:
        """The program that chooses cuts and architectures together."""
        return Cutting(self.options, self.architectures)

    def _cut(self, line: Line) -> Iterator[ParallelPlan]:
        """The plans of a pipeline with the cut that suits these architectures, where the space has another."""
        stages = self.cutting.stages(line, self.goal, self.most_s)
        if not stages or stages in {s.stages for s in self.options.plans(line.depth)}:
            return
        count = self.options.layouts.microbatches(line.pipeline)
        for one in self.options.space.schedules_of(line.pipeline, count):
            yield changed_plan(one, stages=stages)

    # -- one plan ----------------------------------------------------------------------------------------

    def _better(self, plan: ParallelPlan, best: MixedFound | None, below: float) -> MixedFound | None:
        """The best of what ranks may divide and which are neighbours under a plan, or what was known."""
        self.tally.looked_at += 1
        for one in mixed_pipelines(self.options, plan, self.architectures):
            choices = one.choices(self.goal)
            if len(choices) and len(self.architectures) <= FEW and not one.is_exhaustive(self.goal):
                least_w = 1.0 if self.goal is Goal.TIME else float(self.architectures.power_w.min())
                self.tally.open_value = min(self.tally.open_value, one.least_s() * least_w)
            found = self._chosen(one, choices, below if best is None else best.value)
            best = found or best
        return best

    def _chosen(self, one: MixedPipeline, choices: Rows, below: float) -> MixedFound | None:
        """The best of some choices of architectures for the places of a pipeline, (N, places)."""
        if not len(choices):
            return None
        seconds = one.iteration_s(choices)
        values = np.where((seconds <= self.most_s) & (seconds < NEVER_S), seconds, inf)
        if self.goal is Goal.ENERGY:
            values = values * self.architectures.power_w[one.devices(choices)].mean(axis=1)
        at = int(values.argmin())
        if not values[at] < below:
            return None
        rows = one.devices(choices[at])
        return MixedFound(one.fitted(rows), tuple(rows.tolist()), float(seconds[at]), float(values[at]))

    def _improved(self, best: MixedFound) -> MixedFound:
        """The same with other architectures, one device after the other, until none is better."""
        plan = self._whole(best.plan)
        (one,) = (
            one
            for one in mixed_pipelines(self.options, plan, self.architectures)
            if (one.plan.zero, one.plan.order) == (plan.zero, plan.order)
        )
        while not self.over():
            found = self._chosen(one, one.neighbours(best.rows), best.value * (1 - BOUND_ROUNDING))
            if found is None:
                break
            best = found
        return best
