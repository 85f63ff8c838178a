"""Energy per sample and peak memory of points: exact for their best plans, and bounds that hold for every plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Chain, Setting
from phaze.placement.energy import ChainEnergy, Drivers, drivers
from phaze.placement.least import least_drivers, least_peak_bytes
from phaze.placement.plan import Plan
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
ROUNDING = 1e-11  # bounds are sums of some thousand rounded terms: relaxed so that rounding never prunes


@dataclass(frozen=True)
class Measured:
    """The best plan of each of (A,) architectures in one setting, and what it means.

    None, and infinite figures, where nothing fits in memory.
    """

    plans: tuple[Plan | None, ...]
    iteration_s: FloatArray
    energy_per_sample_j: FloatArray
    memory_bytes: FloatArray


@dataclass
class Measures:
    """Energy and memory over the architectures of one evaluator; what settings share is kept."""

    evaluator: Evaluator
    _energy: dict[Chain, ChainEnergy] = field(default_factory=dict)
    _least: dict[tuple[Setting, float], Drivers] = field(default_factory=dict)
    _peak: dict[Setting, float] = field(default_factory=dict)

    def exact(
        self, setting: Setting, rows: Rows, effort: Effort, known_s: FloatArray | None = None
    ) -> Measured:
        """The plans that are best for throughput, and their figures.

        `known_s` (A,): iteration times known to be reached, which saves work.
        """
        known = np.full(len(rows), np.inf) if known_s is None else known_s
        plans = self.evaluator.plans(setting, rows, known, effort)
        found = np.flatnonzero([plan is not None for plan in plans])
        fitting = [plan for plan in plans if plan is not None]
        seconds, energy, memory = (np.full(len(rows), np.inf) for _ in range(3))
        seconds[found] = [plan.iteration_s for plan in fitting]
        memory[found] = [plan.memory_bytes for plan in fitting]
        chain = self.evaluator.timed(setting).chain
        energy[found] = self._per_sample(setting, rows[found], drivers(fitting, chain))
        return Measured(tuple(plans), seconds, energy, memory)

    def least_energy_j(self, setting: Setting, rows: Rows, least_s: FloatArray) -> FloatArray:
        """Joules per sample that no plan of a setting falls below, (A,).

        `least_s` (A,): a lower bound on the iteration time; infinite where nothing fits.
        """
        energy = np.empty(len(rows))
        for capacity, at in self.evaluator.capacities(rows):
            least = replace(self._least_drivers(setting, capacity), iteration_s=least_s[at])
            energy[at] = self._per_sample(setting, rows[at], least)
        return energy * (1 - ROUNDING)

    def least_memory_bytes(self, setting: Setting) -> float:
        """Peak memory that no plan of a setting falls below, on any architecture."""
        if setting not in self._peak:
            planner = self.evaluator.planner(setting, float(self.evaluator.capacity_bytes.max()))
            self._peak[setting] = least_peak_bytes(planner) * (1 - ROUNDING)
        return self._peak[setting]

    def _least_drivers(self, setting: Setting, capacity_bytes: float) -> Drivers:
        key = (setting, capacity_bytes)
        if key not in self._least:
            self._least[key] = least_drivers(self.evaluator.planner(setting, capacity_bytes))
        return self._least[key]

    def _per_sample(self, setting: Setting, rows: Rows, plans: Drivers) -> FloatArray:
        task, key = self.evaluator.task, setting.chain
        if key not in self._energy:
            timed = self.evaluator.timed(setting)
            self._energy[key] = ChainEnergy(timed, task.cluster, task.workload.numerics)
        return self._energy[key].energy_j(rows, plans) / task.cluster.global_batch


def energy_and_memory(
    evaluator: Evaluator, setting: Setting, rows: Rows, effort: Effort, known_s: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Energy per sample in J and peak memory in bytes of the best plans of one setting, (A,) each."""
    found = Measures(evaluator).exact(setting, rows, effort, known_s)
    return found.energy_per_sample_j, found.memory_bytes
