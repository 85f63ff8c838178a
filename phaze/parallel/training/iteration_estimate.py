"""Time and memory of an iteration of a plan on one architecture, and the parts of its time by cause and operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
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
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero, check_admissible, check_mode
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s, simulate
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.training.communication import Communication
from phaze.parallel.training.gradient_sync import (
    DeviceParameters,
    GradientSync,
    GradientSyncRates,
    GradientSyncs,
    GradientSyncWork,
)
from phaze.parallel.training.host_offload import Host, OffloadTraffic, SwappedChunks
from phaze.parallel.training.iteration import Iteration, MemoryBreakdown, TimeBreakdown
from phaze.parallel.training.iteration_energy import ChainEnergy, Drivers
from phaze.parallel.training.layer_costs import CoreTimes, LayerCosts, cost_ahead, layer_costs
from phaze.parallel.training.memory_footprint import (
    ChunkFootprint,
    GroupFootprint,
    PlanMemory,
    divided_parameters,
    ranks_of,
    recomputed_groups,
    sharded_groups,
)
from phaze.parallel.training.operator_costs import OperatorCosts
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.recomputed_layers import again_and_ends, recomputed_units
from phaze.parallel.training.stage_times import StageTimes, boundary_bytes, group_passes, stage_times
from phaze.scheduling.layers import ScheduledLayers, TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import SAME, SETTLED_STATES
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import LayerChain, Pass
from phaze.workload.workload import Workload

T = TypeVar("T")


def breakdown(
    found: StageTimes,
    own: Sequence[int],
    plan: ParallelPlan,
    microbatches: int,
    sync: GradientSync,
    iteration_s: float,
    framework: Framework,
) -> TimeBreakdown:
    """Parts of an iteration on a device with its `own` chunks and `sync`, of so many microbatches of a pipeline.

    bubble = iteration - sum of all other parts: waiting for other devices, in the pipeline or for a longer
    synchronisation than its own. It is never negative, since a device does its passes and receipts one by one.
    """
    sides = (found.forward, found.recomputation, found.backward)
    runs = runs_of_a_chunk(plan, microbatches)

    def spent(*values: Floats) -> float:
        return float(sum(runs * value[own].sum() for value in values))

    received = 0.0 if framework.hides_transfers else runs * _received_s(found, own, plan)
    vector = spent(found.forward.vector_s, found.backward.vector_s)
    exposed = {p: spent(found.forward.exposed_s[p], found.backward.exposed_s[p]) for p in Parallel}
    parts = TimeBreakdown(
        product_s=spent(found.forward.kernels_s, found.backward.kernels_s) - vector,
        vector_s=vector,
        recompute_s=spent(found.recomputation.device_s),
        tensor_s=exposed[Parallel.TENSOR],
        context_s=exposed[Parallel.CONTEXT],
        expert_s=exposed[Parallel.EXPERT],
        transfer_s=received,
        gather_s=spent(found.forward.gathered_s, found.backward.gathered_s) + sync.gather_s,
        reduction_s=spent(found.backward.reduced_s) + sync.reduction_s,
        offload_s=spent(found.forward.moved_s, found.backward.moved_s),
        bubble_s=0.0,
        optimizer_s=sync.optimizer_s,
        host_s=spent(*(side.host_s for side in sides)) + framework.iteration_s,
        hidden_s=spent(*(side.hidden_s for side in sides)) + sync.hidden_s,
    )
    return replace(parts, bubble_s=_rest_s(iteration_s, parts.total_s))


def runs_of_a_chunk(plan: ParallelPlan, microbatches: int) -> int:
    """Microbatches that come to a chunk on a device: where a pipeline holds the model twice, half of them each."""
    return microbatches // plan.schedule.weight_copies


def busiest(found: StageTimes, placed: Sequence[Sequence[int]]) -> int:
    """The device that has most to do, of those with some chunks each."""
    work_s = found.forward.pass_s + found.turned_s
    return max(range(len(placed)), key=lambda device: float(work_s[placed[device]].sum()))


def _received_s(found: StageTimes, own: Sequence[int], plan: ParallelPlan) -> float:
    """Receipts of one microbatch that block a device with these chunks: sends go on at once, each way.

    Every chunk receives from the one ahead and in training the gradient from the one behind, but from none on the same
    device. (The neighbours that a device of DualPipe holds belong to the two copies of the model, which feed one
    another nothing.) Of chunks that are a graph, one for every edge that leads there, or on.
    """
    if found.graph is not None:
        graph = found.graph
        edges = (edge for chunk in own for edge in (*graph.into[chunk], *graph.out_of[chunk]))
        return float(sum(found.transfer_s[edge] for edge in edges))
    ends = np.concatenate([[0.0], found.transfer_s, [0.0]])
    each = (0,) if plan.schedule.forward_only else (0, 1)
    ways = [chunk + side for chunk in own for side in each]
    inside = {w for w in ways if ways.count(w) > 1} if plan.schedule.weight_copies == 1 else set()
    return float(sum(ends[way] for way in ways if way not in inside))


def _rest_s(whole_s: float, parts_s: float) -> float:
    """Rest of a whole, in s; none but for rounding is none."""
    rest_s = whole_s - parts_s
    return 0.0 if abs(rest_s) <= SAME * whole_s else rest_s


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
        return OperatorCosts(self.model, self.framework, links)

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
        selective = plan.recompute is Recompute.SELECTIVE
        spared = plan.kept | plan.offloaded
        key = (plan.microbatch, plan.sharding, selective, spared, least, plan.branches)
        if key not in self._kept:
            self._kept[key] = self._layer_costs(plan, least=least)
        found: LayerCosts = self._kept[key]
        return found

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
        cost_ahead([self.chain(plan) for plan in ordered], self.costs)

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
        chain, (many, row) = self.layer_costs(plan).chain, self.among or (self, 0)
        key = "energy", id(chain)
        if key not in many._kept:
            timed = TimedChain(chain, many.model, many.table)
            many._kept[key] = ChainEnergy(timed, self.cluster, self.workload.numerics, self.framework)
        energy: ChainEnergy = many._kept[key]
        return float(energy.energy_j(np.array([row]), self.drivers(plan, iteration.iteration_s))[0])

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


_ONE = np.array([0])
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one kind of operator in an iteration, forward and backward, on the device that has most to do.

    `stall_s`: the part in which arithmetic waits for HBM. On SIMT chips a kernel whose bytes take longer than its
    arithmetic counts whole; on others what its bytes take longer. `global_buffer_s`: the part in which arithmetic waits
    for the global buffer, HBM aside; on SIMT chips it is inside the laws of kernels, so none.
    """

    kind: str
    time_s: float
    stall_s: float
    global_buffer_s: float


def kind_times(costs: Estimator, plan: ParallelPlan) -> tuple[KindTime, ...]:
    """Seconds by kind of operator, the longest first; the sum of `product_s` and `vector_s` of the breakdown."""
    spent: Counter[str] = Counter()
    stalled: Counter[str] = Counter()
    buffered: Counter[str] = Counter()
    for pass_, seconds, experts in _passes(costs, plan):
        shares, *waits = costs.once(("shares", id(pass_), experts), partial(_shares, costs, pass_, experts))
        for work, share, hbm, buffer in zip(pass_.works, shares, *waits, strict=True):
            spent[work.kind] += share * seconds
            stalled[work.kind] += share * hbm * seconds
            buffered[work.kind] += share * buffer * seconds
    longest = sorted((kind for kind in spent if spent[kind] > 0), key=lambda kind: (-spent[kind], kind))
    return tuple(KindTime(kind, spent[kind], stalled[kind], buffered[kind]) for kind in longest)


def _passes(costs: Estimator, plan: ParallelPlan) -> Iterator[tuple[Pass, float, bool]]:
    """Passes of the busiest device's layers, their seconds in an iteration, and whether they have experts."""
    layers, division, loads = (
        costs.layer_costs(plan),
        costs.division(plan),
        costs.stage_times(plan),
    )
    placed, runs = costs.placed(plan), runs_of_a_chunk(plan, costs.microbatches(plan))
    own = placed[busiest(loads, placed)]
    mine = np.concatenate([np.array(layers.chain.index)[division.layers(chunk)] for chunk in own])
    times = np.bincount(mine, minlength=len(layers.chain.layers))
    for side, load, backward in (
        (layers.forward, loads.forward, False),
        (layers.backward, loads.backward, True),
    ):
        alone = times * side.kernels_s
        # What software adds to the device's time lengthens all kernels alike.
        lasting = runs * float(load.kernels_s[own].sum()) / max(float(alone.sum()), _TINY)
        for layer, seconds in zip(layers.chain.layers, (lasting * alone).tolist(), strict=True):
            pass_ = layer.backward if backward else layer.forward
            if pass_ is not None and seconds > 0:
                yield pass_, seconds, layer.expert_parameters > 0


def _shares(costs: Estimator, pass_: Pass, experts: bool) -> tuple[list[float], list[float], list[float]]:
    """Each operator's share of the time of its pass, (O,), and of its own time what waits for HBM, for the buffer."""
    alone = costs.costs.costed(pass_, experts=experts).alone_s[0, : len(pass_.works)]
    found = costs.model.costs(pass_).attribution(_ONE)
    arithmetic = np.maximum(found.compute_s, found.buffer_s)[0]
    waiting = np.maximum(found.hbm_s[0] - arithmetic, 0.0)
    buffer = np.maximum(arithmetic - found.compute_s[0], 0.0)
    longest = found.fill_s[0] + arithmetic + waiting
    hbm, buffered = (
        np.divide(part, longest, out=np.zeros(len(alone)), where=longest > 0) for part in (waiting, buffer)
    )
    shares = alone / max(float(alone.sum()), _TINY)
    return shares.tolist(), hbm.tolist(), buffered.tolist()
