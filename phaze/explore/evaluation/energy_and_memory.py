"""Energy per sample and peak memory of points: exact for their best plans, and bounds that hold for every plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.pass_energy import full_load_w, static_w
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.planned_iteration import estimator_of, worked_out
from phaze.explore.evaluation.training_config import Chain, TrainingConfig
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING
from phaze.workload.work import LayerChain


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


@dataclass(frozen=True)
class _PlanFigures:
    """A strategy's memory on its fullest device, what its energy depends on, and its layers; no architecture changes
    any of them.
    """

    memory_bytes: float
    drivers: Drivers
    chain: LayerChain


@dataclass
class Measures:
    """Energy and memory over the architectures of one evaluator; what configs and strategies share is kept."""

    evaluator: Evaluator
    _energy: dict[tuple[Chain, bool], ChainEnergy] = field(default_factory=dict)
    _least_work_j: dict[Chain, Floats] = field(default_factory=dict)
    _estimators: dict[TrainingConfig, Estimator] = field(default_factory=dict)

    def exact(
        self, config: TrainingConfig, rows: Rows, effort: SolveLimits, known_s: Floats | None = None
    ) -> Measured:
        """The plans that are best for throughput, and their figures.

        `known_s` (A,): iteration times known to be reached, which saves work.
        """
        known = np.full(len(rows), np.inf) if known_s is None else known_s
        plans = self.evaluator.plans(config, rows, known, effort)
        seconds, joules, memory = np.full((3, len(rows)), np.inf)
        places: dict[ParallelPlan, list[int]] = {}
        for i, plan in enumerate(plans):
            if plan is not None:
                seconds[i] = plan.iteration_s
                places.setdefault(plan.strategy, []).append(i)
        for strategy, at in places.items():
            told = self._told(config, strategy, int(rows[at[0]]))
            energy = self._chain_energy(config, strategy.joins_ends, told.chain)
            memory[at] = told.memory_bytes
            joules[at] = energy.energy_j(rows[at], replace(told.drivers, iteration_s=seconds[at]))
        return Measured(tuple(plans), seconds, joules / self.evaluator.task.cluster.global_batch, memory)

    def _told(self, config: TrainingConfig, strategy: ParallelPlan, row: int) -> _PlanFigures:
        """Figures of a strategy in a config; `row`: an architecture that has it."""
        key, known = ("plan figures", config, strategy), self.evaluator.shared
        if key not in known:
            if config not in self._estimators:
                table, layouts = self.evaluator.table.take(np.array([row])), self.evaluator.layouts(config)
                self._estimators[config] = estimator_of(self.evaluator.task, table, config.recipe, layouts)
            costs = self._estimators[config]
            memory = max(part.total_bytes for part in costs.memory(strategy))
            known[key] = _PlanFigures(
                memory, costs.drivers(strategy, 0.0), costs.layouts.sizes(strategy).chain
            )
        found: _PlanFigures = known[key]
        return found

    def _chain_energy(self, config: TrainingConfig, joined: bool, chain: LayerChain) -> ChainEnergy:
        """Energy of a chain of layers; `joined`: whether tied parameters count once."""
        evaluator, key = self.evaluator, (config.chain, joined)
        if key not in self._energy:
            timed = TimedChain(chain, evaluator.model, evaluator.table)
            self._energy[key] = ChainEnergy(
                timed, evaluator.task.cluster, evaluator.task.workload.numerics, evaluator.framework
            )
        return self._energy[key]

    def least_energy_j(self, config: TrainingConfig, rows: Rows, least_s: Floats) -> Floats:
        """Joules per sample that no plan of a config falls below, (A,).

        `least_s` (A,): a lower bound on the iteration time; infinite where nothing fits.
        """
        return np.minimum(*self.energy_branches_j(config, rows, least_s))

    def energy_branches_j(self, config: TrainingConfig, rows: Rows, least_s: Floats) -> tuple[Floats, Floats]:
        """The same by the least work and what flows beside it, and at full load; each is linear in time, (A,).

        Chips that no firmware holds to full load have the first twice.
        """
        worked = self.least_work_j(config)[rows] + self.standing_w[rows] * least_s
        held = np.isfinite(self.most_w[rows])
        full = np.multiply(self.most_w[rows], least_s, where=held, out=worked.copy())
        share = (1 - BOUND_ROUNDING) / self.evaluator.task.cluster.global_batch
        return worked * share, full * share

    def least_work_j(self, config: TrainingConfig) -> Floats:
        """Joules that the work of an iteration takes at least on every architecture, however long it takes, (A,)."""
        if (key := config.chain) not in self._least_work_j:
            task, every = self.evaluator.task, np.arange(len(self.evaluator.table))
            timed, framework = self.evaluator.linked(config), self.evaluator.framework
            energy = ChainEnergy(timed, task.cluster, task.workload.numerics, framework)
            self._least_work_j[key] = energy.work_j(every, _NOTHING)
        return self._least_work_j[key]

    @cached_property
    def most_w(self) -> Floats:
        """Watts of all devices at full load, (A,); infinite for chips that are not held to it."""
        return full_load_w(self.evaluator.table) * self.evaluator.task.devices

    @cached_property
    def standing_w(self) -> Floats:
        """Watts that flow in all devices whatever runs, (A,)."""
        return static_w(self.evaluator.table) * self.evaluator.task.devices
