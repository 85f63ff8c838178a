"""Seconds that one microbatch takes in every chunk of a pipeline, and what they consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.placement.strategy.division import Division
from phaze.placement.strategy.exchange import Exchanges
from phaze.placement.strategy.figures import LayerFigures, PassFigures
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.memory import recomputed
from phaze.placement.strategy.prefetch import Group, backward_s, forward_s, slowed
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.workload.degrees import Parallel

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One direction of one microbatch, (C,) seconds by chunk; `pass_s` is what the pipeline sees.

    `kernels_s` with `vector_s` and `weight_s` (of parameters' gradients) among them, `exposed_s` collectives inside
    layers, `zero_s` exposed exchanges of ZeRO, `host_s` waiting for the host, `hidden_s` collectives beside computation
    (no part of `pass_s`).
    """

    kernels_s: Floats
    vector_s: Floats
    weight_s: Floats
    exposed_s: dict[Parallel, Floats]
    zero_s: Floats
    host_s: Floats
    hidden_s: Floats

    @cached_property
    def device_s(self) -> Floats:
        """Without waiting for the host."""
        return sum(self.exposed_s.values(), self.kernels_s + self.zero_s)

    @cached_property
    def pass_s(self) -> Floats:
        """All of it."""
        return self.device_s + self.host_s


@dataclass(frozen=True)
class Loads:
    """Forward, forward again, and backward of every chunk; `transfer_s` (C - 1,) from each chunk to the next."""

    forward: Side
    again: Side
    backward: Side
    transfer_s: Floats

    @cached_property
    def turned_s(self) -> Floats:
        """What follows the loss: forward again and backward."""
        return self.again.pass_s + self.backward.pass_s


class HostTraffic(Protocol):
    """Transfers between a device and its host beside the passes of a microbatch (`offload.Traffic`)."""

    def forward(self, side: Side, compute_s: Floats) -> Side:
        """Forward with what it waits for the host; `compute_s` (G,): what runs beside, by group of layers."""

    def backward(self, side: Side, compute_s: Floats) -> Side:
        """The same of backward."""


@dataclass(frozen=True)
class _Wire:
    """Bytes per parameter that ZeRO moves in a pass; 0 where it moves none."""

    gathered: float = 0.0
    reduced: float = 0.0


def loads(
    figures: LayerFigures,
    division: Division,
    exchanges: Exchanges,
    framework: Framework,
    wire_bytes: tuple[float, float],
    traffic: HostTraffic | None = None,
) -> Loads:
    """Loads of a division; `wire_bytes`: of one weight and one gradient where ranks exchange them."""
    strategy, chain = exchanges.strategy, figures.chain
    gathered, reduced = wire_bytes
    whole = strategy.zero is Zero.WEIGHTS and not strategy.stays_whole
    always = strategy.zero >= Zero.GRADIENTS and framework.reduces_every_microbatch
    sides, once = _Sides(figures, division, framework), np.ones(len(chain.index))
    repeated = _again(figures, division, strategy)
    forward = sides.side([(figures.forward, once)], framework.dispatch_s)
    redone = sides.side(repeated, framework.dispatch_s)
    backward = sides.side([(figures.backward, once)], framework.dispatch_backward_s)
    if whole or always or traffic is not None:
        behind = sides.groups_s([*repeated, (figures.backward, once)])
        ahead = sides.groups_s([(figures.forward, once)])
    if whole or always:
        wires = _Wires(figures, division, exchanges, framework)
        turned = _Wire(gathered if whole and strategy.reshards else 0.0, reduced if always else 0.0)
        backward = wires.beside(backward, behind, turned, backward_s)
    if whole:
        forward = wires.beside(forward, ahead, _Wire(gathered), forward_s)
    if traffic is not None:
        forward, backward = traffic.forward(forward, ahead), traffic.backward(backward, behind)
    cuts = [chain.layers[chain.index[start - 1]].output_bytes for start in division.first_layers[1:]]
    transfer = exchanges.transfer_s(np.array(cuts, dtype=np.float64), framework.scatters_transfers)
    return Loads(*_with_host(forward, redone, backward, framework, len(cuts) + 1), transfer)


_Repeated = tuple[PassFigures, Floats]
"""A pass, and how often every position (L,) runs it."""


def _again(figures: LayerFigures, division: Division, strategy: Strategy) -> list[_Repeated]:
    """What full recompute runs: the layers of each group that recomputes, and the last of them."""
    times = np.repeat(recomputed(division, strategy), division.sizes).astype(np.float64)
    ends = np.zeros(len(times))
    ends[[last for _, last in division.groups]] = 1.0
    return [(figures.again, times * (1 - ends)), (figures.ending, times * ends)]


@dataclass(frozen=True)
class _Sides:
    figures: LayerFigures
    division: Division
    framework: Framework

    def side(self, passes: Sequence[_Repeated], dispatch_s: float) -> Side:
        """One direction of all chunks, without exchanges of weights; `host_s` is still that of its launches."""
        index = np.array(self.figures.chain.index)
        stacked = np.sum([figures.stacked[:, index] * times for figures, times in passes], axis=0)
        summed = np.add.reduceat(stacked, self.division.first_layers, axis=1)
        (kernels, vector, weight, hidden, launches), exposed = summed[:5], summed[5:]
        stretch = self.framework.stretch
        return Side(
            kernels_s=kernels * stretch + self.framework.interference * hidden,
            vector_s=vector * stretch,
            weight_s=weight * stretch,
            exposed_s=dict(zip(Parallel, exposed, strict=True)),
            zero_s=np.zeros(len(self.division.chunks)),
            host_s=launches * dispatch_s,
            hidden_s=hidden,
        )

    def groups_s(self, passes: Sequence[_Repeated]) -> Floats:
        """Seconds of every group of layers (G,), without the host and exchanges of weights."""
        index, seconds = np.array(self.figures.chain.index), np.zeros(len(self.figures.chain.index))
        for figures, times in passes:
            busy = figures.kernels_s * self.framework.stretch + self.framework.interference * figures.hidden_s
            seconds += sum(figures.exposed_s.values(), busy)[index] * times
        found: Floats = np.add.reduceat(seconds, [first for first, _ in self.division.groups])
        return found


@dataclass(frozen=True)
class _Wires:
    """Exchanges of weights and gradients in the passes of a microbatch."""

    figures: LayerFigures
    division: Division
    exchanges: Exchanges
    framework: Framework

    def beside(
        self, side: Side, compute_s: Floats, wire: _Wire, runs: Callable[[Sequence[Group]], float]
    ) -> Side:
        """The side with what the exchanges of a pass add; `compute_s` (G,): what runs beside them."""
        gather, reduce = self._groups_s(wire)
        added, hidden = np.zeros(len(side.zero_s)), np.zeros(len(side.zero_s))
        columns = zip(compute_s.tolist(), gather.tolist(), reduce.tolist(), self.division.body, strict=True)
        groups = [Group(*row) for row in columns]
        for chunk, (first, last) in enumerate(self.division.chunks):
            own = groups[first : last + 1]
            exchange = sum(group.gather_s + group.reduce_s for group in own)
            if not self.framework.hides_gathers:
                added[chunk] = exchange
                continue
            alone = sum(group.compute_s for group in own)
            added[chunk] = runs(slowed(own, self.framework.interference)) - alone
            hidden[chunk] = exchange - (runs(own) - alone)
        return replace(side, zero_s=added, hidden_s=side.hidden_s + hidden)

    def _groups_s(self, wire: _Wire) -> tuple[Floats, Floats]:
        """Gathers and reductions of every group of layers; all at once, equal ones one by one."""
        firsts = [first for first, _ in self.division.groups]
        sizes = np.add.reduceat(self.figures.parameters, firsts, axis=1).T
        (distinct, which), e = np.unique(sizes, axis=0, return_inverse=True), self.exchanges
        experts = distinct[:, 1]
        shared = distinct[:, 0] - experts
        gather = reduce = np.zeros(len(distinct))
        if wire.gathered:
            said = self.framework
            one = wire.gathered / said.gathers
            gathering = e.gather_s(one * shared) + e.gather_experts_s(one * experts)
            gather = said.gathers * (gathering + said.gather_rank_s * e.sharded)
        if wire.reduced:
            reduce = e.reduce_s(wire.reduced * shared) + e.reduce_experts_s(wire.reduced * experts)
        some, each = distinct[:, 0] > 0, which.ravel()
        return np.where(some, gather, 0.0)[each], np.where(some, reduce, 0.0)[each]


def _with_host(
    forward: Side, again: Side, backward: Side, framework: Framework, chunks: int
) -> tuple[Side, Side, Side]:
    """Launches turned into what they make the device wait.

    One that blocks has every launch waited for. A host that waits for the device launches every pass anew; one that
    runs ahead makes up for short kernels during long ones, and only all of a microbatch counts.
    """
    launches = np.array([side.host_s for side in (forward, again, backward)])
    launches[0] += framework.microbatch_s / chunks
    devices = np.array([side.device_s for side in (forward, again, backward)])
    if framework.blocking:
        late = launches
    elif framework.waits:
        late = np.maximum(launches - devices, 0.0)
    else:
        busy = devices.sum(axis=0)
        missing = np.maximum(launches.sum(axis=0) - busy, 0.0)
        late = missing * np.divide(devices, busy, out=np.zeros_like(devices), where=busy > 0)
    first, second, third = (
        replace(side, host_s=wait) for side, wait in zip((forward, again, backward), late, strict=True)
    )
    return first, second, third
