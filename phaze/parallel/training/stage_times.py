"""Seconds of one microbatch in every chunk of a pipeline, and their parts, of one plan and of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.weight_prefetch import Groups
from phaze.parallel.training.layer_costs import LayerCosts, LayerPassCosts
from phaze.parallel.training.memory.memory_footprint import sharded_groups
from phaze.parallel.training.memory.recomputed_layers import again_and_ends, recomputed_units
from phaze.parallel.training.stage_edges import StageEdges
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import LayerChain


@dataclass(frozen=True)
class PassTime:
    """One direction of one microbatch, (C,) seconds by chunk; `pass_s` is what the pipeline sees.

    `kernels_s` with `vector_s` and `weight_s` (of parameters' gradients) among them, `exposed_s` collectives inside
    layers, `zero_s` exposed exchanges of ZeRO and transfers with the host's memory, `reduced_s` the reductions of
    gradients and `moved_s` the transfers among them, `host_s` waiting for the host, `hidden_s` collectives beside
    computation (no part of `pass_s`).
    """

    kernels_s: Floats
    vector_s: Floats
    weight_s: Floats
    exposed_s: dict[Parallel, Floats]
    zero_s: Floats
    reduced_s: Floats
    moved_s: Floats
    host_s: Floats
    hidden_s: Floats

    @property
    def gathered_s(self) -> Floats:
        """Exposed gathers of weights, (C,): what else ZeRO exchanges."""
        return np.maximum(self.zero_s - self.reduced_s - self.moved_s, 0.0)

    @cached_property
    def device_s(self) -> Floats:
        """Seconds of the device without waiting for the host."""
        return sum(self.exposed_s.values(), self.kernels_s + self.zero_s)

    @cached_property
    def pass_s(self) -> Floats:
        """Seconds of the whole pass."""
        return self.device_s + self.host_s


@dataclass(frozen=True)
class StageTimes:
    """Forward, forward again, and backward of every chunk; `transfer_s` (C - 1,) from each chunk to the next.

    Of chunks that are a `graph`, transfers are those of its edges, (E,).
    """

    forward: PassTime
    recomputation: PassTime
    backward: PassTime
    transfer_s: Floats
    graph: StageGraph | None = None

    @cached_property
    def turned_s(self) -> Floats:
        """Seconds of the passes after the loss: recomputation and backward."""
        return self.recomputation.pass_s + self.backward.pass_s


class HostTraffic(Protocol):
    """Transfers between a device and its host beside the passes of a microbatch (`offload.Traffic`)."""

    def forward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """Forward with what it waits for the host; `compute_s` (G,): what runs beside, by group of layers."""

    def backward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """The same of backward."""


@dataclass(frozen=True)
class ZeroTraffic:
    """Bytes per parameter that ZeRO moves in a pass; 0 where it moves none."""

    gathered: float = 0.0
    reduced: float = 0.0


def zero_traffic(
    plan: ParallelPlan, framework: Framework, wire_bytes: tuple[float, float]
) -> tuple[ZeroTraffic, ZeroTraffic]:
    """Traffic of ZeRO in forward and backward of every microbatch; `wire_bytes`: of one weight and one gradient.

    Where replicas divide some groups alone, that of these.
    """
    gathered, reduced = wire_bytes
    whole = (plan.zero is Zero.WEIGHTS and not plan.stays_whole) or plan.shards_layers
    divides = plan.zero >= Zero.GRADIENTS or plan.shards_layers
    always = divides and framework.reduces_every_microbatch
    regathered = gathered if whole and plan.reshards else 0.0
    return ZeroTraffic(gathered if whole else 0.0), ZeroTraffic(regathered, reduced if always else 0.0)


def boundary_bytes(chain: LayerChain, division: Division) -> Floats:
    """Bytes from each chunk to the next, (C - 1,)."""
    cuts = [chain.layers[chain.index[start - 1]].output_bytes for start in division.first_layers[1:]]
    return np.array(cuts, dtype=np.float64)


def stage_times(
    costs: LayerCosts,
    division: Division,
    exchanges: Communication,
    framework: Framework,
    wire_bytes: tuple[float, float],
    traffic: HostTraffic | None = None,
    edges: StageEdges | None = None,
) -> StageTimes:
    """Loads of a division; `wire_bytes`: of one weight and one gradient where ranks exchange them.

    `edges`: what chunks hand to one another where they are no chain.
    """
    (plan,), chain = exchanges.plans, costs.chain
    ahead_wire, behind_wire = zero_traffic(plan, framework, wire_bytes)
    every, once = _PassTimes(costs, division, framework), np.ones(len(chain.index))
    repeated = _recomputation(costs, division, plan)
    forward = every.side([(costs.forward, once)], framework.dispatch_s)
    redone = every.side(repeated, framework.dispatch_s)
    backward = every.side([(costs.backward, once)], framework.dispatch_backward_s)
    if plan.zero >= Zero.GRADIENTS or plan.shards_layers or traffic is not None:
        behind = every.groups_s([*repeated, (costs.backward, once)])
        ahead = every.groups_s([(costs.forward, once)])
    moving = ZeroExchanges(*costs.sizes(plan.grain), exchanges, framework)
    some = sharded_groups(division, plan) if plan.shards_layers else None
    if behind_wire != ZeroTraffic():
        groups = moving.groups([behind_wire], behind, division, some)
        backward = _beside(backward, *moving.added_s(groups, turned=True))
        backward = replace(backward, reduced_s=moving.reduced_s(groups, backward.zero_s))
    if ahead_wire != ZeroTraffic():
        groups = moving.groups([ahead_wire], ahead, division, some)
        forward = _beside(forward, *moving.added_s(groups, turned=False))
    if traffic is not None:
        forward, backward = traffic.forward(forward, ahead), traffic.backward(backward, behind)
    cuts = boundary_bytes(chain, division) if edges is None else edges.sent_bytes
    (transfer,) = exchanges.transfer_s(cuts, framework.scatters_transfers)
    sides = _with_host(forward, redone, backward, framework, len(division.chunks))
    return StageTimes(*sides, transfer, None if edges is None else edges.graph)


_Repeated = tuple[LayerPassCosts, Floats]
"""A pass, and how often every position (L,) runs it."""


def _recomputation(costs: LayerCosts, division: Division, plan: ParallelPlan) -> list[_Repeated]:
    """Layers of full recompute: those that run again together, and the last of each."""
    units = recomputed_units(costs.chain.names, division, plan)
    again, ends = again_and_ends(units, len(costs.chain.index))
    return [(costs.recomputation, again), (costs.ending, ends)]


@dataclass(frozen=True)
class _PassTimes:
    layer_costs: LayerCosts
    division: Division
    framework: Framework

    def side(self, passes: Sequence[_Repeated], dispatch_s: float) -> PassTime:
        """One direction of all chunks, without exchanges of weights; `host_s` is still that of its launches."""
        index = np.array(self.layer_costs.chain.index)
        stacked = np.sum([costs.stacked[:, index] * times for costs, times in passes], axis=0)
        summed = np.add.reduceat(stacked, self.division.first_layers, axis=1)
        (kernels, vector, weight, hidden, launches), exposed = summed[:5], summed[5:]
        stretch = self.framework.stretch
        return PassTime(
            kernels_s=kernels * stretch + self.framework.interference * hidden,
            vector_s=vector * stretch,
            weight_s=weight * stretch,
            exposed_s=dict(zip(Parallel, exposed, strict=True)),
            zero_s=np.zeros(len(self.division.chunks)),
            reduced_s=np.zeros(len(self.division.chunks)),
            moved_s=np.zeros(len(self.division.chunks)),
            host_s=launches * dispatch_s,
            hidden_s=hidden,
        )

    def groups_s(self, passes: Sequence[_Repeated]) -> Floats:
        """Seconds of every group of layers (G,), without the host and exchanges of weights."""
        index, seconds = np.array(self.layer_costs.chain.index), np.zeros(len(self.layer_costs.chain.index))
        for costs, times in passes:
            busy = costs.kernels_s * self.framework.stretch + self.framework.interference * costs.hidden_s
            seconds += sum(costs.exposed_s.values(), busy)[index] * times
        found: Floats = np.add.reduceat(seconds, [first for first, _ in self.division.groups])
        return found


def _beside(side: PassTime, added_s: Floats, hidden_s: Floats) -> PassTime:
    """The side with what exchanges add to its pass and what it hides of them, (1, C) each."""
    return replace(side, zero_s=added_s[0], hidden_s=side.hidden_s + hidden_s[0])


@dataclass(frozen=True)
class ZeroExchanges:
    """Exchanges of weights and gradients in the passes of a microbatch, of plans (V,).

    `sizes`: parameters of distinct groups of layers; those of experts, and of whole layers, among them, (3, K), or
    (3, V, K) of models that differ; `which` (G,): the one that each group is.
    """

    sizes: Floats
    which: NDArray[np.intp]
    exchanges: Communication
    framework: Framework

    def groups(
        self,
        wires: Sequence[ZeroTraffic],
        compute_s: Floats,
        division: Division,
        sharded: Flags | None = None,
    ) -> Groups:
        """Groups with what runs beside them, (G,) or (V, G), in the chunks of a division.

        Where some are `sharded` (G,) alone, these take turns, and what lies between them computes beside.
        """
        gather_s, reduce_s = self.groups_s(wires)
        if sharded is not None:
            gather_s, reduce_s = gather_s * sharded, reduce_s * sharded
        first = np.broadcast_to(division.first_groups, (len(wires), len(division.chunks)))
        beside_s = np.broadcast_to(compute_s, gather_s.shape)
        turns = np.array(division.body) if sharded is None else sharded
        return Groups(beside_s, gather_s, reduce_s, turns, first)

    def groups_s(self, wires: Sequence[ZeroTraffic]) -> tuple[Floats, Floats]:
        """Gathers and reductions of every group of layers, (V, G)."""
        (every, experts, whole), e, framework = self.sizes, self.exchanges, self.framework
        shared, (sharded, _, beside) = every - experts - whole, e.ranks
        gathered, reduced = np.array([[w.gathered, w.reduced] for w in wires]).T[..., None]
        one = gathered / framework.gathers
        gathering = (
            e.gather_s(one * shared) + e.gather_experts_s(one * experts) + e.gather_replicated_s(one * whole)
        )
        copied = framework.gather_rank_s * np.where(whole > 0, beside, sharded) * (every > 0) * (gathered > 0)
        reduce = e.reduce_s(reduced * shared) + e.reduce_experts_s(reduced * experts)
        reduce += e.reduce_replicated_s(reduced * whole)
        return (framework.gathers * (gathering + copied))[:, self.which], reduce[:, self.which]

    def added_s(self, groups: Groups, *, turned: bool) -> tuple[Floats, Floats]:
        """Seconds that the exchanges add to a pass, backward where `turned`, and those that it hides, (V, C)."""
        exchange_s, shown_s = groups.exchange_s, self.shown_s(groups, turned=turned)
        if not self.framework.hides_gathers:
            return shown_s, np.zeros_like(exchange_s)
        fast_s = groups.backward_s() if turned else groups.forward_s()
        return shown_s, exchange_s - (fast_s - groups.summed(groups.compute_s))

    def shown_s(self, groups: Groups, *, turned: bool) -> Floats:
        """Seconds that the exchanges add to a pass, backward where `turned`, (V, C)."""
        if not self.framework.hides_gathers:
            return groups.exchange_s
        slowed = groups.slowed(self.framework.interference)
        slow_s = slowed.backward_s() if turned else slowed.forward_s()
        return slow_s - groups.summed(groups.compute_s)

    def reduced_s(self, groups: Groups, added_s: Floats) -> Floats:
        """Seconds that reductions add to a backward pass, (C,): those of all exchanges less those of gathers alone."""
        if not groups.gather_s.any():
            return added_s
        gathers = replace(groups, reduce_s=np.zeros_like(groups.reduce_s))
        (alone_s,) = self.shown_s(gathers, turned=True)
        found: Floats = np.maximum(added_s - alone_s, 0.0)
        return found


def _with_host(
    forward: PassTime, recomputation: PassTime, backward: PassTime, framework: Framework, chunks: int
) -> tuple[PassTime, PassTime, PassTime]:
    """Launches turned into what they make the device wait."""
    sides = (forward, recomputation, backward)
    launches, devices = (np.array([getattr(side, name) for side in sides]) for name in ("host_s", "device_s"))
    late = launch_waits_s(launches, devices, framework, chunks)
    first, second, third = (replace(side, host_s=wait) for side, wait in zip(sides, late, strict=True))
    return first, second, third


def launch_waits_s(launches: Floats, devices: Floats, framework: Framework, chunks: int) -> Floats:
    """Seconds that the device waits for launches, (3, ...), in forward, recomputation and backward of each chunk.

    One that blocks has every launch waited for. A host that waits for the device launches every pass anew; one that
    runs ahead makes up for short kernels during long ones, and only all of a microbatch counts. Without exchanges among
    `devices` the sum of each with its wait is never longer than with them.
    """
    launched = launches.copy()
    launched[0] += framework.microbatch_s / chunks
    if framework.blocking or not launched.any():
        return launched
    if framework.waits:
        return np.maximum(launched - devices, 0.0)
    busy = devices.sum(axis=0)
    missing = np.maximum(launched.sum(axis=0) - busy, 0.0)
    late: Floats = missing * np.divide(devices, busy, out=np.zeros_like(devices), where=busy > 0)
    return late


@dataclass(frozen=True)
class GroupPasses:
    """Every group of layers in its three passes, forward, again and backward, (N, 7, G) for N models.

    Rows: seconds on the device by pass, seconds that launches take by pass, and seconds of weight gradients.
    """

    rows: Floats

    def chunks(
        self, first_groups: Integers, recomputation: NDArray[np.bool_], framework: Framework
    ) -> ChunkPasses:
        """Pass times of chunks that start with some groups, (N, C), where some groups run again, (N, G)."""
        count, _, groups = self.rows.shape
        rows = self.running(recomputation)
        starts = (first_groups + groups * np.arange(count)[:, None]).ravel()
        summed = np.add.reduceat(rows.reshape(7, -1), starts, axis=1).reshape(7, *first_groups.shape)
        return ChunkPasses(summed[:3], summed[3:6], summed[6], framework)

    def running(self, recomputation: NDArray[np.bool_]) -> Floats:
        """The rows, (7, N, G), where some groups run again, (N, G)."""
        rows = self.rows.transpose(1, 0, 2).copy()
        rows[[1, 4]] *= recomputation
        return rows


def group_passes(costs: LayerCosts, division: Division, framework: Framework) -> Floats:
    """The rows of `GroupPasses` of one model that is cut into the groups of a division, (7, G)."""
    return passes_of(costs, division.groups, framework)


def passes_of(costs: LayerCosts, groups: Sequence[tuple[int, int]], framework: Framework) -> Floats:
    """Pass times of runs of layers, (first, last) positions in the chain, on many architectures (7, A, G)."""
    index = np.array(costs.chain.index)
    positions = np.concatenate([np.arange(first, last + 1) for first, last in groups])
    first = np.cumsum([0, *(last + 1 - first for first, last in groups[:-1])])
    last = index[[last for _, last in groups]]
    layers = (costs.forward, costs.recomputation, costs.backward)
    dispatch_s = (framework.dispatch_s, framework.dispatch_s, framework.dispatch_backward_s)
    seconds = [_device_s(each, framework) for each in layers]
    launches = [each.launches * one for each, one in zip(layers, dispatch_s, strict=True)]
    rows = np.stack(np.broadcast_arrays(*seconds, *launches, costs.backward.weight_s * framework.stretch))
    summed: Floats = np.add.reduceat(rows[..., index[positions]], first, axis=-1)
    ending = (_device_s(costs.ending, framework), costs.ending.launches * framework.dispatch_s)
    for row, ends in zip((1, 4), ending, strict=True):
        summed[row] += (ends - rows[row])[..., last]
    return summed


def _device_s(costs: LayerPassCosts, framework: Framework) -> Floats:
    computing = costs.kernels_s * framework.stretch + framework.interference * costs.hidden_s
    found: Floats = sum(costs.exposed_s.values(), computing)
    return found


@dataclass(frozen=True)
class ChunkPasses:
    """Every chunk: `device_s`, `launches_s` (3, ..., C) by pass, `weight_s` (..., C) of weight gradients."""

    device_s: Floats
    launches_s: Floats
    weight_s: Floats
    framework: Framework

    def take(self, rows: Integers) -> ChunkPasses:
        """Some of the plans."""
        return replace(
            self,
            device_s=self.device_s[:, rows],
            launches_s=self.launches_s[:, rows],
            weight_s=self.weight_s[rows],
        )

    def beside(self, forward_s: Floats, backward_s: Floats) -> ChunkPasses:
        """Pass times with seconds of exchanges that computation does not hide, (..., C) each."""
        first, recomputation, last = self.device_s
        return replace(self, device_s=np.stack([first + forward_s, recomputation, last + backward_s]))

    @cached_property
    def passes_s(self) -> tuple[Floats, Floats]:
        """Forward, and all that follows the loss, (..., C)."""
        late = launch_waits_s(self.launches_s, self.device_s, self.framework, self.weight_s.shape[-1])
        forward, recomputation, backward = self.device_s + late
        return forward, recomputation + backward

    def pipeline(self, transfer_s: Floats, graph: StageGraph | None = None) -> Chunks:
        """Chunk times of a pipeline, with transfers (..., C - 1) between chunks, or (..., E) along a graph of them."""
        forward, turned = self.passes_s
        weight, blocking = np.minimum(self.weight_s, turned), not self.framework.hides_transfers
        return Chunks(forward, turned - weight, weight, transfer_s, blocking, graph=graph)
