"""Layers, chunks and exchanges of a plan, and the bytes on every device, from the definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from phaze.cost.collectives.collective_times import fastest_s
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.action_order import ActionKind, ActionOrder
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.recount.recounted_parts import Parameters, RecountedGroup
from phaze.parallel.training.layer_costs import LayerCosts
from phaze.scheduling.passes import NEVER_S
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import Collective, Layer, LayerEdge
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class RecountedLayers:
    """One plan on one architecture of a cluster; `figures`, `division`: the layers, and the chunks to check.

    `known`: seconds of exchanges over the same links that were counted before. `edges` between layers, where branches
    of the model run side by side.
    """

    plan: ParallelPlan
    layer_costs: LayerCosts
    division: Division
    cluster: Cluster
    framework: Framework
    numerics: Numerics
    table: ArchitectureTable
    known: dict[tuple[object, ...], float] = field(default_factory=dict)
    edges: tuple[LayerEdge, ...] = ()
    _held: dict[tuple[int, ...], Parameters] = field(default_factory=dict)

    # -- the model, cut

    @cached_property
    def chunks(self) -> list[list[RecountedGroup]]:
        """Groups of layers of every chunk; the first so many that repeat run again under full recompute.

        Where the plan tells of single layers, these.
        """
        chosen, found = self.plan.recomputed, []
        told = [one for one in self.plan.layers for _ in range(one.blocks)]
        known: dict[RecountedGroup, RecountedGroup] = {}  # equal ones are one, and soon found
        for chunk, (first, last) in enumerate(self.division.chunks):
            left = (
                len(self.division.groups)
                if chosen is None
                else chosen
                if isinstance(chosen, int)
                else chosen[chunk]
            )
            if self.plan.recompute is not Recompute.FULL:
                left = 0
            blocks = []
            for group in range(first, last + 1):
                a, b = self.division.groups[group]
                repeats = self.division.body[group]
                recomputed = repeats and left > 0
                left -= recomputed
                again: tuple[tuple[int, ...], ...] = (tuple(range(b + 1 - a)),) if recomputed else ()
                sharded = False
                if repeats and self.plan.layers:
                    again = self._again(self.layer_costs.chain.names[a : b + 1], told[0].again)
                    sharded = told.pop(0).sharded
                block = RecountedGroup(self.layer_costs.chain.index[a : b + 1], repeats, again, sharded)
                blocks.append(known.setdefault(block, block))
            found.append(blocks)
        return found

    @staticmethod
    def _again(names: Sequence[str], said: str) -> tuple[tuple[int, ...], ...]:
        """Places of layers of a block that run again together, as a plan says it."""
        places = range(len(names))
        alone = {"none": (), "block": (tuple(places),), "each-layer": tuple((place,) for place in places)}
        return alone[said] if said in alone else tuple((p,) for p in places if names[p].endswith(f".{said}"))

    @cached_property
    def devices(self) -> list[list[int]]:
        """Chunks of every device, from what the schedules say of themselves."""
        s, p = self.plan, self.plan.pipeline_parallel
        if s.schedule is Schedule.ZB_V:  # down and up again
            return [[d, 2 * p - 1 - d] for d in range(p)]
        if s.schedule is Schedule.DUALPIPE:  # two pipelines in opposite directions
            return [[d, p - 1 - d] for d in range(p)]
        return [[d + p * turn for turn in range(s.chunks)] for d in range(p)]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Unique layers."""
        return self.layer_costs.chain.layers

    def parameters(self, layers: tuple[int, ...]) -> Parameters:
        """Parameters of a group of layers on one device."""
        if layers not in self._held:
            found = Parameters()
            for layer in (self.layers[i] for i in layers):
                experts, every = float(layer.expert_parameters), float(layer.parameters)
                whole = layer.shardable in self.plan.sharding.replicated
                found += Parameters(0.0 if whole else every - experts, experts, every if whole else 0.0)
            self._held[layers] = found
        return self._held[layers]

    def parameters_of(self, blocks: Sequence[RecountedGroup]) -> Parameters:
        """Parameters of several groups on one device; those of equal ones are looked up once."""
        alike = Counter(block.layers for block in blocks)
        return sum((self.parameters(layers) * times for layers, times in alike.items()), Parameters())

    # -- exchanges

    def exchange_s(self, kind: Collective, payload_bytes: float, size: int, stride: int) -> float:
        """Seconds of one; alone, or with nothing to send, none."""
        if size <= 1 or payload_bytes <= 0:
            return 0.0
        key = (kind, payload_bytes, size, stride)
        if key not in self.known:
            links = float(self.table["link_bandwidth_bytes_per_s"][0])
            seconds = fastest_s(kind, [payload_bytes], self.cluster.network, links, size, stride)
            self.known[key] = min(float(seconds[0]), NEVER_S)
        return self.known[key]

    @property
    def ranks(self) -> int:
        """Ranks that ZeRO divides shared parameters over."""
        return self.plan.shard_group or self.plan.replicas

    def gather_s(self, each: float, held: Parameters) -> float:
        """All-gather of weights of so many bytes each."""
        s, kind, tensor = self.plan, Collective.ALL_GATHER, self.plan.sharding.tensor
        found = self.exchange_s(kind, each * held.shared, self.ranks, s.replica_stride)
        found += self.exchange_s(kind, each * held.experts, s.expert_replicas, s.expert_stride)
        found += self.exchange_s(kind, each * held.replicated / tensor, self.ranks, s.replica_stride)
        return found + self.exchange_s(kind, each * held.replicated, tensor, 1)

    def reduce_s(self, each: float, held: Parameters) -> float:
        """Sum of gradients of so many bytes each; where ranks divide, everyone gets a part of it."""
        s, tensor = self.plan, self.plan.sharding.tensor
        kind = Collective.REDUCE_SCATTER if s.zero else Collective.ALL_REDUCE
        found = self._reduced_s(each * held.shared) + self._reduced_s(each * held.replicated / tensor)
        found += self.exchange_s(kind, each * held.experts, s.expert_replicas, s.expert_stride)
        return found + self.exchange_s(kind, each * held.replicated, tensor, 1)

    def _reduced_s(self, payload_bytes: float) -> float:
        s, stride = self.plan, self.plan.replica_stride
        if not s.zero:
            return self.exchange_s(Collective.ALL_REDUCE, payload_bytes, s.replicas, stride)
        inside = self.exchange_s(Collective.REDUCE_SCATTER, payload_bytes, self.ranks, stride)
        others = s.replicas // self.ranks
        return inside + self.exchange_s(
            Collective.ALL_REDUCE, payload_bytes / self.ranks, others, stride * self.ranks
        )

    @cached_property
    def ways(self) -> dict[tuple[int, int], float]:
        """Chunks that hand something to one another, (from, to), and its bytes of a microbatch.

        In a chain each to the next; where branches run side by side, what any layer of one reads of a layer of the
        other, once.
        """
        if not self.plan.branches:
            index = self.layer_costs.chain.index
            starts = [self.division.groups[first][0] for first, _ in self.division.chunks[1:]]
            cuts = (self.layers[index[start - 1]].output_bytes for start in starts)
            return {(chunk, chunk + 1): sent for chunk, sent in enumerate(cuts)}
        groups = [self.division.groups[first : last + 1] for first, last in self.division.chunks]
        home = {at: c for c, own in enumerate(groups) for a, b in own for at in range(a, b + 1)}
        read: dict[tuple[int, int, int], float] = {}
        for edge in self.edges:
            key = home[edge.source], home[edge.target], edge.source
            if key[0] != key[1]:
                read[key] = max(read.get(key, 0.0), edge.boundary_bytes)
        found: dict[tuple[int, int], float] = {}
        for (source, target, _), size in sorted(read.items()):
            found[source, target] = found.get((source, target), 0.0) + size
        return found

    @cached_property
    def behind(self) -> list[int]:
        """Chunks on the longest way from each to an end of the model."""
        found = [0] * len(self.division.chunks)
        for chunk in reversed(range(len(found))):
            found[chunk] = max((1 + found[t] for s, t in self.ways if s == chunk), default=0)
        return found

    def _waiting_bytes(self, device: int, microbatches: int) -> float:
        """Tensors, and gradients of tensors, that came to a device ahead of what it also needs."""
        held = [min(microbatches, 1 + left) for left in self.behind]
        return sum(
            max(held[source] - held[target] - 1, 0) * size
            for (source, target), size in self.ways.items()
            for end in (source, target)
            if end == device
        )

    @cached_property
    def transfers_s(self) -> list[float]:
        """Seconds of a transfer of every way, one way: in a chain, from each chunk to the next."""
        s = self.plan
        tensor, sequence = s.sharding.tensor, s.sharding.sequence
        shares, found = sequence or self.framework.scatters_transfers, []
        for sent in self.ways.values():
            way = sent / (tensor if shares else 1), s.pipeline_parallel, s.pipeline_stride
            seconds = self.exchange_s(Collective.SEND_RECV, *way)
            if shares and not sequence:
                seconds += self.exchange_s(Collective.ALL_GATHER, sent, tensor, 1)
            found.append(seconds)
        return found

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Bytes on the wire of one weight and one gradient."""
        framework, n = self.framework, self.numerics
        return (
            n.weight_bytes if framework.gathered_bytes is None else framework.gathered_bytes,
            n.gradient_bytes if framework.reduced_bytes is None else framework.reduced_bytes,
        )

    def divided(self, held: Parameters) -> float:
        """Parameters of a device where ranks divide them."""
        s = self.plan
        return (
            held.shared / self.ranks
            + held.experts / s.expert_replicas
            + held.replicated / (self.ranks * s.sharding.tensor)
        )

    @property
    def microbatches(self) -> int:
        """Microbatches of every pipeline."""
        samples = self.plan.microbatch * self.plan.data_parallel
        return (self.cluster.global_batch + samples - 1) // samples


@dataclass(frozen=True)
class RecountedMemory(RecountedLayers):
    """Memory of a plan."""

    def kept_bytes(self, block: RecountedGroup) -> float:
        """Bytes of a group kept per microbatch until its backward pass, on the device unless activations are away."""
        s, kept = self.plan, [self.layers[i] for i in block.once]
        found = sum(layer.saved_bytes + layer.cache_bytes for layer in kept)
        for together in block.again:
            found += sum(self._results_bytes(self.layers[block.layers[place]], s.kept) for place in together)
            if "input" not in s.offloaded:
                found += self._input_bytes(block.layers[together[0]])
        return found

    def away_bytes(self, block: RecountedGroup) -> float:
        """Bytes of a recomputed group that its host keeps per microbatch."""
        s = self.plan
        if not block.again:
            return 0.0
        found = sum(self._results_bytes(self.layers[i], s.offloaded) for i in block.layers)
        return found + self._input_bytes(block.layers[0]) if "input" in s.offloaded else found

    def _input_bytes(self, layer: int) -> float:
        sharding = self.plan.sharding
        return self.layers[layer].input_bytes / (sharding.tensor if sharding.sequence else 1)

    def _results_bytes(self, layer: Layer, names: Set[str]) -> float:
        works = [w for w in layer.forward.works if w.gemms and w.name.split("+")[0] in names]
        return float(sum(w.gemms[-1].c_bytes for w in works))

    def working_bytes(self, block: RecountedGroup) -> float:
        """Alive only while a group runs: where it recomputes, all it keeps for its own backward pass as well."""
        most = max((self.layers[i].working_bytes for i in block.once), default=0.0)
        for together in block.again:
            layers = [self.layers[block.layers[place]] for place in together]
            kept = sum(layer.saved_bytes for layer in layers)
            most = max(most, max(layer.working_bytes for layer in layers) + kept)
        return most

    def memory(self, device: int, order: ActionOrder) -> dict[str, float]:
        """Bytes on a device that runs its actions in an order, by what they hold (`MemoryBreakdown`)."""
        s, framework, n = self.plan, self.framework, self.numerics
        blocks = [block for c in self.devices[device] for block in self.chunks[c]]
        kept, away = (self._most_held(device, order, each) for each in (self.kept_bytes, self.away_bytes))
        if s.branches:
            kept += self._waiting_bytes(device, int(order.microbatch.max()) + 1)
        held = {**self._states_bytes(blocks), "host_bytes": away}
        moved = {
            Offload.WEIGHTS: ("weights_bytes",),
            Offload.OPTIMIZER: ("gradients_bytes", "optimizer_bytes"),
        }
        for what, names in moved.items():
            for name in names if what in s.offload else ():
                held["host_bytes"] += held[name]
                held[name] = 0.0
        if Offload.ACTIVATIONS in s.offload:
            held["host_bytes"] += kept
            kept = min(kept, 2 * max(self.kept_bytes(block) for block in blocks))
        alike = Counter(blocks)
        scores = sum(
            layer.saved_bytes * times
            for b, times in alike.items()
            for i in b.layers
            if (layer := self.layers[i]).kind == OpKind.LOSS
        )
        working = max(map(self.working_bytes, alike)) + framework.score_copies * scores
        lost = 1 + framework.fragmentation
        return held | {
            "activations_bytes": lost * kept,
            "working_bytes": lost * working,
            "buffers_bytes": self._passing_bytes(device, blocks, n.weight_bytes),
            "reserved_bytes": framework.reserved_bytes,
        }

    def _most_held(self, device: int, order: ActionOrder, each: Callable[[RecountedGroup], float]) -> float:
        """The most that microbatches keep at once on a device, from its own order of actions.

        A forward pass starts to keep what the end of the weight gradient frees. In prefill caches are handed on.
        """
        bytes_of = np.zeros(len(self.chunks))
        for chunk in self.devices[device]:
            bytes_of[chunk] = sum(each(block) * times for block, times in Counter(self.chunks[chunk]).items())
        if not bytes_of.any():
            return 0.0
        if self.plan.schedule is Schedule.FORWARD:
            return float(bytes_of.max())
        starts = order.kind == ActionKind.FORWARD
        ends = (order.kind == ActionKind.BACKWARD) | (order.kind == ActionKind.WEIGHT_GRADIENT)
        return float(np.cumsum((starts * 1.0 - ends) * bytes_of[order.chunk]).max())

    def _states_bytes(self, blocks: Sequence[RecountedGroup]) -> dict[str, float]:
        """Weights, gradients and states of the optimizer, wherever they lie."""
        s, framework, n = self.plan, self.framework, self.numerics
        held, alike = self.parameters_of(blocks), Counter(blocks)
        divided, whole = self.divided(held), held.total
        rest = n.state_bytes - n.weight_bytes - n.gradient_bytes
        each = [
            own if stated is None else stated
            for own, stated in (
                (n.weight_bytes, framework.weight_bytes),
                (n.gradient_bytes, framework.gradient_bytes),
                (rest, framework.optimizer_bytes),
            )
        ]
        frozen = scaled = 0.0
        for block, times in alike.items():
            layers = [self.layers[i] for i in block.layers]
            frozen += times * sum(layer.frozen_weight_bytes for layer in layers)
            scaled += times * sum(layer.scaled_weight_bytes for layer in layers) * (not block.sharded)
        less = s.zero >= Zero.GRADIENTS and framework.reduces_every_microbatch
        apart = self.parameters_of([block for block in blocks if block.sharded])
        mixed = self.divided(apart) + held.total - apart.total
        here = mixed if framework.reduces_every_microbatch else whole
        return {
            "weights_bytes": frozen
            + (each[0] * divided if s.zero >= Zero.WEIGHTS else each[0] * mixed + scaled),
            "gradients_bytes": each[1] * (divided if less else here),
            "optimizer_bytes": each[2] * (divided if s.zero >= Zero.OPTIMIZER else whole),
        }

    def _passing_bytes(self, device: int, blocks: Sequence[RecountedGroup], weight_bytes: float) -> float:
        """Weights that are whole only for a while, and gradients of two groups on their way to the host.

        Breadth-first pipelines have two chunks in place of two groups.
        """
        s, framework, found = self.plan, self.framework, 0.0
        sizes = [self.parameters(block.layers).total for block in blocks if block.repeats]
        ends = self.parameters_of([block for block in blocks if not block.repeats]).total
        two = min(2 * max(sizes, default=0.0), sum(sizes))
        each = weight_bytes if framework.gathered_bytes is None else framework.gathered_bytes
        apart = [self.parameters(block.layers).total for block in blocks if block.sharded]
        found += each * min(2 * max(apart, default=0.0), sum(apart))
        if s.zero >= Zero.WEIGHTS:
            found += weight_bytes * ends  # gradients of embeddings and head, to the end of backward
        if s.zero >= Zero.WEIGHTS and not s.reshards and Offload.WEIGHTS not in s.offload:
            found += each * (sum(sizes) + ends)
        elif s.zero >= Zero.WEIGHTS or (
            Offload.WEIGHTS in s.offload and s.schedule is not Schedule.BREADTH_FIRST
        ):
            found += each * (two + ends)
        if s.schedule is Schedule.BREADTH_FIRST:
            return found + self._swapped_bytes(device, each)
        if Offload.OPTIMIZER in s.offload:
            gradient = (
                self.numerics.gradient_bytes if framework.gradient_bytes is None else framework.gradient_bytes
            )
            found += gradient * two / (self.ranks if s.zero >= Zero.GRADIENTS else 1)
        return found

    def _swapped_bytes(self, device: int, weight_bytes: float) -> float:
        """Weights and gradients of two chunks of a device that come from its host and go there."""
        s, framework, found = self.plan, self.framework, 0.0
        gradient = (
            self.numerics.gradient_bytes if framework.gradient_bytes is None else framework.gradient_bytes
        )
        swapped = {
            Offload.WEIGHTS: (weight_bytes, Zero.WEIGHTS),
            Offload.OPTIMIZER: (gradient, Zero.GRADIENTS),
        }
        for what, (each, divided_from) in swapped.items():
            if what in s.offload:
                held = [
                    sum((self.parameters(block.layers) for block in self.chunks[chunk]), Parameters())
                    for chunk in self.devices[device]
                ]
                sizes = [self.divided(one) if s.zero >= divided_from else one.total for one in held]
                found += each * min(2 * max(sizes), sum(sizes))
        return found
