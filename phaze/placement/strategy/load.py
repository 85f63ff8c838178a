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
from phaze.workload.work import LayerChain

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
class Wire:
    """Bytes per parameter that ZeRO moves in a pass; 0 where it moves none."""

    gathered: float = 0.0
    reduced: float = 0.0


def wires(strategy: Strategy, framework: Framework, wire_bytes: tuple[float, float]) -> tuple[Wire, Wire]:
    """What forward and backward of every microbatch move; `wire_bytes`: of one weight and one gradient."""
    gathered, reduced = wire_bytes
    whole = strategy.zero is Zero.WEIGHTS and not strategy.stays_whole
    always = strategy.zero >= Zero.GRADIENTS and framework.reduces_every_microbatch
    again = gathered if whole and strategy.reshards else 0.0
    return Wire(gathered if whole else 0.0), Wire(again, reduced if always else 0.0)


def boundary_bytes(chain: LayerChain, division: Division) -> Floats:
    """What goes from each chunk to the next, (C - 1,)."""
    cuts = [chain.layers[chain.index[start - 1]].output_bytes for start in division.first_layers[1:]]
    return np.array(cuts, dtype=np.float64)


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
    ahead_wire, behind_wire = wires(strategy, framework, wire_bytes)
    sides, once = _Sides(figures, division, framework), np.ones(len(chain.index))
    repeated = _again(figures, division, strategy)
    forward = sides.side([(figures.forward, once)], framework.dispatch_s)
    redone = sides.side(repeated, framework.dispatch_s)
    backward = sides.side([(figures.backward, once)], framework.dispatch_backward_s)
    if strategy.zero >= Zero.GRADIENTS or traffic is not None:
        behind = sides.groups_s([*repeated, (figures.backward, once)])
        ahead = sides.groups_s([(figures.forward, once)])
    moving = Wires(figures, division, exchanges, framework)
    if behind_wire != Wire():
        backward = moving.beside(backward, behind, behind_wire, backward_s)
    if ahead_wire != Wire():
        forward = moving.beside(forward, ahead, ahead_wire, forward_s)
    if traffic is not None:
        forward, backward = traffic.forward(forward, ahead), traffic.backward(backward, behind)
    cuts = boundary_bytes(chain, division)
    transfer = exchanges.transfer_s(cuts, framework.scatters_transfers)
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
class Wires:
    """Exchanges of weights and gradients in the passes of a microbatch."""

    figures: LayerFigures
    division: Division
    exchanges: Exchanges
    framework: Framework

    def groups_s(self, wire: Wire) -> tuple[Floats, Floats]:
        """Gathers and reductions of every group of layers, (G,)."""
        (every, experts, whole), which = self.figures.sizes
        e, shared = self.exchanges, every - experts - whole
        gather = reduce = np.zeros(len(every))
        if wire.gathered:
            said = self.framework
            one = wire.gathered / said.gathers
            gathering = e.gather_s(one * shared) + e.gather_experts_s(one * experts)
            gathering = gathering + e.gather_whole_s(one * whole)
            ranks = e.sharded * np.where(whole > 0, e.strategy.sharding.tensor, 1)
            gather = said.gathers * (gathering + said.gather_rank_s * ranks * (every > 0))
        if wire.reduced:
            reduce = e.reduce_s(wire.reduced * shared) + e.reduce_experts_s(wire.reduced * experts)
            reduce = reduce + e.reduce_whole_s(wire.reduced * whole)
        return gather[which], reduce[which]

    def beside(
        self, side: Side, compute_s: Floats, wire: Wire, runs: Callable[[Sequence[Group]], float]
    ) -> Side:
        """The side with what the exchanges of a pass add; `compute_s` (G,): what runs beside them."""
        gather, reduce = self.groups_s(wire)
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


def _with_host(
    forward: Side, again: Side, backward: Side, framework: Framework, chunks: int
) -> tuple[Side, Side, Side]:
    """Launches turned into what they make the device wait."""
    sides = (forward, again, backward)
    launches, devices = (np.array([getattr(side, name) for side in sides]) for name in ("host_s", "device_s"))
    late = waits_s(launches, devices, framework, chunks)
    first, second, third = (replace(side, host_s=wait) for side, wait in zip(sides, late, strict=True))
    return first, second, third


def waits_s(launches: Floats, devices: Floats, framework: Framework, chunks: int) -> Floats:
    """What launches make the device wait, (3, ...) seconds of forward, forward again and backward of each chunk.

    One that blocks has every launch waited for. A host that waits for the device launches every pass anew; one that
    runs ahead makes up for short kernels during long ones, and only all of a microbatch counts. Without exchanges among
    `devices` the sum of each with its wait is never longer than with them.
    """
    launched = launches.copy()
    launched[0] += framework.microbatch_s / chunks
    if framework.blocking:
        return launched
    if framework.waits:
        return np.maximum(launched - devices, 0.0)
    busy = devices.sum(axis=0)
    missing = np.maximum(launched.sum(axis=0) - busy, 0.0)
    late: Floats = missing * np.divide(devices, busy, out=np.zeros_like(devices), where=busy > 0)
    return late
