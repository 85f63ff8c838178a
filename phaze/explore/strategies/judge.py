"""Works out the best points of candidates, in this process or in another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.explore.best import best_points
from phaze.explore.candidates import Candidates, Numbers
from phaze.explore.evaluator import Evaluator
from phaze.explore.request import Task
from phaze.explore.setting import Setting
from phaze.hardware.table import ArchitectureTable
from phaze.recall import Recall
from phaze.scheduling.passes import Effort

# Iteration time (A,) in s that is reached, infinite where nothing fits, and in which setting.
Best = tuple[NDArray[np.float64], tuple[Setting | None, ...]]


@dataclass(frozen=True)
class Together:
    """Candidates within the budgets that are looked at together, and with how much effort."""

    numbers: Numbers
    effort: Effort


@dataclass
class Judge:
    """Some workloads on the candidates of one space; in another process with evaluators of its own."""

    candidates: Candidates
    tasks: Sequence[Task]
    recall: Recall | None = None
    _evaluators: list[Evaluator] = field(default_factory=list)

    def do(self, piece: Together) -> list[Best]:
        """The best points for each workload."""
        evaluators, rows = (
            self.evaluators(self.candidates.table(piece.numbers)),
            np.arange(len(piece.numbers)),
        )
        best = [best_points(evaluator, rows, piece.effort) for evaluator in evaluators]
        return [(found.upper_s, found.settings) for found in best]

    def evaluators(self, table: ArchitectureTable) -> list[Evaluator]:
        """An evaluator of other architectures for every workload, which shares what does not depend on them."""
        if not self._evaluators:
            survey = self.candidates.survey()
            self._evaluators += [Evaluator(task, survey, recall=self.recall) for task in self.tasks]
        return [evaluator.on(table) for evaluator in self._evaluators]

    def __reduce__(self) -> tuple[type[Judge], tuple[Candidates, Sequence[Task], Recall | None]]:
        """Without what can be made again."""
        return Judge, (self.candidates, self.tasks, self.recall)
