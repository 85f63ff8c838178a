"""Where the time and the energy of an iteration go, for one plan on one architecture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import Collective, wire_bytes
from phaze.cost.energy import Events, dynamic_j, optimizer_events, pass_events, static_w
from phaze.cost.model import CostModel
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import Cluster
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
        """Joules of one iteration on all devices: events of every microbatch, and what flows whatever runs."""
        plan, devices = self.plan, self.cluster.devices
        work = self._compute_events() * (self.cluster.global_batch / plan.microbatch * plan.tensor_parallel)
        work = work + self._transfer_events()
        dynamic = float(dynamic_j(work, self.table)[0])
        return dynamic + float(static_w(self.table)[0]) * devices * plan.iteration_s

    def _compute_events(self) -> Events:
        """Events of one microbatch through the whole chain, on one device of every stage's group."""
        where = np.array([self.row])
        forward = [pass_events(p.costs, where) for p in self.timed.forward]
        backward = [pass_events(p.costs, where) for p in self.timed.backward]
        total = Events()
        for stage in self.plan.stages:
            for unique in self.timed.chain.index[stage.first : stage.last + 1]:
                total = total + forward[unique] * (2 if stage.recompute else 1) + backward[unique]
        return total

    def _transfer_events(self) -> Events:
        """Stage exchanges, gradient reduction and optimizer step of all devices; links count both ends."""
        plan, chain = self.plan, self.timed.chain
        microbatches = self.cluster.global_batch / plan.microbatch
        ways = 2 if any(layer.backward is not None for layer in chain.layers) else 1
        cut = sum(chain.layers[chain.index[s.last]].output_bytes for s in plan.stages[:-1])
        width = plan.tensor_parallel
        gathered = width * float(wire_bytes(Collective.ALL_GATHER, cut, width))
        replicas = width * plan.data_parallel
        events = Events(link_bytes=2 * microbatches * ways * (cut + gathered))
        for stage in plan.stages:
            gradient = stage.parameters * self.numerics.gradient_bytes
            reduced = float(wire_bytes(Collective.ALL_REDUCE, gradient, plan.data_parallel))
            step = optimizer_events(stage.parameters, self.numerics)
            events = events + (step + Events(link_bytes=2 * reduced)) * replicas
        return events


def _sum(times: LayerTimes, index: NDArray[np.intp], recompute: bool) -> float:
    forward, backward = times.forward_s[0, index], times.backward_s[0, index]
    return float((forward * (2 if recompute else 1) + backward).sum())
