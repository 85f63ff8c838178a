"""The design that is explained, with what evaluating its relatives needs, and what any architectures come to by the
objective of the run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InfeasibleError
from phaze.explore.answers.least_memory_exploration import within_winner
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.evaluation.best_points import BestPoints, best_points
from phaze.explore.evaluation.design_builder import out_of_memory
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.drawn_power import drawn_w
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.training_config import TrainingConfig, config_of_placement
from phaze.explore.frontier.point_values import PointValues, best_leads, known_columns
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import Needs, metric
from phaze.explore.request.explore_request import ExploreRequest, Task
from phaze.explore.request.objective_floor import floor_throughput
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import Network
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits


@dataclass(frozen=True)
class ArchitectureWorth:
    """Samples per second and the objective of some architectures, (A,) each; 0 where nothing fits in memory.

    More of the objective is better: a minimised one enters as its reciprocal.
    """

    throughput: Floats
    objective: Floats


def objective_worth(request: ExploreRequest, evaluator: Evaluator, effort: SolveLimits) -> ArchitectureWorth:
    """Of all architectures of the evaluator's table, budgets aside.

    The best point is the fastest, unless the objective depends on the plan or on formats: then it is the best that
    keeps the floors, or the best of all where none does.
    """
    axis, table, task = metric(request.objective), evaluator.table, request.task
    block = Block(np.arange(len(table)), table, tdp_w(table, request.budgets.tdp_margin), area_mm2(table))
    values = PointValues(evaluator, known_columns(block, task.economics), SearchAxes((axis,)))
    if axis.needs is Needs.PLAN or task.recipe is not None:  # configs then differ in their peaks
        floor = floor_throughput(request, task)
        longest_s = task.cluster.global_batch / floor if floor > 0 else np.inf
        speed, worth = best_leads(dataclasses.replace(values, longest_s=longest_s), effort)
        if floor > 0 and not worth.all():
            free, any_ = best_leads(values, effort)
            speed, worth = np.where(worth > 0, speed, free), np.where(worth > 0, worth, any_)
        return ArchitectureWorth(speed, worth)
    seconds = best_points(evaluator, block.numbers, effort).upper_s
    _, worth = values.measured(evaluator.configs[0], block.numbers, seconds)
    return ArchitectureWorth(np.asarray(task.cluster.global_batch / seconds), worth)


_ONE = np.array([0])


@dataclass(frozen=True)
class ExplainedWinner:
    """An architecture under its best placement, as part of what was asked.

    `placed`: the config it is in, where the objective, or what it may draw, depends on the plan; otherwise the fastest.
    """

    request: ExploreRequest
    architecture: Architecture
    effort: SolveLimits
    placed: TrainingConfig | None = None

    @classmethod
    def of(cls, request: ExploreRequest, document: ResultDocument, effort: SolveLimits) -> ExplainedWinner:
        """The winner of the answer to a request of one workload."""
        best, placed = document.best, None
        if metric(request.objective).needs is Needs.PLAN or request.budgets.drawn_limit_w is not None:
            told = best.workloads[request.task.workload.name].placement
            placed = config_of_placement(request.task, told)
        asked = within_winner(request, document)
        return cls(asked, Architecture(name=best.id, fields=best.architecture), effort, placed)

    @cached_property
    def task(self) -> Task:
        """The workload on its cluster, within the config the winner is `placed` in."""
        task, placed = self.request.task, self.placed
        if placed is None:
            return task
        return dataclasses.replace(task, held={**task.held, **placed.choices}, recipe=placed.recipe)

    @cached_property
    def table(self) -> ArchitectureTable:
        """The architecture alone."""
        return to_table([self.architecture])

    @cached_property
    def evaluator(self) -> Evaluator:
        """Of the architecture alone."""
        return Evaluator(self.task, self.table)

    @cached_property
    def _best(self) -> BestPoints:
        return best_points(self.evaluator, _ONE, self.effort)

    @property
    def config(self) -> TrainingConfig:
        """Its best config. Raises InfeasibleError where nothing fits in memory."""
        config = self._best.configs[0]
        if config is None:
            raise self._unfit
        return config

    @property
    def throughput(self) -> float:
        """Samples per second under its best placement."""
        return float(self.task.cluster.global_batch / self._best.upper_s[0])

    @cached_property
    def plan(self) -> FoundPlan:
        """The best placement, with its stages. Raises InfeasibleError where nothing fits in memory."""
        plan = self.evaluator.plans(self.config, _ONE, self._best.upper_s, self.effort)[0]
        if plan is None:
            raise self._unfit
        return plan

    @property
    def _unfit(self) -> InfeasibleError:
        return out_of_memory(self.evaluator, self.architecture.name)

    def on(self, network: Network) -> Task:
        """The task on another network."""
        return dataclasses.replace(self.task, network=network)

    def throughputs(self, table: ArchitectureTable) -> Floats:
        """Samples per second of other architectures under their best placements, (A,); 0 where nothing fits."""
        found = best_points(self.evaluator.on(table), np.arange(len(table)), self.effort)
        return np.asarray(self.task.cluster.global_batch / found.upper_s)

    def worth(self, table: ArchitectureTable) -> ArchitectureWorth:
        """Throughput and objective of other architectures, each in the config that is best for the objective."""
        return objective_worth(self.request, self._free.on(table), self.effort)

    def drawn_w(self, table: ArchitectureTable) -> Floats:
        """Watts that a device of other architectures draws under their fastest plans, (A,); 0 where nothing fits."""
        return drawn_w(self._free.on(table), self.effort)

    @cached_property
    def value(self) -> float:
        """Its own objective, more being better."""
        return float(self.worth(self.table).objective[0])

    @cached_property
    def _free(self) -> Evaluator:
        """Of the architecture alone, in any config."""
        return self.evaluator if self.placed is None else Evaluator(self.request.task, self.table)
