"""Layouts of the plans of a workload on a cluster, whatever the architecture: layers, chunks, bytes, exchanges."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.errors import InputError
from phaze.parallel.chunk_division import Division, Grain, cut, even, inside_blocks, undivided
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework, ParameterBytes
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.gradient_sync import DeviceParameters
from phaze.parallel.training.layer_costs import LayerSizes
from phaze.parallel.training.memory.memory_footprint import (
    ChunkFootprint,
    GroupFootprint,
    PlanMemory,
    sharded_groups,
)
from phaze.parallel.training.memory.recomputation import with_adapters_only, with_copies
from phaze.parallel.training.memory.recomputed_layers import recomputed_units, with_units
from phaze.parallel.training.stage_edges import StageEdges
from phaze.workload.work import LayerChain, LayerEdge, LayerGraph
from phaze.workload.workload import Workload

T = TypeVar("T")


@dataclass(frozen=True)
class PlanLayouts:
    """Plans of one workload on one cluster under a framework; what they share is kept."""

    workload: Workload
    cluster: Cluster
    framework: Framework
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def chain(self, plan: ParallelPlan) -> LayerChain:
        """The layers of the model as a device runs them, parameters of both ends counted at both."""
        selective = plan.recompute is Recompute.SELECTIVE
        key = "chain", plan.microbatch, plan.sharding, selective, plan.branches
        found = self.once(key, lambda: self._chain(plan, selective=selective))
        if not plan.layer_order:
            return found
        ordered = *key, plan.layer_order
        return self.once(ordered, lambda: _in_order(LayerGraph(found, ()), plan).order)

    def _chain(self, plan: ParallelPlan, *, selective: bool) -> LayerChain:
        s, framework = plan, self.framework
        how = {"selective": selective, "keeps_products": framework.keeps_products}
        if s.branches:
            built = self.workload.layer_graph(s.microbatch, s.sharding, **how).order
        else:
            built = self.workload.chain(s.microbatch, s.sharding, **how)
        kept = with_copies(built, gathered=framework.keeps_gathered, gates=framework.keeps_gates)
        return with_adapters_only(kept) if framework.trains_adapters else kept

    def sizes(self, plan: ParallelPlan) -> LayerSizes:
        """The layers with tied parameters counted once where one device has both ends."""
        s = plan
        selective = s.recompute is Recompute.SELECTIVE
        key = "sizes", s.microbatch, s.sharding, selective, s.joins_ends, s.branches, s.layer_order
        return self.once(
            key, lambda: LayerSizes(self.joined(self.chain(s)) if s.joins_ends else self.chain(s))
        )

    def joined(self, chain: LayerChain) -> LayerChain:
        """One of these chains with tied parameters counted once."""
        return self.once(("joined", id(chain)), lambda: (chain, chain.joined))[1]

    def division(self, plan: ParallelPlan) -> Division:
        """The chunks of the model. Raises InputError where it has too few blocks."""
        chain = self.chain(plan)
        parts, stages, grain = plan.parts, plan.stages, plan.grain
        key = ("division", chain.index, parts, stages, grain, plan.branches)
        groups = "groups", chain.index, grain, plan.branches
        whole = self.once(groups, lambda: undivided(chain, grain, branches=plan.branches))
        return self.once(key, lambda: cut(whole, parts, stages, chain.workload))

    def edges(self, plan: ParallelPlan) -> StageEdges | None:
        """What its stages hand to one another; None where they are a chain."""
        if not plan.branches:
            return None
        division = self.division(plan)
        key = "edges", plan.microbatch, division.chunks, plan.grain, plan.layer_order
        return self.once(key, lambda: StageEdges.of(self._layer_edges(plan), division))

    def _layer_edges(self, plan: ParallelPlan) -> tuple[LayerEdge, ...]:
        graph = self.workload.layer_graph(plan.microbatch, plan.sharding)
        return _in_order(graph, plan).edges if plan.layer_order else graph.edges

    def held(self, plan: ParallelPlan) -> Integers:
        """Microbatches in flight on every device for each of its chunks, (p, K, slots), as of `in_flight_peak`."""
        s, edges = plan, self.edges(plan)
        if edges is not None:
            return edges.graph.held(self.microbatches(s))[:, None, None]
        return in_flight_peak(s.schedule, s.pipeline_parallel, self.microbatches(s), s.chunks)

    def waiting_bytes(self, plan: ParallelPlan) -> Floats:
        """Bytes on every device, (p,), of tensors that came from others and are not yet read; in a chain none."""
        edges = self.edges(plan)
        return (
            np.zeros(plan.pipeline_parallel)
            if edges is None
            else edges.waiting_bytes(self.microbatches(plan))
        )

    def cuts_its_own(self, plan: ParallelPlan) -> bool:
        """Whether no coarser grain has these stages: such of single layers cut a block in two."""
        if plan.grain is Grain.BLOCK or plan.branches:
            return True
        chain = self.chain(plan)
        key = chain.index, Grain.LAYER
        inside = self.once(("inside", *key), lambda: inside_blocks(chain))
        count = sum(self.once(("groups", *key, False), lambda: undivided(chain, Grain.LAYER)).body)
        sizes = plan.stages or even(count, plan.parts)
        return not inside.isdisjoint(accumulate(sizes[:-1]))

    def microbatches(self, plan: ParallelPlan) -> int:
        """Microbatches that each pipeline runs."""
        return -(-self.cluster.global_batch // (plan.microbatch * plan.data_parallel))

    def memory_footprint(self, plan: ParallelPlan) -> GroupFootprint:
        """Memory footprint of every group of layers on a device."""
        s, sizes = plan, self.sizes(plan)
        key = ("memory_footprint", id(sizes), s.kept, s.offloaded, s.grain)
        found = self.once(key, lambda: GroupFootprint.of(sizes.chain, self.division(s), s.kept, s.offloaded))
        if not s.layers:
            return found
        chain, division = sizes.chain, self.division(s)
        return with_units(found, chain, division, recomputed_units(chain.names, division, s))

    def memory_of(self, plan: ParallelPlan, footprint: ChunkFootprint) -> PlanMemory:
        """Memory of a plan whose chunks need so much."""
        some = self.sharded(plan, sharded_groups(self.division(plan), plan)) if plan.shards_layers else None
        bytes_ = self.workload.numerics, self.parameter_bytes
        return PlanMemory(footprint, plan, self.framework, *bytes_, sharded=some)

    def sharded(self, plan: ParallelPlan, groups: Flags) -> ChunkFootprint:
        """Weights of some groups (..., G) of the chunks of a plan."""
        division = self.division(plan)
        weights = self.memory_footprint(changed_plan(plan, layers=())).weights_of(groups)
        return ChunkFootprint.of(weights, division, np.zeros(groups.shape, dtype=np.bool_))

    def device_parameters(self, plan: ParallelPlan, groups: Flags | None = None) -> DeviceParameters:
        """Parameters and groups of layers of every device of a pipeline; of some `groups` (G,) alone where told."""
        own = chunks_of(plan.schedule, plan.pipeline_parallel, plan.chunks)
        return DeviceParameters.of(self.sizes(plan), self.division(plan), own, groups)

    def exchanges(self, link_bytes_per_s: float, *plans: ParallelPlan) -> Communication:
        """Communication between devices whose own links have that bandwidth."""
        known = self._kept.setdefault(("exchanges", link_bytes_per_s), {})
        return Communication(self.cluster.network, link_bytes_per_s, plans, known)

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Bytes of one weight and of one gradient where ranks exchange them."""
        return self.parameter_bytes.gathered, self.parameter_bytes.reduced

    @cached_property
    def parameter_bytes(self) -> ParameterBytes:
        """Bytes of a parameter, of each sort."""
        return self.framework.parameter_bytes(self.workload.numerics)

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Value of a key, worked out the first time that it is asked for."""
        if key not in self._kept:
            self._kept[key] = work_out()
        found: T = self._kept[key]
        return found


def _in_order(graph: LayerGraph, plan: ParallelPlan) -> LayerGraph:
    """The layers as a plan cuts them. Raises InputError for an order that no pipeline runs."""
    try:
        return graph.in_order(plan.layer_order)
    except ValueError as error:
        raise InputError(f"{graph.order.workload}: {error}") from error
