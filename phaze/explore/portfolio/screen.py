"""The first look at every architecture of a space: which can still matter, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.candidates import Block, Candidates
from phaze.explore.evaluator import Evaluator
from phaze.explore.portfolio.member import quick, roofline
from phaze.explore.progress import Clock, Progress

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
# Whether architectures of these optimistic throughputs (W, A) and TDP (A,) can matter, (A,).
Matters = Callable[[FloatArray, FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True)
class Survivors:
    """Candidates that may matter: numbers, TDP in W, area in mm2, (A,) each, optimistic throughput (W, A)."""

    numbers: NDArray[np.int64]
    tdp_w: FloatArray
    area_mm2: FloatArray
    hoped: FloatArray

    def take(self, rows: Rows | NDArray[np.bool_]) -> Survivors:
        """Some of them."""
        return Survivors(self.numbers[rows], self.tdp_w[rows], self.area_mm2[rows], self.hoped[:, rows])


@dataclass
class Screen:
    """Streams a space past bounds on every workload; memory grows with the survivors alone.

    `evaluators`: one per workload, on any table. `caps` (W,): throughput that no candidate exceeds, known before.
    After `run`, `within` and `pruned_by` say how many kept the budgets and where the others fell.
    """

    candidates: Candidates
    evaluators: Sequence[Evaluator]
    caps: FloatArray
    clock: Clock
    progress: Progress
    within: int = 0

    def __post_init__(self) -> None:
        """Nothing has fallen yet."""
        self.pruned_by = {"roofline": 0, "memory": 0, "critical_path": 0}

    def run(self, matters: Matters) -> Survivors:
        """Those of all candidates that keep the budgets and can matter."""
        kept = [self._look(block, matters) for block in self.candidates.blocks()]
        return Survivors(
            np.concatenate([s.numbers for s in kept]),
            np.concatenate([s.tdp_w for s in kept]),
            np.concatenate([s.area_mm2 for s in kept]),
            np.concatenate([s.hoped for s in kept], axis=1),
        )

    def _look(self, block: Block, matters: Matters) -> Survivors:
        self.within += len(block)
        on = [evaluator.on(block.table) for evaluator in self.evaluators]
        roofs = np.stack([roofline(evaluator) for evaluator in on])
        hoped = np.minimum(roofs, self.caps[:, None])
        alive = np.flatnonzero(matters(hoped, block.tdp_w))
        self.pruned_by["roofline"] += len(block) - len(alive)
        for w, evaluator in enumerate(on):
            if self.clock.over:
                break
            self.progress.update(
                "bounding", w, len(on), f"{len(alive)} architectures, {evaluator.task.workload.name}"
            )
            hoped[w, alive] = np.minimum(hoped[w, alive], quick(evaluator, alive))
            fits = hoped[w, alive] > 0
            left = matters(hoped[:, alive], block.tdp_w[alive])
            self.pruned_by["memory"] += int((~fits).sum())
            self.pruned_by["critical_path"] += int((fits & ~left).sum())
            alive = alive[left]
        return Survivors(block.numbers, block.tdp_w, block.area_mm2, hoped).take(alive)
