"""Pipelines that a plan space allows for one shape of layers: microbatch, sharding and kind of recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.plan_batches.plan_list import Cuts, PlanList
from phaze.parallel.plan_batches.stage_cuts import block_flops, cuts_of
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import LayerChain


@dataclass(frozen=True, slots=True)
class Depth:
    """All pipelines of so many stages, and the fewest microbatches that one of them runs."""

    stages: int
    microbatches: int
    pipelines: tuple[ParallelPlan, ...]


@dataclass(frozen=True)
class ShapeOptions:
    """Every pipeline of one shape of a plan space on the cluster of `layouts`."""

    layouts: PlanLayouts
    space: PlanSpace
    shape: ParallelPlan
    kept: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def chain(self) -> LayerChain:
        """The layers as a device runs them."""
        return self.layouts.chain(self.shape)

    @cached_property
    def undivided(self) -> LayerChain:
        """The layers before ranks divide them: in the same order, with the same model FLOPs, and known sooner."""
        return self.layouts.chain(self._alone)

    @property
    def _alone(self) -> ParallelPlan:
        """The shape on one device; layers that ranks divide each in a way of its own stay as they are."""
        whole = self.shape.sharding.replicated
        return self.shape if whole else changed_plan(self.shape, sharding=Sharding())

    @cached_property
    def division(self) -> Division:
        """The layers in one part; its groups are those of every pipeline."""
        return self.layouts.division(self._alone)

    @cached_property
    def kinds(self) -> tuple[list[tuple[int, int]], Integers]:
        """Positions (first, last) of the first of every kind of group, (K,), and the kind of each group, (G,)."""
        index, found = self.undivided.index, dict[tuple[int, ...], int]()
        which, first = [], []
        for a, b in self.division.groups:
            layers = index[a : b + 1]
            if layers not in found:
                found[layers] = len(found)
                first.append((a, b))
            which.append(found[layers])
        return first, np.array(which)

    @cached_property
    def blocks(self) -> Integers:
        """First group of every block, and of what comes before the first, (B,)."""
        first = np.flatnonzero(self.division.body)
        first[0] = 0
        return first

    @cached_property
    def recomputation(self) -> NDArray[np.bool_]:
        """Kinds of groups that run their forward pass again whatever fits, (K,)."""
        recomputation, (first, which) = recomputed_groups(self.division, self.shape), self.kinds
        found = np.zeros(len(first), dtype=np.bool_)
        found[which[recomputation]] = True
        found[which[~recomputation]] = False
        return found

    @cached_property
    def depths(self) -> tuple[Depth, ...]:
        """Pipelines by their numbers of stages; schedules and cuts are left open."""
        found: dict[int, list[ParallelPlan]] = {}
        for deep in self.space.pipelines(self.shape, self.layouts.cluster, len(self.blocks)):
            found.setdefault(deep.pipeline_parallel, []).append(deep)
        fewest = {p: min(map(self.layouts.microbatches, some)) for p, some in found.items()}
        return tuple(Depth(p, fewest[p], tuple(some)) for p, some in found.items())

    def runs(self, depth: Depth) -> Iterator[tuple[ParallelPlan, Cuts]]:
        """The pipelines of a depth under every schedule, each with all of its cuts."""
        for deep in depth.pipelines:
            cuts = self._cuts(deep)
            for one in self.space.schedules_of(deep, self.layouts.microbatches(deep)):
                yield one, cuts

    def plans(self, depth: Depth) -> tuple[ParallelPlan, ...]:
        """Every schedule and cut of the pipelines of a depth."""
        key = "plans", depth.stages
        if key not in self.kept:
            self.kept[key] = tuple(PlanList.of(self.runs(depth)))
        found: tuple[ParallelPlan, ...] = self.kept[key]
        return found

    @cached_property
    def _flops(self) -> Floats:
        """Model FLOPs of every block and sample, (B,)."""
        return block_flops(self.undivided, self.division) / self.shape.microbatch

    @cached_property
    def size(self) -> int:
        """Plans of the shape, counted without making them: what else is chosen hangs on the pipeline alone."""
        cuts = dict[tuple[int, int], int]()
        return sum(self._size(deep, cuts) for depth in self.depths for deep in depth.pipelines)

    def _size(self, deep: ParallelPlan, cuts: dict[tuple[int, int], int]) -> int:
        (zeros, orders), microbatches = self.space.choices(deep), self.layouts.microbatches(deep)
        schedules, pipeline = len(self.space.runs(deep, microbatches)), (deep.pipeline_parallel, deep.chunks)
        if pipeline not in cuts:  # all of a shape have one grain
            cuts[pipeline] = len(self._cuts(deep))
        return schedules * cuts[pipeline] * len(zeros) * len(orders)

    def _cuts(self, deep: ParallelPlan) -> Cuts:
        """Stages of a pipeline that are looked at; the same whatever the microbatch and the sharding."""
        flops = self._flops
        return self.layouts.once(
            ("cuts", flops.tobytes(), deep.pipeline_parallel, deep.chunks, deep.grain, self.space.balances),
            lambda: cuts_of(deep, self.space, flops, self.layouts),
        )

    # -- bounds ----------------------------------------------------------------------------------------------

    @cached_property
    def least_share(self) -> float:
        """Least seconds of an iteration per second that one microbatch takes in the whole model, over all depths."""
        return min((depth.microbatches / depth.stages for depth in self.depths), default=np.inf)
