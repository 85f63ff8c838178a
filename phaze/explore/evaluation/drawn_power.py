"""Power that an accelerator draws while the workload runs under its plan, against a limit of it: bounds that hold for
every plan, and whether a plan keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.cost.pass_energy import Events, dynamic_j
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.parallel.training.iteration_energy import least_products
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING, SAME
from phaze.workload.operators.low_precision import Recipe


@dataclass
class DrawnPower:
    """The points of one evaluator under a limit in W of what each device draws, mean over all and the iteration.

    A plan draws what its work takes over its time, and what flows whatever runs: P = work / (seconds x devices) +
    standing. So one that keeps the limit takes no less than work / (devices x (limit - standing)) seconds. A chip that
    firmware holds to its full load keeps every limit from that on.
    """

    measures: Measures
    limit_w: float
    _products_j: dict[Recipe | None, Floats] = field(default_factory=dict)

    def least_s(self, config: TrainingConfig, rows: Rows, *, work: bool = True) -> Floats:
        """Seconds of an iteration that no plan of a config falls below and keeps the limit, (A,).

        Infinite where standing power alone exceeds it. Without `work` only products count: no layer is costed.
        """
        joules = self.measures.least_work_j(config) if work else self._least_products_j(config.recipe)
        left_w = self.limit_w * self._devices * (1 + SAME) - self.measures.standing_w[rows]
        with np.errstate(divide="ignore"):
            seconds = joules[rows] / np.maximum(left_w, 0.0)
        seconds = np.where(self.measures.most_w[rows] <= self.limit_w * self._devices, 0.0, seconds)
        return np.asarray(seconds * (1 - BOUND_ROUNDING))

    def kept(self, seconds: Floats, energy_per_sample_j: Floats) -> Flags:
        """Whether plans that take so many seconds and joules per sample keep the limit, (A,)."""
        batch = self._evaluator.task.cluster.global_batch
        return np.asarray(energy_per_sample_j * batch <= self.limit_w * self._devices * seconds * (1 + SAME))

    @property
    def _evaluator(self) -> Evaluator:
        return self.measures.evaluator

    @property
    def _devices(self) -> int:
        return self._evaluator.task.devices

    def _least_products_j(self, recipe: Recipe | None) -> Floats:
        """Joules of the products of an iteration that no config of a recipe falls below, (A,)."""
        if recipe not in self._products_j:
            self._products_j[recipe] = dynamic_j(self._products(recipe), self._evaluator.table)
        return self._products_j[recipe]

    def _products(self, recipe: Recipe | None) -> Events:
        key, known = ("least products", recipe), self._evaluator.shared
        if key not in known:
            configs = {one.chain: one for one in self._evaluator.configs if one.recipe == recipe}
            chains = (self._evaluator.options(config).chain for config in configs.values())
            known[key] = _least(least_products(chain, self._evaluator.task.cluster) for chain in chains)
        found: Events = known[key]
        return found


def drawn_w(evaluator: Evaluator, effort: SolveLimits) -> Floats:
    """Watts that a device draws under the fastest plan of every architecture, (A,); 0 where nothing fits."""
    best, measures = best_points(evaluator, np.arange(len(evaluator.table)), effort), Measures(evaluator)
    watts = np.zeros(len(evaluator.table))
    for config in {one: None for one in best.configs if one is not None}:
        at = np.flatnonzero([one == config for one in best.configs])
        found = measures.exact(config, at, effort, best.upper_s[at])
        watts[at] = found.energy_per_sample_j / found.iteration_s
    return np.asarray(watts * evaluator.task.cluster.global_batch / evaluator.task.devices)


def _least(each: Iterable[Events]) -> Events:
    """The least of every count."""
    rows = [[getattr(events, one.name) for one in fields(Events)] for events in each]
    return Events(*np.min(rows, axis=0).tolist())
