"""Energy per sample and peak memory of points: exact for their best plans, and bounds that hold for every plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.planned_iteration import worked_out
from phaze.explore.evaluation.training_config import Chain, TrainingConfig
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class Measured:
    """The best plan of each of (A,) architectures in one config, and what it means.

    None, and infinite figures, where nothing fits in memory.
    """

    plans: tuple[FoundPlan | None, ...]
    iteration_s: Floats
    energy_per_sample_j: Floats
    memory_bytes: Floats


_NOTHING = Drivers(np.zeros((1, 1)), np.ones(1), np.zeros(1), np.zeros(1))
"""Of a plan that recomputes, reduces and moves nothing: no plan spends less."""


def time_energy_memory(
    evaluator: Evaluator, config: TrainingConfig, plans: Mapping[int, FoundPlan]
) -> Iterator[tuple[float, float, float]]:
    """Seconds and joules of an iteration, and bytes of the fullest device, of a plan on each row of the table."""
    for planned in worked_out(evaluator, config, plans):
        yield planned.iteration.iteration_s, planned.energy_j, planned.iteration.memory_bytes


@dataclass
class Measures:
    """Energy and memory over the architectures of one evaluator; what configs share is kept."""

    evaluator: Evaluator
    _energy: dict[Chain, ChainEnergy] = field(default_factory=dict)

    def exact(
        self, config: TrainingConfig, rows: Rows, effort: SolveLimits, known_s: Floats | None = None
    ) -> Measured:
        """The plans that are best for throughput, and their figures.

        `known_s` (A,): iteration times known to be reached, which saves work.
        """
        known = np.full(len(rows), np.inf) if known_s is None else known_s
        plans = self.evaluator.plans(config, rows, known, effort)
        fitting = {i: plan for i, plan in enumerate(plans) if plan is not None}
        figures = np.full((3, len(rows)), np.inf)
        on_rows = self.evaluator.on(self.evaluator.table.take(rows))
        for i, values in zip(fitting, time_energy_memory(on_rows, config, fitting), strict=True):
            figures[:, i] = values
        seconds, joules, memory = figures
        return Measured(tuple(plans), seconds, joules / self.evaluator.task.cluster.global_batch, memory)

    def least_energy_j(self, config: TrainingConfig, rows: Rows, least_s: Floats) -> Floats:
        """Joules per sample that no plan of a config falls below, (A,).

        `least_s` (A,): a lower bound on the iteration time; infinite where nothing fits.
        """
        return self._per_sample(config, rows, replace(_NOTHING, iteration_s=least_s)) * (1 - BOUND_ROUNDING)

    def _per_sample(self, config: TrainingConfig, rows: Rows, plans: Drivers) -> Floats:
        task, key = self.evaluator.task, config.chain
        if key not in self._energy:
            self._energy[key] = ChainEnergy(
                self.evaluator.linked(config), task.cluster, task.workload.numerics
            )
        return self._energy[key].energy_j(rows, plans) / task.cluster.global_batch
