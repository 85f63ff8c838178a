"""The design that is explained, with what evaluating its relatives needs, and what any architectures come to by the
objective of the run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InfeasibleError
from phaze.explore.answers.axes_exploration import known_columns, maximised
from phaze.explore.answers.least_memory_exploration import within_winner
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.evaluation.best_points import BestPoints, best_points
from phaze.explore.evaluation.design_builder import out_of_memory
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.training_config import TrainingConfig, config_of_placement
from phaze.explore.frontier.pareto_points import ParetoPoint, PointValues
from phaze.explore.frontier.pareto_search import ParetoSearch
from phaze.explore.request.design_metrics import Metric, Needs, metric
from phaze.explore.request.explore_request import ExploreRequest, Task
from phaze.explore.request.objective_floor import floor_throughput
from phaze.explore.request.search_progress import Clock
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
    axis, table = metric(request.objective), evaluator.table
    block = Block(np.arange(len(table)), table, tdp_w(table, request.budgets.tdp_margin), area_mm2(table))
    if axis.needs is Needs.PLAN or request.task.recipe is not None:  # configs then differ in their peaks
        return _each(request, evaluator, block, axis)
    seconds = best_points(evaluator, block.numbers, effort).upper_s
    values = PointValues(Measures(evaluator), known_columns(block, request.task.economics), [axis])
    unknown = np.full(len(block), np.nan)
    columns = values.columns(evaluator.configs[0], block.numbers, seconds, unknown, unknown)
    told = np.array([maximised(axis, value) for value in np.asarray(axis.of(columns)).tolist()])
    return ArchitectureWorth(columns["throughput_samples_per_s"], np.where(np.isfinite(seconds), told, 0.0))


def _each(request: ExploreRequest, evaluator: Evaluator, block: Block, axis: Metric) -> ArchitectureWorth:
    """One architecture after the other, a search for the best point of each."""
    found = ArchitectureWorth(np.zeros(len(block)), np.zeros(len(block)))
    for row in range(len(block)):
        at = np.array([row])
        one = Block(at, block.table.take(at), block.tdp_w[at], block.area_mm2[at])
        point = _best(request, evaluator.on(one.table), one, axis)
        if point is not None:
            found.throughput[row] = point.columns["throughput_samples_per_s"]
            found.objective[row] = maximised(axis, axis.value(point.columns))
    return found


def _best(request: ExploreRequest, evaluator: Evaluator, one: Block, axis: Metric) -> ParetoPoint | None:
    for floor in dict.fromkeys([floor_throughput(request, request.task), 0.0]):
        known = known_columns(one, request.task.economics)
        found = ParetoSearch(evaluator, known, [axis], Clock(np.inf), floor).run()
        if found.points:
            return found.points[0]
    return None


_ONE = np.array([0])


@dataclass(frozen=True)
class ExplainedWinner:
    """An architecture under its best placement, as part of what was asked.

    `placed`: the config it is in, where the objective depends on the plan; otherwise the fastest.
    """

    request: ExploreRequest
    architecture: Architecture
    effort: SolveLimits
    placed: TrainingConfig | None = None

    @classmethod
    def of(cls, request: ExploreRequest, document: ResultDocument, effort: SolveLimits) -> ExplainedWinner:
        """The winner of the answer to a request of one workload."""
        best, placed = document.best, None
        if metric(request.objective).needs is Needs.PLAN:
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

    @cached_property
    def value(self) -> float:
        """Its own objective, more being better."""
        return float(self.worth(self.table).objective[0])

    @cached_property
    def _free(self) -> Evaluator:
        """Of the architecture alone, in any config."""
        return self.evaluator if self.placed is None else Evaluator(self.request.task, self.table)
