"""Where the time and the energy of an iteration go, for one plan on one architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from phaze.cost.model import CostModel
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import Cluster
from phaze.placement.energy import ChainEnergy, drivers
from phaze.placement.plan import Plan, StagePlan
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.work import LayerChain
from phaze.workload.workload import Numerics

_FAST = 1e12  # bytes per cycle or bytes/s x 1e6 of an idealised memory or link: its time vanishes
_ROUNDING = 1e-9  # relative; times closer than this are equal


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
        unlinked_s, computing_s = self._ideal_s(stage, effort)
        quiet = _at_most(actual, unlinked_s)
        computing = _at_most(quiet, computing_s)
        busy = plan.microbatches
        return TimeParts(
            compute_s=busy * computing,
            memory_s=busy * (quiet - computing),
            collective_s=busy * (actual - quiet + stage.transfer_s) + plan.reduction_s,
            bubble_s=(plan.slots - busy) * stage.load_s,
            optimizer_s=plan.optimizer_s,
        )

    def _ideal_s(self, stage: StagePlan, effort: Effort) -> tuple[float, float]:
        """Layer time of one microbatch in a stage, transfers aside: with an ideal link, with ideal memories too."""
        network = self.timed.model.network.ideal()
        own = self.table
        ideal = own.take(np.zeros(2, dtype=np.intp)).replace(
            link_bandwidth_bytes_per_s=np.full(2, _FAST * 1e6),
            hbm_bandwidth_bytes_per_s=np.append(own["hbm_bandwidth_bytes_per_s"], _FAST * 1e6),
            global_buffer_bytes_per_cycle=np.append(own["global_buffer_bytes_per_cycle"], _FAST),
        )
        chain = _part(self.timed.chain, stage)
        _, times = TimedChain(
            chain, CostModel(ideal, network, self.timed.model.rung, self.timed.model.own), ideal
        ).exact(np.arange(2), effort)
        forward, backward = (t[:, list(chain.index)] for t in (times.forward_s, times.backward_s))
        unlinked, computing = (forward * (2 if stage.recompute else 1) + backward).sum(axis=1).tolist()
        return unlinked, computing

    def energy_j(self) -> float:
        """Joules of one iteration on all devices."""
        energy = ChainEnergy(self.timed, self.cluster, self.numerics)
        return float(energy.energy_j(np.array([self.row]), drivers([self.plan], self.timed.chain))[0])


def _at_most(limit_s: float, ideal_s: float) -> float:
    """The ideal time, but the limit itself where rounding alone is between the two, or the ideal is longer."""
    return ideal_s if ideal_s < limit_s * (1 - _ROUNDING) else limit_s


def _part(chain: LayerChain, stage: StagePlan) -> LayerChain:
    """The layers of one stage as a chain."""
    part = slice(stage.first, stage.last + 1)
    unique = sorted(set(chain.index[part]))
    return replace(
        chain,
        layers=tuple(chain.layers[u] for u in unique),
        index=tuple(unique.index(u) for u in chain.index[part]),
        names=chain.names[part],
    )
