"""The first look at every architecture of a space for several workloads, block by block: which can still beat the
scores that are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.certified.workload_bounds import roofline_throughput, throughput_bound
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.pareto_archive import Staircase
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.search_progress import Clock, Progress
from phaze.tolerances import BOUND_ROUNDING, SAME

# Scores of seeds count a little less, so that rounding never prunes what they were taken from.
_SEED = 1.0 - SAME


@dataclass(frozen=True, slots=True)
class CommonDesign:
    """One architecture under its best known placement for every workload; throughputs in samples/s."""

    number: int
    score: float
    throughputs: tuple[float, ...]
    configs: tuple[TrainingConfig, ...]
    tdp_w: float
    area_mm2: float


@dataclass
class Incumbents:
    """Best score known at every TDP; a design that is better by less than a factor `slack` does not matter."""

    rule: CombinedScore
    slack: float = 1.0
    known: Staircase = field(default_factory=Staircase)

    def add(self, common: CommonDesign, *, seed: bool = False) -> None:
        """Take a reached score over; that of a seed so that the seed itself still matters."""
        score = common.score * (_SEED / self.slack if seed else 1.0)
        self.known.add([common.tdp_w], score, (common.area_mm2, common.number))

    def hope(self, hoped: Floats) -> Floats:
        """The score (A,) that architectures of these optimistic throughputs (W, A) cannot exceed."""
        return np.asarray(self.rule.score(hoped) * (1 + BOUND_ROUNDING))

    def matters(self, hoped: Floats, tdp_w: Floats) -> NDArray[np.bool_]:
        """Whether such architectures can matter, (A,); those that do not fit every workload never do."""
        score = self.hope(hoped)
        return np.asarray((score > 0) & ~self.known.dominates(tdp_w[:, None], score / self.slack))

    def gain(self, hoped: Floats, tdp_w: Floats) -> Floats:
        """How many times the best known score at their TDP they may reach, (A,)."""
        known = self.known.threshold(tdp_w[:, None])
        score = self.hope(hoped)
        return np.asarray(np.where(known > 0, score / np.where(known > 0, known, 1.0), score * np.inf))

    def needed(self, workload: int, hoped: Floats, tdp_w: Floats) -> Floats:
        """Throughput (A,) below which a workload drags the score under what is known, the others as hoped."""
        known = self.known.threshold(tdp_w[:, None]) * (1 - BOUND_ROUNDING)
        return self.rule.least(workload, known, hoped) * (1 - BOUND_ROUNDING)


# Whether architectures of these optimistic throughputs (W, A) and TDP (A,) can matter, (A,).
Matters = Callable[[Floats, Floats], NDArray[np.bool_]]


@dataclass(frozen=True)
class Survivors:
    """Candidates that may matter: numbers, TDP in W, area in mm2, (A,) each, optimistic throughput (W, A)."""

    numbers: NDArray[np.int64]
    tdp_w: Floats
    area_mm2: Floats
    hoped: Floats

    def take(self, rows: Rows | NDArray[np.bool_]) -> Survivors:
        """Some of them."""
        return Survivors(self.numbers[rows], self.tdp_w[rows], self.area_mm2[rows], self.hoped[:, rows])


@dataclass
class CommonScreen:
    """Streams a space past bounds on every workload; memory grows with the survivors alone.

    `evaluators`: one per workload, on any table. `caps` (W,): throughput that no candidate exceeds, known before.
    After `run`, `within` and `pruned_by` say how many kept the budgets and where the others fell.
    """

    candidates: Candidates
    evaluators: Sequence[Evaluator]
    caps: Floats
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
        roofs = np.stack([roofline_throughput(evaluator) for evaluator in on])
        hoped = np.minimum(roofs, self.caps[:, None])
        alive = np.flatnonzero(matters(hoped, block.tdp_w))
        self.pruned_by["roofline"] += len(block) - len(alive)
        for w, evaluator in enumerate(on):
            if self.clock.over:
                break
            self.progress.update(
                "bounding", w, len(on), f"{len(alive)} architectures, {evaluator.task.workload.name}"
            )
            hoped[w, alive] = np.minimum(hoped[w, alive], throughput_bound(evaluator, alive))
            fits = hoped[w, alive] > 0
            left = matters(hoped[:, alive], block.tdp_w[alive])
            self.pruned_by["memory"] += int((~fits).sum())
            self.pruned_by["critical_path"] += int((fits & ~left).sum())
            alive = alive[left]
        return Survivors(block.numbers, block.tdp_w, block.area_mm2, hoped).take(alive)
