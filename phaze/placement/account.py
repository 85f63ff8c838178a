"""Where the time and the energy of an iteration go, for one plan on one architecture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import Cluster
from phaze.placement.energy import ChainEnergy, drivers
from phaze.placement.plan import Plan, StagePlan
from phaze.scheduling.layers import LayerTimes, TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.workload import Numerics

FloatArray = NDArray[np.float64]
_FAST = 1e12  # bytes per cycle or bytes/s x 1e6 of an idealised memory or link: its time vanishes
_ONE = np.array([0])


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Seconds of one iteration by cause, on the slowest stage; they sum to the iteration."""

    compute_s: float
    memory_s: float
    collective_s: float
    bubble_s: float
    optimizer_s: float


@dataclass(frozen=True)
class Account:
    """One plan of one chain on the architecture at `row` of the timed chain's table."""

    plan: Plan
    timed: TimedChain
    row: int
    cluster: Cluster
    numerics: Numerics

    @cached_property
    def table(self) -> ArchitectureTable:
        """The architecture alone."""
        return self.timed.table.take(np.array([self.row]))

    def time_parts(self, effort: Effort) -> TimeParts:
        """What the slowest stage spends: idealise the link, then the memories, and see what each saves.

        Where the effort is too small to schedule an idealised chip exactly, its saving is told too small, never
        below zero.
        """
        stage, plan = self.plan.slowest, self.plan
        actual = stage.load_s - stage.transfer_s
        unlinked = self._ideal_link()
        quiet = min(actual, self._stage_s(stage, unlinked, effort))
        computing = min(quiet, self._stage_s(stage, self._ideal_memory(unlinked), effort))
        busy = plan.microbatches
        return TimeParts(
            compute_s=busy * computing,
            memory_s=busy * (quiet - computing),
            collective_s=busy * (actual - quiet + stage.transfer_s) + plan.reduction_s,
            bubble_s=(plan.slots - busy) * stage.load_s,
            optimizer_s=plan.optimizer_s,
        )

    def _stage_s(self, stage: StagePlan, timed: TimedChain, effort: Effort) -> float:
        """Layer time of one microbatch in a stage, without transfers."""
        _, times = timed.exact(_ONE, effort)
        return _sum(times, np.array(timed.chain.index[stage.first : stage.last + 1]), stage.recompute)

    def _ideal_link(self) -> TimedChain:
        network = self.timed.model.network.model_copy(
            update={"scale_up_bandwidth_bytes_per_s": None, "scale_up_latency_s": 0.0}
        )
        table = self.table.replace(link_bandwidth_bytes_per_s=np.array([_FAST * 1e6]))
        return TimedChain(self.timed.chain, CostModel(table, network), table)

    @staticmethod
    def _ideal_memory(timed: TimedChain) -> TimedChain:
        table = timed.table.replace(
            hbm_bandwidth_bytes_per_s=np.array([_FAST * 1e6]), global_buffer_bytes_per_cycle=np.array([_FAST])
        )
        return TimedChain(timed.chain, CostModel(table, timed.model.network), table)

    def energy_j(self) -> float:
        """Joules of one iteration on all devices."""
        energy = ChainEnergy(self.timed, self.cluster, self.numerics)
        return float(energy.energy_j(np.array([self.row]), drivers([self.plan], self.timed.chain))[0])


def _sum(times: LayerTimes, index: NDArray[np.intp], recompute: bool) -> float:
    forward, backward = times.forward_s[0, index], times.backward_s[0, index]
    return float((forward * (2 if recompute else 1) + backward).sum())
