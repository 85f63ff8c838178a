"""What follows the last microbatch: gradients are reduced, the optimizer steps, weights come back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.exchange import Exchanges, overlapped_s
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.load import Loads
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.workload.work import LayerChain


@dataclass(frozen=True, slots=True)
class Tail:
    """Exposed seconds of one device; `hidden_s` ran beside computation."""

    reduction_s: float
    optimizer_s: float
    gather_s: float
    hidden_s: float

    @property
    def total_s(self) -> float:
        """All that the iteration is longer by."""
        return self.reduction_s + self.optimizer_s + self.gather_s


@dataclass(frozen=True, slots=True)
class TailRates:
    """Bytes on the wire per weight and gradient, and seconds of an optimizer step per parameter."""

    gathered_bytes: float
    reduced_bytes: float
    optimizer_s: float


def tail(
    chain: LayerChain,
    division: Division,
    chunks: list[int],
    found: Loads,
    exchanges: Exchanges,
    framework: Framework,
    rates: TailRates,
    microbatches: int,
) -> Tail:
    """The tail of a device that has some of the chunks, after so many microbatches."""
    s = exchanges.strategy
    layers = [chain.layers[u] for c in chunks for u in chain.index[division.layers(c)]]
    experts = float(sum(layer.expert_parameters for layer in layers))
    shared = float(sum(layer.parameters for layer in layers)) - experts
    pieces = sum(division.chunks[c][1] - division.chunks[c][0] + 1 for c in chunks)
    reduce_s = gather_s = 0.0
    if s.zero < Zero.GRADIENTS or not framework.reduces_every_microbatch:
        reduce_s = float(exchanges.reduce_s(shared * rates.reduced_bytes))
        reduce_s += float(exchanges.reduce_experts_s(experts * rates.reduced_bytes)) if experts else 0.0
    if s.zero in (Zero.OPTIMIZER, Zero.GRADIENTS) or s.stays_whole:
        gather_s = float(exchanges.gather_s(shared * rates.gathered_bytes))
        gather_s += float(exchanges.gather_experts_s(experts * rates.gathered_bytes)) if experts else 0.0
    window = _window(s, microbatches)
    backward = window * float(np.sum(found.turned_s[chunks]))
    forward = window * float(np.sum(found.forward.pass_s[chunks]))
    reduction = _exposed(backward, reduce_s, pieces, framework.hides_reduction, framework)
    gather = _exposed(forward, gather_s, pieces, framework.hides_gathers, framework)
    stepped = shared, experts
    if s.zero is not Zero.NONE:
        stepped = shared / exchanges.sharded, experts / s.expert_replicas
    return Tail(
        reduction_s=reduction,
        optimizer_s=sum(stepped) * rates.optimizer_s * framework.optimizer_stretch,
        gather_s=gather,
        hidden_s=max(reduce_s - reduction, 0.0) + max(gather_s - gather, 0.0),
    )


def _window(strategy: Strategy, microbatches: int) -> float:
    """Passes of one microbatch that all gradients but the last ones, or all weights but the first, have to hide behind.

    An interleaved pipeline ends (and begins) chunk by chunk, as many microbatches of each as there are stages; other
    schedules with the last (first) microbatch.
    """
    s = strategy
    if s.schedule is not Schedule.INTERLEAVED:
        return 1.0
    return (1 + (s.chunks - 1) * min(s.pipeline_parallel, microbatches)) / s.chunks


def _exposed(beside_s: float, exchange_s: float, pieces: int, hides: bool, framework: Framework) -> float:
    return overlapped_s(beside_s, exchange_s, pieces, framework.interference) if hides else exchange_s
