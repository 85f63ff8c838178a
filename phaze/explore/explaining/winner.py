"""The design that is explained, with what evaluating its relatives needs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InfeasibleError
from phaze.explore.best import BestPoints, best_points
from phaze.explore.designs import out_of_memory
from phaze.explore.document import ResultDocument
from phaze.explore.evaluator import Evaluator, FoundPlan
from phaze.explore.explaining.worth import Worth, worth
from phaze.explore.lean_search import within_winner
from phaze.explore.metrics import Needs, metric
from phaze.explore.request import ExploreRequest, Task
from phaze.explore.setting import Setting, setting_of_placement
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.network import Network
from phaze.hardware.table import ArchitectureTable
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
_ONE = np.array([0])


@dataclass(frozen=True)
class Winner:
    """An architecture under its best placement, as part of what was asked.

    `placed`: the setting it is in, where the objective depends on the plan; otherwise the fastest.
    """

    request: ExploreRequest
    architecture: Architecture
    effort: Effort
    placed: Setting | None = None

    @classmethod
    def of(cls, request: ExploreRequest, document: ResultDocument, effort: Effort) -> Winner:
        """The winner of the answer to a request of one workload."""
        best, placed = document.best, None
        if metric(request.objective).needs is Needs.PLAN:
            told = best.workloads[request.task.workload.name].placement
            placed = setting_of_placement(request.task, told)
        asked = within_winner(request, document)
        return cls(asked, Architecture(name=best.id, fields=best.architecture), effort, placed)

    @cached_property
    def task(self) -> Task:
        """The workload on its cluster, within the setting the winner is `placed` in."""
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
    def setting(self) -> Setting:
        """Its best setting. Raises InfeasibleError where nothing fits in memory."""
        setting = self._best.settings[0]
        if setting is None:
            raise self._unfit
        return setting

    @property
    def throughput(self) -> float:
        """Samples per second under its best placement."""
        return float(self.task.cluster.global_batch / self._best.upper_s[0])

    @cached_property
    def plan(self) -> FoundPlan:
        """The best placement, with its stages. Raises InfeasibleError where nothing fits in memory."""
        plan = self.evaluator.plans(self.setting, _ONE, self._best.upper_s, self.effort)[0]
        if plan is None:
            raise self._unfit
        return plan

    @property
    def _unfit(self) -> InfeasibleError:
        return out_of_memory(self.evaluator, self.architecture.name)

    def on(self, network: Network) -> Task:
        """The task on another network."""
        return dataclasses.replace(self.task, network=network)

    def throughputs(self, table: ArchitectureTable) -> FloatArray:
        """Samples per second of other architectures under their best placements, (A,); 0 where nothing fits."""
        found = best_points(self.evaluator.on(table), np.arange(len(table)), self.effort)
        return np.asarray(self.task.cluster.global_batch / found.upper_s)

    def worth(self, table: ArchitectureTable) -> Worth:
        """What other architectures come to by the objective, in whatever setting is best for it."""
        return worth(self.request, self._free.on(table), self.effort)

    @cached_property
    def value(self) -> float:
        """Its own objective, more being better."""
        return float(self.worth(self.table).objective[0])

    @cached_property
    def _free(self) -> Evaluator:
        """Of the architecture alone, in any setting."""
        return self.evaluator if self.placed is None else Evaluator(self.request.task, self.table)
