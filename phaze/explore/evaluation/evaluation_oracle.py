"""Oracle of a search without bounds: evaluates given architectures, counts, remembers and spreads the work; the
best points are worked out in this process or in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.memo import Memo
from phaze.scheduling.passes import SolveLimits

# Iteration time (A,) in s that is reached, infinite where nothing fits, and in which config.
Best = tuple[NDArray[np.float64], tuple[TrainingConfig | None, ...]]


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates within the budgets that are looked at together, and with how much effort."""

    numbers: Integers
    effort: SolveLimits


@dataclass
class PointJudge:
    """Some workloads on the candidates of one space; in another process with evaluators of its own."""

    candidates: Candidates
    tasks: Sequence[Task]
    memo: Memo | None = None
    _evaluators: list[Evaluator] = field(default_factory=list)

    def do(self, piece: CandidateBatch) -> list[Best]:
        """The best points for each workload."""
        evaluators, rows = (
            self.evaluators(self.candidates.table(piece.numbers)),
            np.arange(len(piece.numbers)),
        )
        best = [best_points(evaluator, rows, piece.effort) for evaluator in evaluators]
        return [(found.upper_s, found.configs) for found in best]

    def evaluators(self, table: ArchitectureTable) -> list[Evaluator]:
        """An evaluator of other architectures for every workload, which shares what does not depend on them."""
        if not self._evaluators:
            survey = self.candidates.survey()
            self._evaluators += [Evaluator(task, survey, memo=self.memo) for task in self.tasks]
        return [evaluator.on(table) for evaluator in self._evaluators]

    def __reduce__(self) -> tuple[type[PointJudge], tuple[Candidates, Sequence[Task], Memo | None]]:
        """Without what can be made again."""
        return PointJudge, (self.candidates, self.tasks, self.memo)


# Value to maximise, (A,), of throughputs (W, A) of each workload in samples/s, TDP (A,) in W, area (A,) in mm2.
Merit = Callable[[Floats, Floats, Floats], Floats]
LEAST = 4  # candidates of a batch that are worth a process


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One architecture under its best placement for every workload.

    `throughputs`: samples/s per workload, 0 where it does not fit; `value`: the merit, 0 where the budgets are
    missed or a workload does not fit. `seconds`: since the search began, when it was known.
    """

    number: int
    value: float
    throughputs: tuple[float, ...]
    configs: tuple[TrainingConfig | None, ...]
    tdp_w: float
    area_mm2: float
    seconds: float = 0.0


@dataclass
class Oracle:
    """Evaluates candidates of one space for some workloads; asking twice costs nothing.

    `known`: an evaluator per workload on hardware of the whole space, where there are some, whose costs are shared.
    `history`: the architectures evaluated, in the order in which they were asked for. Those over a budget are
    known from their size, cost nothing and are not in it.
    """

    candidates: Candidates
    tasks: Sequence[Task]
    merit: Merit
    clock: Clock
    resources: SearchResources = ALONE
    known: Sequence[Evaluator] = ()
    history: list[Evaluation] = field(default_factory=list)
    _known: dict[int, Evaluation] = field(default_factory=dict)

    @property
    def best(self) -> Evaluation | None:
        """The best so far: ties by lower TDP, smaller area, smaller number."""
        found = [e for e in self.history if e.value > 0]
        return min(found, key=lambda e: (-e.value, e.tdp_w, e.area_mm2, e.number), default=None)

    def evaluate(self, numbers: Sequence[int] | Integers) -> list[Evaluation]:
        """Evaluations of some candidates, in the order asked for."""
        wanted = [int(n) for n in numbers]
        new = [n for n in dict.fromkeys(wanted) if n not in self._known]
        if new:
            self._learn(np.array(new, dtype=np.int64))
        return [self._known[n] for n in wanted]

    def _learn(self, numbers: Integers) -> None:
        block = self.candidates.within(numbers)
        if len(block):
            found = self._evaluated(block)
            self.history += found
            self._known |= {e.number: e for e in found}
        outside = np.setdiff1d(numbers, block.numbers)
        if len(outside):
            self._known |= {e.number: e for e in self._over_budget(outside)}

    def _evaluated(self, block: Block) -> list[Evaluation]:
        """Candidates that keep the budgets, each under its best placements."""
        rows, best = range(len(block)), self._best(block.numbers)
        batches = np.array([[task.cluster.global_batch] for task in self.tasks])
        throughput = batches / np.stack([upper_s for upper_s, _ in best])
        value = self.merit(throughput, block.tdp_w, block.area_mm2)
        value = np.where((throughput > 0).all(axis=0), value, 0.0)
        seconds = self.clock.elapsed_s
        return [
            Evaluation(
                number=int(block.numbers[i]),
                value=float(value[i]),
                throughputs=tuple(throughput[:, i].tolist()),
                configs=tuple(configs[i] for _, configs in best),
                tdp_w=float(block.tdp_w[i]),
                area_mm2=float(block.area_mm2[i]),
                seconds=seconds,
            )
            for i in rows
        ]

    def _best(self, numbers: Integers) -> list[Best]:
        """The best points of some candidates for every workload, by as many workers as they are worth."""
        effort = SolveLimits(self.clock.left)
        parts = np.array_split(numbers, max(1, min(self.resources.executor.workers, len(numbers) // LEAST)))
        pieces = [CandidateBatch(part, effort) for part in parts]
        # One piece is nothing to send away.
        found = (
            self.resources.executor.map(self._judge, pieces)
            if len(pieces) > 1
            else map(self._judge.do, pieces)
        )
        return [_joined(same) for same in zip(*found, strict=True)]

    @cached_property
    def _judge(self) -> PointJudge:
        return PointJudge(self.candidates, self.tasks, self.resources.memo, list(self.known))

    def _over_budget(self, numbers: Integers) -> list[Evaluation]:
        """Candidates that are over a budget: nothing is known of them but their size."""
        table = self.candidates.table(numbers)
        tdp, area = tdp_w(table, self.candidates.budgets.tdp_margin), area_mm2(table)
        nothing, seconds = (0.0,) * len(self.tasks), self.clock.elapsed_s
        return [
            Evaluation(int(n), 0.0, nothing, (None,) * len(nothing), float(tdp[i]), float(area[i]), seconds)
            for i, n in enumerate(numbers)
        ]

    def evaluators(self, table: ArchitectureTable) -> list[Evaluator]:
        """An evaluator of other architectures for every workload, which shares what does not depend on them."""
        return self._judge.evaluators(table)


def _joined(parts: Sequence[Best]) -> Best:
    """The best points of one workload from parts of a batch."""
    seconds = np.concatenate([upper_s for upper_s, _ in parts])
    return seconds, tuple(config for _, configs in parts for config in configs)
