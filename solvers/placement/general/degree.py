"""All plans on some of the models at one data-parallel degree: bounds on their work, and the plans within limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.general.bound import WorkBound
from phaze.solvers.placement.general.fewest import Pipelines, PlacedStage
from phaze.solvers.placement.general.figures import Figures
from phaze.solvers.placement.general.fleet import Fleet, fleet
from phaze.solvers.placement.general.levels import Levels
from phaze.solvers.placement.general.pipeline import Pipeline, pipeline
from phaze.solvers.placement.general.problem import GeneralProblem, Recompute, Schedule
from phaze.solvers.placement.general.table import StageTable, half_reduction_s, stage_table


@dataclass(frozen=True)
class Degree:
    """`figures` of the models that stages choose from, at `data_parallel` pipelines side by side."""

    problem: GeneralProblem
    levels: Levels
    figures: dict[int, Figures]
    bound: WorkBound
    data_parallel: int

    @property
    def microbatches(self) -> int:
        """Microbatches of one pipeline."""
        return -(-self.problem.microbatches_per_batch // self.data_parallel)

    @property
    def interleaved(self) -> bool:
        """Stages share devices, one of each depth."""
        return self.problem.schedule is Schedule.INTERLEAVED

    @cached_property
    def capacity(self) -> dict[int, int]:
        """Devices of each type that the stages of one pipeline can take, counted once for every stage."""
        models = [self.problem.models[number] for number in self.figures]
        shared, capacity = self.problem.virtual_stages, {}
        for kind in {model.device_type for model in models}:
            widest = max(model.tensor_parallel for model in models if model.device_type == kind)
            count = self.problem.device_types[kind].count * shared // self.data_parallel
            capacity[kind] = min(count, self.levels.layers * widest)
        return capacity

    @cached_property
    def depths(self) -> range:
        """Depths that a pipeline may have."""
        step = self.problem.virtual_stages
        most = min(self.levels.layers, sum(self.capacity.values()))
        return range(step, most + 1, step)

    @cached_property
    def table(self) -> StageTable:
        """All stages with all options."""
        return stage_table(self.problem, self.figures, self.data_parallel)

    @cached_property
    def fleet(self) -> Fleet:
        """Devices of one pipeline."""
        return fleet(self.levels, self.table.classes, self.capacity, one_per_level=self.interleaved)

    def line(self, depth: int) -> Pipeline:
        """The schedule of a pipeline of a depth."""
        return pipeline(self.problem, self.microbatches, depth)

    @property
    def held_by_depth(self) -> bool:
        """A stage holds as many microbatches in a pipeline of any depth."""
        return self.problem.schedule in {Schedule.GPIPE, Schedule.ONE_F_ONE_B}

    def deepest(self, line: Pipeline) -> Integers:
        """Largest depth, at least up to the line's, at which each option of each stage fits, (O, G)."""
        return self._common_deepest if self.held_by_depth else self.table.deepest(line)

    @cached_property
    def _common_deepest(self) -> Integers:
        return self.table.deepest(self.line(self.depths[-1]))

    def pipelines(self, line: Pipeline, limits: Floats) -> Pipelines:
        """All pipelines of up to the line's depth whose stages keep the limits."""
        fitting = np.where(self.table.within(limits), self.deepest(line), 0)
        return Pipelines(self.fleet, self.table.by_class(fitting), len(line.held))

    def tightened(self, plan: Sequence[PlacedStage]) -> tuple[PlacedStage, ...]:
        """The plan with the depth of each stage: the program may have put one deeper, which costs more."""
        if self.interleaved:
            return tuple(plan)
        inside = np.concatenate([self.levels.member(slice(p.stage, p.stage + 1)) for p in plan])
        home = inside.argmax(axis=0)
        depths = [1] * len(plan)
        for u, v in sorted(self.problem.edges, key=lambda edge: -home[edge[0]]):
            if home[u] != home[v]:
                depths[home[u]] = max(depths[home[u]], depths[home[v]] + 1)
        return tuple(replace(placed, depth=depth) for placed, depth in zip(plan, depths, strict=True))

    def options(self, plan: Sequence[PlacedStage], line: Pipeline, limits: Floats) -> list[int]:
        """For each stage of a plan, the fastest of the table's options that keep the limits."""
        table, deepest = self.table, self.deepest(line)
        kept = table.within(limits)
        full = np.array([option.recompute is Recompute.FULL for option in table.options])
        chosen = []
        for placed in plan:
            g, s = placed.stage, placed.depth
            may = kept[:, g] & (deepest[:, g] >= s) & (table.device_class[:, g] == placed.device_class)
            may &= ~full | (line.held[s - 1] > 1)
            seconds = line.least_weight @ table.work[:, :, g]
            chosen.append(int(np.where(may, seconds, np.inf).argmin()))
        return chosen

    def least_work(self, depth: int) -> Floats:
        """Lower bounds on the largest work of each kind in a pipeline of a depth, (kinds,)."""
        devices = sum(self.capacity.values())
        stages = depth if self.interleaved else min(depth * self.levels.most_stages, devices)
        return self.bound.largest(stages, devices, half_reduction_s(self.problem, self.data_parallel))
