"""What follows the last microbatch: gradients are reduced, the optimizer steps, weights come back."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.exchange import Exchanges, overlapped_s
from phaze.placement.strategy.figures import LayerFigures
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.memory import divided_parameters
from phaze.placement.strategy.strategy import Strategy, Zero

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tails:
    """Exposed seconds of every device, (p,) each; `hidden_s` ran beside computation."""

    reduction_s: Floats
    optimizer_s: Floats
    gather_s: Floats
    hidden_s: Floats

    @property
    def total_s(self) -> Floats:
        """All that the iteration is longer by."""
        return self.reduction_s + self.optimizer_s + self.gather_s

    @property
    def longest(self) -> Tail:
        """That of the device with most to do."""
        at = int(np.argmax(self.total_s))
        return Tail(*(float(getattr(self, f.name)[at]) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Tail:
    """The same of one device."""

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

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Of one weight and one gradient."""
        return self.gathered_bytes, self.reduced_bytes


@dataclass(frozen=True)
class Held:
    """What every device of a pipeline holds, (p,) each: parameters by who has the same ones, and groups of layers.

    `shared`: replicas; `experts`: those of experts; `whole`: tensor ranks as well. `tied`: parameters that
    the first and the last device both have.
    """

    shared: Floats
    experts: Floats
    whole: Floats
    pieces: Floats
    tied: Floats

    @classmethod
    def of(cls, figures: LayerFigures, division: Division, own: NDArray[np.int64]) -> Held:
        """Of devices with some chunks of a division each, (p, slots)."""
        every, experts, whole = np.add.reduceat(figures.parameters, division.first_layers, axis=1)
        pieces = np.array([last + 1 - first for first, last in division.chunks], dtype=np.float64)
        tied = np.zeros(len(own))
        tied[[0, -1]] = figures.chain.tied_parameters
        columns = (every - experts - whole, experts, whole, pieces)
        shared, expert, kept, groups = (each[own].sum(axis=1) for each in columns)
        return cls(shared, expert, kept, groups, tied)


def tails(
    held: Held,
    forward_s: Floats,
    turned_s: Floats,
    exchanges: Exchanges,
    framework: Framework,
    rates: TailRates,
    microbatches: int,
) -> Tails:
    """The tail of every device; `forward_s`, `turned_s` (p,): passes of one microbatch, before and after the loss."""
    s, e, none = exchanges.strategy, exchanges, np.zeros(len(held.shared))
    reduce_s = gather_s = none
    if s.zero < Zero.GRADIENTS or not framework.reduces_every_microbatch:
        reduce_s = e.reduce_s(held.shared * rates.reduced_bytes)
        reduce_s = reduce_s + e.reduce_experts_s(held.experts * rates.reduced_bytes)
        reduce_s = reduce_s + e.reduce_whole_s(held.whole * rates.reduced_bytes)
    if s.zero in (Zero.OPTIMIZER, Zero.GRADIENTS) or s.stays_whole:
        gather_s = e.gather_s(held.shared * rates.gathered_bytes)
        gather_s = gather_s + e.gather_experts_s(held.experts * rates.gathered_bytes)
        gather_s = gather_s + e.gather_whole_s(held.whole * rates.gathered_bytes)
    window = _window(s, microbatches)
    lost = held.pieces, framework.interference
    reduction = overlapped_s(window * turned_s, reduce_s, *lost) if framework.hides_reduction else reduce_s
    gather = overlapped_s(window * forward_s, gather_s, *lost) if framework.hides_gathers else gather_s
    stepped = held.shared + held.experts + held.whole
    if s.zero is not Zero.NONE:
        stepped = divided_parameters(s, held.shared, held.experts, held.whole)
    return Tails(
        reduction_s=reduction + e.tie_s(held.tied * rates.reduced_bytes),
        optimizer_s=stepped * rates.optimizer_s * framework.optimizer_stretch,
        gather_s=gather,
        hidden_s=np.maximum(reduce_s - reduction, 0.0) + np.maximum(gather_s - gather, 0.0),
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
