"""Every design within some per cent of the best: what the certified search rules out because it cannot win.

An architecture is left out only where its bound proves that it is further away, so that a complete set is the
whole set, dominated designs among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Objective, Task
from phaze.explore.request.search_progress import Clock, Progress
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, SAME

BATCH = 256  # architectures evaluated together


@dataclass(frozen=True)
class NearOptimal:
    """The designs found, best first: numbers of candidates, objective, throughput in samples/s, config.

    `complete`: nothing within the slack is missing. `promising`: architectures whose bound was within it.
    """

    numbers: NDArray[np.int64]
    value: Floats
    throughput: Floats
    configs: tuple[TrainingConfig, ...]
    promising: int
    complete: bool


def merit(objective: Objective, throughput: Floats, tdp_w: Floats) -> Floats:
    """The objective to maximise; 0 where nothing fits."""
    if objective is Objective.THROUGHPUT:
        return throughput
    if objective is Objective.THROUGHPUT_PER_TDP:
        return throughput / tdp_w
    return np.where(throughput > 0, 1.0 / tdp_w, 0.0)


@dataclass(frozen=True)
class NearOptimalSearch:
    """Looks for every candidate whose objective is at least `least`."""

    candidates: Candidates
    task: Task
    objective: Objective
    least: float
    clock: Clock
    progress: Progress
    _shared: dict[Any, Any] = field(default_factory=dict)

    def run(self) -> NearOptimal:
        """All of them, or those found when time is over."""
        numbers, hope, bounded = self._promising()
        order = numbers[np.argsort(-hope, kind="stable")]
        found: list[tuple[float, float, int, float, TrainingConfig]] = []
        done = 0
        while done < len(order) and not self.clock.over:
            self.progress.update("near the best", done, len(order), f"{len(found)} designs within reach")
            found += self._evaluated(order[done : done + BATCH])
            done += BATCH
        found.sort(key=lambda design: (-design[0], *design[1:3]))
        return NearOptimal(
            np.array([design[2] for design in found], dtype=np.int64),
            np.array([design[0] for design in found]),
            np.array([design[3] for design in found]),
            tuple(design[4] for design in found),
            len(order),
            bounded and done >= len(order) and not self.clock.over,
        )

    def _promising(self) -> tuple[NDArray[np.int64], Floats, bool]:
        """Numbers and optimistic objectives of the candidates that may be near enough, and whether all were asked."""
        numbers, hope = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for block in self.candidates.blocks():
            if self.clock.over:
                return np.concatenate(numbers), np.concatenate(hope), False
            value = self._optimistic(block)
            near = np.flatnonzero(value >= self.least)
            numbers.append(block.numbers[near])
            hope.append(value[near])
        return np.concatenate(numbers), np.concatenate(hope), True

    def _on(self, table: ArchitectureTable) -> Evaluator:
        return Evaluator(self.task, table, shared=self._shared)

    def _optimistic(self, block: Block) -> Floats:
        """Upper bounds (A,) on the objective: peak first, layers and placement where that is not enough."""
        evaluator, batch = self._on(block.table), self.task.cluster.global_batch
        peak = fastest_flops_per_s(block.table, self.task, self.task.recipe) * self.task.devices
        roof = batch * peak / evaluator.model_flops
        value = merit(self.objective, roof * (1 + SAME), block.tdp_w)
        rows = np.flatnonzero(value >= self.least)
        seconds = np.full(len(rows), np.inf)
        for config in evaluator.configs if len(rows) else ():
            seconds = np.minimum(seconds, evaluator.iteration_bound(config, rows))
        value[rows] = merit(self.objective, batch / seconds * (1 + SAME), block.tdp_w[rows])
        return value

    def _evaluated(self, numbers: NDArray[np.int64]) -> list[tuple[float, float, int, float, TrainingConfig]]:
        """(objective, TDP, number, throughput, config) of those that are near enough."""
        block = self.candidates.within(numbers)
        batch = self.task.cluster.global_batch
        effort = SolveLimits(self.clock.left, FEW_STATES)
        best = best_points(self._on(block.table), np.arange(len(block)), effort, self._give_up_s(block))
        throughput = batch / best.upper_s
        value = merit(self.objective, throughput, block.tdp_w)
        return [
            (float(value[i]), float(block.tdp_w[i]), int(block.numbers[i]), float(throughput[i]), config)
            for i, config in enumerate(best.configs)
            if config is not None and value[i] >= self.least
        ]

    def _give_up_s(self, block: Block) -> Floats:
        """Iteration time (A,) above which an architecture is not near enough."""
        if self.objective is Objective.TDP:
            return np.full(len(block), np.inf)
        per_w = block.tdp_w if self.objective is Objective.THROUGHPUT_PER_TDP else np.ones(len(block))
        least = np.asarray(self.least * per_w)
        return np.asarray(self.task.cluster.global_batch / least * (1 + SAME))
