"""Time and memory of an iteration of a plan on one architecture, and the parts of its time by cause and operator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import NO_OWN, OwnConstants
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.cost.simt_chips import runs_kernels
from phaze.errors import LEFT_OUT, OutOfTimeError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import under_load
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import (
    Offload,
    ParallelPlan,
    Zero,
    changed_plan,
    check_admissible,
    check_mode,
)
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s, simulate
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.training.device_breakdown import breakdown, busiest, runs_of_a_chunk
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.gradient_sync import (
    DeviceParameters,
    GradientSyncRates,
    GradientSyncs,
    GradientSyncWork,
)
from phaze.parallel.training.iteration import Iteration, MemoryBreakdown
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.parallel.training.layer_costs import CoreTimes, LayerCosts, cost_ahead, layer_costs
from phaze.parallel.training.memory.host_offload import Host, OffloadTraffic, SwappedChunks
from phaze.parallel.training.memory.memory_footprint import (
    ChunkFootprint,
    GroupFootprint,
    PlanMemory,
    divided_parameters,
    ranks_of,
    recomputed_groups,
    sharded_groups,
)
from phaze.parallel.training.memory.recomputed_layers import again_and_ends, recomputed_units
from phaze.parallel.training.operator_costs import OperatorCosts
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.stage_times import StageTimes, boundary_bytes, group_passes, stage_times
from phaze.scheduling.layers import ScheduledLayers, TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import SETTLED_STATES
from phaze.workload.work import LayerChain
from phaze.workload.workload import Workload

T = TypeVar("T")


@dataclass(frozen=True)
class Estimator:
    """Plans of one workload on one architecture (`table` of one row) of a cluster, under a framework.

    What plans share is kept. Of several architectures it knows the layers alone, and `each` of them, which then is
    a row `among` them. `laid_out`: what is known already that no architecture changes. `scheduled`: layers whose times
    are known, too. Once the time of `limits` is over there are no more answers: OutOfTimeError, so that no search goes
    on and no unfinished schedule is believed.
    """

    workload: Workload
    table: ArchitectureTable
    cluster: Cluster
    framework: Framework
    rung: Fidelity = Fidelity.ANALYTIC
    own: OwnConstants = field(default_factory=lambda: NO_OWN)
    limits: SolveLimits = field(default_factory=lambda: SolveLimits(lambda: inf, states=SETTLED_STATES))
    laid_out: PlanLayouts | None = None
    scheduled: ScheduledLayers | None = None
    among: tuple[Estimator, int] | None = None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def each(self) -> list[Estimator]:
        """One for each architecture: the same to the last bit as it is alone, but layers are worked out for all."""
        count = len(self.table)
        if count == 1:
            return [self]
        alone = (self.table.take(np.array([row])) for row in range(count))
        return [
            replace(self, table=one, laid_out=self.layouts, among=(self, row), _kept={})
            for row, one in enumerate(alone)
        ]

    @cached_property
    def loaded(self) -> ArchitectureTable:
        """The architecture at the clock that training leaves it."""
        return under_load(self.table)

    @cached_property
    def model(self) -> CostModel:
        """Operator costs on the architecture."""
        return CostModel(self.loaded, self.cluster.network, self.rung, self.own)

    @cached_property
    def costs(self) -> OperatorCosts:
        """Operators as the framework runs them."""
        links = np.asarray(self.loaded["link_bandwidth_bytes_per_s"], dtype=np.float64)
        inside = self.cluster.devices <= self.cluster.network.scale_up_devices
        framework = self.framework.in_one_server() if inside else self.framework
        return OperatorCosts(self.model, framework, links)

    @cached_property
    def layouts(self) -> PlanLayouts:
        """Layers, chunks, bytes and exchanges, whatever the architecture."""
        framework = self.framework.running(self.workload)
        return self.laid_out or PlanLayouts(self.workload, self.cluster, framework)

    @cached_property
    def rates(self) -> GradientSyncRates:
        """Bytes on the wire, and the speed of the optimizer."""
        step_s = optimizer_s_per_parameter(self.table, self.workload.numerics)
        return GradientSyncRates(*self.layouts.wire_bytes, float(step_s[0]))

    def layer_costs(self, plan: ParallelPlan) -> LayerCosts:
        """Costs of the layers: the same for all plans that agree in microbatch and sharding."""
        found = self._once(plan)
        return self._joined(found) if plan.joins_ends else found

    def _once(self, plan: ParallelPlan, *, least: bool = False) -> LayerCosts:
        """Costs of the layers where tied parameters count at both ends; `least`: as of `least_passes`."""
        self._look_at_the_clock()
        if plan.layer_order:
            return self._in_order(plan, least=least)
        selective = plan.recompute is Recompute.SELECTIVE
        spared = plan.kept | plan.offloaded
        key = (plan.microbatch, plan.sharding, selective, spared, least, plan.branches)
        if key not in self._kept:
            self._kept[key] = self._layer_costs(plan, least=least)
        found: LayerCosts = self._kept[key]
        return found

    def _in_order(self, plan: ParallelPlan, *, least: bool) -> LayerCosts:
        """Costs of the layers as the plan orders them, which are those of any other order."""
        found, chain = self._once(changed_plan(plan, layer_order=()), least=least), self.chain(plan)
        return self.once(("in order", id(found), id(chain)), lambda: replace(found, chain=chain))

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Value of a key, worked out the first time that it is asked for."""
        if key not in self._kept:
            self._kept[key] = work_out()
        found: T = self._kept[key]
        return found

    def _joined(self, costs: LayerCosts) -> LayerCosts:
        """Figures of a chain whose tied parameters count once."""
        key = "joined", id(costs)
        if key not in self._kept:
            chain = self.layouts.joined(costs.chain)
            self._kept[key] = costs if chain is costs.chain else replace(costs, chain=chain)
        found: LayerCosts = self._kept[key]
        return found

    def _layer_costs(self, plan: ParallelPlan, *, least: bool) -> LayerCosts:
        if self.among is not None:
            many, row = self.among
            return many._once(plan, least=least).alone(row)
        chain, sharding = self.chain(plan), plan.sharding
        if sharding.replicated:
            ends = (sharding.divided, sharding.undivided)
            divided, undivided = (self._once(replace(plan, sharding=one), least=least) for one in ends)
            return divided.mixed(undivided, chain)
        spared, limits = plan.kept | plan.offloaded, None if least else self.limits
        found = layer_costs(chain, self.costs, self.loaded, limits, spared, self.scheduled, self._cores)
        return found.alone() if len(self.table) == 1 else found

    @cached_property
    def _cores(self) -> CoreTimes:
        return CoreTimes(self.model, self.loaded)

    def _look_at_the_clock(self) -> None:
        if self.limits.left_s() <= 0:
            raise OutOfTimeError(LEFT_OUT)

    def passes(self, plan: ParallelPlan) -> Floats:
        """Pass times of groups of layers, rows of `GroupPasses` (7, G), without exchanges of ZeRO."""
        return self._passes(self.layer_costs(plan), plan)

    def least_passes(self, plan: ParallelPlan) -> Floats:
        """At most `passes`, where `bounds_layers`: layers take what no schedule of them is shorter than."""
        return self._passes(self._once(plan, least=True), plan)

    def _passes(self, costs: LayerCosts, plan: ParallelPlan) -> Floats:
        key = "passes", id(costs), plan.grain
        if key not in self._kept:
            self._kept[key] = group_passes(costs, self.division(plan), self.framework)
        found: Floats = self._kept[key]
        return found

    @property
    def bounds_layers(self) -> bool:
        """Whether bounds of layers cost less than their times, and iterations of shorter layers are never longer.

        Layers of chips that run kernels need no schedule. Where devices wait for launches, shorter passes wait longer.
        """
        said = self.framework
        launches = said.dispatch_s or said.dispatch_backward_s or said.microbatch_s
        return not launches and not runs_kernels(self.table, self.rung).all()

    def foresee(self, plans: Sequence[ParallelPlan]) -> None:
        """Cost the operators of some plans together, which is faster than of one after the other.

        The least and most microbatches come first: their chains tell those between. Of one among many, for all of them.
        """
        if self.among is not None:
            self.among[0].foresee(plans)
            return
        sizes = {s.microbatch for s in plans}
        ends = (min(sizes), max(sizes)) if sizes else ()
        ordered = sorted(plans, key=lambda s: s.microbatch not in ends)
        chains: dict[frozenset[str], list[LayerChain]] = {}
        for plan in ordered:
            chains.setdefault(plan.kept | plan.offloaded, []).append(self.chain(plan))
        for spared, some in chains.items():
            cost_ahead(some, self.costs, self.loaded, spared)

    def chain(self, plan: ParallelPlan) -> LayerChain:
        """The layers of the model as a device runs them."""
        return self.layouts.chain(plan)

    def division(self, plan: ParallelPlan) -> Division:
        """The chunks of the model. Raises InputError where it has too few blocks."""
        self._look_at_the_clock()
        return self.layouts.division(plan)

    def microbatches(self, plan: ParallelPlan) -> int:
        """Microbatches that each pipeline runs."""
        return self.layouts.microbatches(plan)

    def placed(self, plan: ParallelPlan) -> list[list[int]]:
        """The chunks of every device of a pipeline."""
        s = plan
        found: list[list[int]] = chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tolist()
        return found

    def stage_times(self, plan: ParallelPlan) -> StageTimes:
        """Seconds of one microbatch in every chunk; those of the plan that was asked for last are kept."""
        last: tuple[ParallelPlan, StageTimes] | None = self._kept.get("stage_times")
        if last is None or last[0] != plan:
            costs, division = self.layer_costs(plan), self.division(plan)
            rest = (self.exchanges(plan), self.framework, self.rates.wire_bytes, self.traffic(plan))
            edges = self.layouts.edges(plan)
            last = self._kept["stage_times"] = plan, stage_times(costs, division, *rest, edges)
        return last[1]

    def traffic(self, plan: ParallelPlan) -> OffloadTraffic | None:
        """Traffic with the host, where the plan leaves something to it."""
        if not plan.offload:
            return None
        host, wire = Host.of(self.table, plan), self.rates.wire_bytes
        footprint, division, swapped = self.memory_footprint(plan), self.division(plan), None
        if plan.schedule.chunk_by_chunk:
            swapped = SwappedChunks(np.array(self.placed(plan)), self.microbatches(plan))
        hides = self.framework.hides_offload
        return OffloadTraffic.of(host, footprint, division, plan, wire, hides=hides, swapped=swapped)

    def memory_footprint(self, plan: ParallelPlan) -> GroupFootprint:
        """Memory footprint of every group of layers on a device."""
        return self.layouts.memory_footprint(plan)

    def memory(self, plan: ParallelPlan) -> tuple[MemoryBreakdown, ...]:
        """Bytes on every device of a pipeline."""
        s, division = plan, self.division(plan)
        footprint = ChunkFootprint.of(self.memory_footprint(s), division, recomputed_groups(division, s))
        memory, own = self.memory_of(s, footprint), chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
        return memory.devices(own, self.layouts.held(s), self.layouts.waiting_bytes(s))

    def memory_of(self, plan: ParallelPlan, footprint: ChunkFootprint) -> PlanMemory:
        """Memory of a plan whose chunks need so much."""
        return self.layouts.memory_of(plan, footprint)

    def iteration(self, plan: ParallelPlan) -> Iteration:
        """Time and memory of an iteration. Raises InputError where the cluster or the model do not allow it."""
        s, microbatches = plan, self.microbatches(plan)
        check_admissible(s, self.cluster, microbatches)
        check_mode(s, self.workload.mode)
        chain, found = self.layer_costs(s).chain, self.stage_times(s)
        busy_s = pipeline_s(s.schedule, microbatches, s.pipeline_parallel, self._chunks(found))
        placed, syncs = self.placed(s), self.gradient_sync(s)
        iteration_s = busy_s + syncs.longest_s + self.framework.iteration_s
        device = busiest(found, placed)
        own, sync = placed[device], syncs.of_device(device)
        iteration = Iteration(
            iteration_s=iteration_s,
            time=breakdown(found, own, s, microbatches, sync, iteration_s, self.framework),
            memory=self.memory(s),
            microbatches=microbatches,
            model_flops=chain.model_flops * (self.cluster.global_batch // s.microbatch),
            host_link_bytes=float(self.host_link_bytes(s).max()),
        )
        if s.offload:
            Host.of(self.table, s).check(iteration)
        return iteration

    def host_capacity_bytes(self, plan: ParallelPlan) -> float:
        """Bytes that a device may leave to its host. Raises InputError where the architecture does not say."""
        return Host.of(self.table, plan).memory_bytes if plan.offload else inf

    def device_parameters(self, plan: ParallelPlan) -> DeviceParameters:
        """Parameters and groups of layers of every device of a pipeline."""
        return self.layouts.device_parameters(plan)

    def whole_parameters(self, plan: ParallelPlan) -> DeviceParameters | None:
        """Those of groups that every replica keeps whole, where some are divided; None where all are treated alike."""
        if not plan.shards_layers:
            return None
        return self.layouts.device_parameters(plan, ~sharded_groups(self.division(plan), plan))

    def gradient_sync(self, plan: ParallelPlan) -> GradientSyncs:
        """Gradient synchronisation after the last microbatch on every device of its pipeline, (1, p)."""
        found, placed = self.stage_times(plan), np.array(self.placed(plan))
        passes = (found.forward.pass_s[placed].sum(axis=1), found.turned_s[placed].sum(axis=1))
        held, whole = self.device_parameters(plan), self.whole_parameters(plan)
        (sync,) = self.gradient_syncs_beside(self.exchanges(plan), held, (passes,), whole)
        return sync

    def gradient_syncs(
        self, exchanges: Communication, held: DeviceParameters, forward_s: Floats, turned_s: Floats
    ) -> GradientSyncs:
        """Gradient synchronisation on devices whose passes of one microbatch take so long, (p,) or (V, p) each."""
        (found,) = self.gradient_syncs_beside(exchanges, held, ((forward_s, turned_s),))
        return found

    def gradient_syncs_beside(
        self,
        exchanges: Communication,
        held: DeviceParameters,
        passes: Sequence[tuple[Floats, Floats]],
        whole: DeviceParameters | None = None,
    ) -> list[GradientSyncs]:
        """The same beside each of several passes, whose exchanges are costed once; `whole` as of `GradientSyncWork`."""
        each, step_s = exchanges.plans, self.rates.optimizer_s
        if any(s.offload for s in each):
            step_s = np.array([[self.step_s(s)] for s in each])
        counts = [self.microbatches(s) for s in each]
        work = GradientSyncWork.of(held, exchanges, self.framework, self.rates.wire_bytes, counts, whole)
        return [work.beside(*some, self.framework, step_s) for some in passes]

    def chunks(self, plan: ParallelPlan) -> Chunks:
        """Chunk times of its pipeline."""
        return self._chunks(self.stage_times(plan))

    def timeline(self, plan: ParallelPlan) -> Timeline:
        """When every pass of one pipeline runs; what follows the last one is not in it."""
        s = plan
        return simulate(s.schedule, self.microbatches(s), s.pipeline_parallel, self.chunks(s))

    def energy_j(self, plan: ParallelPlan, iteration: Iteration) -> float:
        """Joules of one iteration on all devices of the cluster."""
        energy, row = self.chain_energy(plan)
        return float(energy.energy_j(np.array([row]), self.drivers(plan, iteration.iteration_s))[0])

    def chain_energy(self, plan: ParallelPlan) -> tuple[ChainEnergy, int]:
        """Energy of its layers on all architectures that this one is among, and the row of this one."""
        chain, (many, row) = self.layer_costs(plan).chain, self.among or (self, 0)
        key = "energy", id(chain)
        if key not in many._kept:
            timed = TimedChain(chain, many.model, many.table)
            many._kept[key] = ChainEnergy(timed, self.cluster, self.workload.numerics, self.framework)
        found: ChainEnergy = many._kept[key]
        return found, row

    def drivers(self, plan: ParallelPlan, iteration_s: float) -> Drivers:
        """What energy depends on of a plan whose iterations take so long; the time aside, no architecture matters."""
        s, chain, division = plan, self.layouts.sizes(plan).chain, self.division(plan)
        units = recomputed_units(chain.names, division, s)
        again = np.sum(again_and_ends(units, len(chain.index)), axis=0)
        edges = self.layouts.edges(s)
        sent = boundary_bytes(chain, division) if edges is None else edges.sent_bytes
        return Drivers(
            np.bincount(chain.index, weights=again, minlength=len(chain.layers))[None].astype(np.float64),
            np.array([float(s.data_parallel)]),
            np.array([float(sent.sum()) if s.pipeline_parallel > 1 else 0.0]),
            np.array([iteration_s]),
            gathers=2.0 * self.microbatches(s) * self._gathered_share(s),
            host_bytes=float(self.host_link_bytes(s).sum()) * s.width * s.data_parallel,
        )

    def _gathered_share(self, plan: ParallelPlan) -> float:
        """Share of the parameters that replicas gather for every pass."""
        if not plan.shards_layers:
            return float(plan.zero is Zero.WEIGHTS)
        held = self.memory_footprint(plan).parameters
        return float(held[sharded_groups(self.division(plan), plan)].sum() / held.sum())

    def host_link_bytes(self, plan: ParallelPlan) -> Floats:
        """Bytes of an iteration over the link between every device of a pipeline and its host, both ways, (p,)."""
        traffic, placed = self.traffic(plan), np.array(self.placed(plan))
        if traffic is None:
            return np.zeros(len(placed))
        runs = runs_of_a_chunk(plan, self.microbatches(plan))
        found: Floats = traffic.bytes_in_iteration(runs)[placed].sum(axis=1)
        if len({Offload.OPTIMIZER, Offload.WEIGHTS} & plan.offload) == 1:  # new weights change sides
            held = self.device_parameters(plan)
            ranks = ranks_of(plan) if plan.zero else (1, 1, 1)
            stepped = divided_parameters(ranks, held.shared, held.experts, held.replicated)
            found = found + self.rates.gathered_bytes * stepped
        return found

    def step_s(self, plan: ParallelPlan) -> float:
        """Seconds of the optimizer, on the device or its host, per parameter."""
        if not plan.offload:
            return float(self.rates.optimizer_s)
        return Host.of(self.table, plan).step_s(self.rates, plan, self.workload.numerics)

    def exchanges(self, *plans: ParallelPlan) -> Communication:
        """Communication between their devices."""
        return self.layouts.exchanges(float(self.table["link_bandwidth_bytes_per_s"][0]), *plans)

    def _chunks(self, found: StageTimes) -> Chunks:
        weight = np.minimum(found.backward.weight_s, found.turned_s)
        return Chunks(
            forward_s=found.forward.pass_s,
            input_gradient_s=found.turned_s - weight,
            weight_gradient_s=weight,
            transfer_s=found.transfer_s,
            blocking=not self.framework.hides_transfers,
            graph=found.graph,
        )
