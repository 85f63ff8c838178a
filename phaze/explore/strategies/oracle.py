"""What a search without bounds may ask: evaluate these architectures. It counts, remembers and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.explore.best import best_points
from phaze.explore.candidates import Candidates
from phaze.explore.evaluator import Evaluator, Setting
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

    `history`: new evaluations in the order in which they were asked for.
    """

    candidates: Candidates
    tasks: Sequence[Task]
    merit: Merit
    clock: Clock
    history: list[Evaluation] = field(default_factory=list)
    _known: dict[int, Evaluation] = field(default_factory=dict)
    _evaluators: list[Evaluator] = field(default_factory=list)

    @property
    def best(self) -> Evaluation | None:
        """The best so far: ties by lower TDP, smaller area, smaller number."""
        found = [e for e in self.history if e.value > 0]
        return min(found, key=lambda e: (-e.value, e.tdp_w, e.area_mm2, e.number), default=None)

    def evaluate(self, numbers: Sequence[int]) -> list[Evaluation]:
        """Evaluations of some candidates, in the order asked for."""
        new = [n for n in dict.fromkeys(int(n) for n in numbers) if n not in self._known]
        if new:
            found = self._evaluated(np.array(new, dtype=np.int64))
            self.history += found
            self._known |= {e.number: e for e in found}
        return [self._known[int(n)] for n in numbers]

    def _evaluated(self, numbers: NDArray[np.int64]) -> list[Evaluation]:
        block = self.candidates.within(numbers)
        throughput = np.zeros((len(self.tasks), len(block)))
        settings: list[tuple[Setting | None, ...]] = []
        for w, evaluator in enumerate(self._on(block.table) if len(block) else ()):
            best = best_points(evaluator, np.arange(len(block)), Effort(self.clock.left))
            throughput[w] = evaluator.task.cluster.global_batch / best.upper_s
            settings.append(best.settings)
        value = self.merit(throughput, block.tdp_w, block.area_mm2)
        value = np.where((throughput > 0).all(axis=0), value, 0.0)
        position = {int(n): i for i, n in enumerate(block.numbers)}
        table = self.candidates.table(numbers)
        outside = tdp_w(table, self.candidates.budgets.tdp_margin), area_mm2(table)
        elapsed = self.clock.elapsed_s
        return [
            Evaluation(
                number=int(n),
                value=float(value[i]) if (i := position.get(int(n), -1)) >= 0 else 0.0,
                throughputs=tuple(throughput[:, i].tolist()) if i >= 0 else (0.0,) * len(self.tasks),
                settings=tuple(s[i] for s in settings) if i >= 0 else (None,) * len(self.tasks),
                tdp_w=float(outside[0][k]),
                area_mm2=float(outside[1][k]),
                seconds=elapsed,
            )
            for k, n in enumerate(numbers)
        ]

    def _on(self, table: ArchitectureTable) -> list[Evaluator]:
        if not self._evaluators:
            self._evaluators = [Evaluator(task, table) for task in self.tasks]
        return [evaluator.on(table) for evaluator in self._evaluators]
