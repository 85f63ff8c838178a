"""What a search without bounds may ask: evaluate these architectures. It counts, remembers and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.explore.best import best_points
from phaze.explore.candidates import Block, Candidates, Numbers
from phaze.explore.evaluator import Evaluator, Setting
from phaze.explore.means import ALONE, Means
from phaze.explore.progress import Clock
from phaze.explore.request import Task
from phaze.hardware.area import area_mm2
from phaze.hardware.power import tdp_w
from phaze.hardware.table import ArchitectureTable
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
# Value to maximise, (A,), of throughputs (W, A) of each workload in samples/s, TDP (A,) in W, area (A,) in mm2.
Merit = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One architecture under its best placement for every workload.

    `throughputs`: samples/s per workload, 0 where it does not fit; `value`: the merit, 0 where the budgets are
    missed or a workload does not fit. `seconds`: since the search began, when it was known.
    """

    number: int
    value: float
    throughputs: tuple[float, ...]
    settings: tuple[Setting | None, ...]
    tdp_w: float
    area_mm2: float
    seconds: float


@dataclass
class Oracle:
    """Evaluates candidates of one space for some workloads; asking twice costs nothing.

    `history`: the architectures evaluated, in the order in which they were asked for. Those over a budget are
    known from their size, cost nothing and are not in it.
    """

    candidates: Candidates
    tasks: Sequence[Task]
    merit: Merit
    clock: Clock
    means: Means = ALONE
    history: list[Evaluation] = field(default_factory=list)
    _known: dict[int, Evaluation] = field(default_factory=dict)
    _evaluators: list[Evaluator] = field(default_factory=list)

    @property
    def best(self) -> Evaluation | None:
        """The best so far: ties by lower TDP, smaller area, smaller number."""
        found = [e for e in self.history if e.value > 0]
        return min(found, key=lambda e: (-e.value, e.tdp_w, e.area_mm2, e.number), default=None)

    def evaluate(self, numbers: Sequence[int] | Numbers) -> list[Evaluation]:
        """Evaluations of some candidates, in the order asked for."""
        wanted = [int(n) for n in numbers]
        new = [n for n in dict.fromkeys(wanted) if n not in self._known]
        if new:
            self._learn(np.array(new, dtype=np.int64))
        return [self._known[n] for n in wanted]

    def _learn(self, numbers: Numbers) -> None:
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
        effort, rows = Effort(self.clock.left), np.arange(len(block))
        best = [best_points(evaluator, rows, effort) for evaluator in self.evaluators(block.table)]
        batches = np.array([[task.cluster.global_batch] for task in self.tasks])
        throughput = batches / np.stack([b.upper_s for b in best])
        value = self.merit(throughput, block.tdp_w, block.area_mm2)
        value = np.where((throughput > 0).all(axis=0), value, 0.0)
        seconds = self.clock.elapsed_s
        return [
            Evaluation(
                number=int(block.numbers[i]),
                value=float(value[i]),
                throughputs=tuple(throughput[:, i].tolist()),
                settings=tuple(b.settings[i] for b in best),
                tdp_w=float(block.tdp_w[i]),
                area_mm2=float(block.area_mm2[i]),
                seconds=seconds,
            )
            for i in rows
        ]

    def _over_budget(self, numbers: Numbers) -> list[Evaluation]:
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
        if not self._evaluators:
            self._evaluators = [Evaluator(task, table) for task in self.tasks]
        return [evaluator.on(table) for evaluator in self._evaluators]
