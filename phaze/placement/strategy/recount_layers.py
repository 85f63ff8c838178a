"""Layers, chunks and exchanges of a plan, from the definitions, for `recount`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from phaze.cost.exchange import fastest_s
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.figures import LayerFigures
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.recount_parts import Block, Parameters
from phaze.placement.strategy.strategy import Strategy
from phaze.scheduling.passes import NEVER_S
from phaze.workload.work import Collective, Layer
from phaze.workload.workload import Numerics


@dataclass(frozen=True)
class RecountedLayers:
    """One strategy on one architecture of a cluster; `figures`, `division`: the layers, and the chunks to check.

    `known`: seconds of exchanges over the same links that were counted before.
    """

    strategy: Strategy
    figures: LayerFigures
    division: Division
    cluster: Cluster
    framework: Framework
    numerics: Numerics
    table: ArchitectureTable
    known: dict[tuple[object, ...], float] = field(default_factory=dict)
    _held: dict[tuple[int, ...], Parameters] = field(default_factory=dict)

    # -- the model, cut

    @cached_property
    def chunks(self) -> list[list[Block]]:
        """Groups of layers of every chunk; the first so many that repeat run again under full recompute."""
        said, found = self.strategy.recomputed, []
        for chunk, (first, last) in enumerate(self.division.chunks):
            left = (
                len(self.division.groups) if said is None else said if isinstance(said, int) else said[chunk]
            )
            if self.strategy.recompute is not Recompute.FULL:
                left = 0
            blocks = []
            for group in range(first, last + 1):
                a, b = self.division.groups[group]
                repeats = self.division.body[group]
                again = repeats and left > 0
                left -= again
                blocks.append(Block(self.figures.chain.index[a : b + 1], repeats, again))
            found.append(blocks)
        return found

    @cached_property
    def devices(self) -> list[list[int]]:
        """Chunks of every device, from what the schedules say of themselves."""
        s, p = self.strategy, self.strategy.pipeline_parallel
        if s.schedule is Schedule.ZB_V:  # down and up again
            return [[d, 2 * p - 1 - d] for d in range(p)]
        if s.schedule is Schedule.DUALPIPE:  # two pipelines in opposite directions
            return [[d, p - 1 - d] for d in range(p)]
        return [[d + p * turn for turn in range(s.chunks)] for d in range(p)]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Unique layers."""
        return self.figures.chain.layers

    def parameters(self, layers: tuple[int, ...]) -> Parameters:
        """Of a group of layers on one device."""
        if layers not in self._held:
            found = Parameters()
            for layer in (self.layers[i] for i in layers):
                experts, every = float(layer.expert_parameters), float(layer.parameters)
                whole = layer.shardable in self.strategy.sharding.whole
                found += Parameters(0.0 if whole else every - experts, experts, every if whole else 0.0)
            self._held[layers] = found
        return self._held[layers]

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
        return self.strategy.shard_group or self.strategy.replicas

    def gather_s(self, each: float, held: Parameters) -> float:
        """All-gather of weights of so many bytes each."""
        s, kind, tensor = self.strategy, Collective.ALL_GATHER, self.strategy.sharding.tensor
        found = self.exchange_s(kind, each * held.shared, self.ranks, s.replica_stride)
        found += self.exchange_s(kind, each * held.experts, s.expert_replicas, s.expert_stride)
        found += self.exchange_s(kind, each * held.whole / tensor, self.ranks, s.replica_stride)
        return found + self.exchange_s(kind, each * held.whole, tensor, 1)

    def reduce_s(self, each: float, held: Parameters) -> float:
        """Sum of gradients of so many bytes each; where ranks divide, everyone gets a part of it."""
        s, tensor = self.strategy, self.strategy.sharding.tensor
        kind = Collective.REDUCE_SCATTER if s.zero else Collective.ALL_REDUCE
        found = self._reduced_s(each * held.shared) + self._reduced_s(each * held.whole / tensor)
        found += self.exchange_s(kind, each * held.experts, s.expert_replicas, s.expert_stride)
        return found + self.exchange_s(kind, each * held.whole, tensor, 1)

    def _reduced_s(self, payload_bytes: float) -> float:
        s, stride = self.strategy, self.strategy.replica_stride
        if not s.zero:
            return self.exchange_s(Collective.ALL_REDUCE, payload_bytes, s.replicas, stride)
        inside = self.exchange_s(Collective.REDUCE_SCATTER, payload_bytes, self.ranks, stride)
        others = s.replicas // self.ranks
        return inside + self.exchange_s(
            Collective.ALL_REDUCE, payload_bytes / self.ranks, others, stride * self.ranks
        )

    @cached_property
    def transfers_s(self) -> list[float]:
        """From each chunk to the next, one way."""
        s, index = self.strategy, self.figures.chain.index
        tensor, sequence = s.sharding.tensor, s.sharding.sequence
        shares, found = sequence or self.framework.scatters_transfers, []
        for first, _ in self.division.chunks[1:]:
            sent = self.layers[index[self.division.groups[first][0] - 1]].output_bytes
            way = sent / (tensor if shares else 1), s.pipeline_parallel, s.pipeline_stride
            seconds = self.exchange_s(Collective.SEND_RECV, *way)
            if shares and not sequence:
                seconds += self.exchange_s(Collective.ALL_GATHER, sent, tensor, 1)
            found.append(seconds)
        return found

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Of one weight and one gradient."""
        said, n = self.framework, self.numerics
        return (
            n.weight_bytes if said.gathered_bytes is None else said.gathered_bytes,
            n.gradient_bytes if said.reduced_bytes is None else said.reduced_bytes,
        )

    def divided(self, held: Parameters) -> float:
        """Parameters of a device where ranks divide them."""
        s = self.strategy
        return (
            held.shared / self.ranks
            + held.experts / s.expert_replicas
            + held.whole / (self.ranks * s.sharding.tensor)
        )

    @property
    def microbatches(self) -> int:
        """Of every pipeline."""
        samples = self.strategy.microbatch * self.strategy.data_parallel
        return (self.cluster.global_batch + samples - 1) // samples
