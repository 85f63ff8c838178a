"""Gradient synchronisation after the last microbatch: gradients are reduced, the optimizer steps, weights come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats
from phaze.parallel.chunk_division import Division
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.training.exchanges.communication import Communication, overlapped_s
from phaze.parallel.training.layer_costs import LayerSizes
from phaze.parallel.training.memory.memory_footprint import divided_parameters


@dataclass(frozen=True, slots=True)
class GradientSyncs:
    """Exposed seconds of every device of pipelines, (V, p) each; `hidden_s` ran beside computation."""

    reduction_s: Floats
    optimizer_s: Floats
    gather_s: Floats
    hidden_s: Floats

    @property
    def total_s(self) -> Floats:
        """All that the iteration is longer by."""
        return self.reduction_s + self.optimizer_s + self.gather_s

    @property
    def longest_s(self) -> float:
        """Seconds by which the only pipeline is longer: those of its device with most to do."""
        return float(self.total_s.max())

    def of_device(self, device: int) -> GradientSync:
        """That of a device of the only pipeline."""
        return GradientSync(*(float(getattr(self, f.name)[0, device]) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class GradientSync:
    """Exposed seconds of one device."""

    reduction_s: float
    optimizer_s: float
    gather_s: float
    hidden_s: float

    @property
    def total_s(self) -> float:
        """All that the iteration is longer by."""
        return self.reduction_s + self.optimizer_s + self.gather_s


@dataclass(frozen=True, slots=True)
class GradientSyncRates:
    """Bytes on the wire per weight and gradient, and seconds of an optimizer step per parameter.

    Of plans whose steps differ, `optimizer_s` is (V, 1).
    """

    gathered_bytes: float
    reduced_bytes: float
    optimizer_s: float | Floats

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Bytes on the wire of one weight and one gradient."""
        return self.gathered_bytes, self.reduced_bytes


@dataclass(frozen=True)
class DeviceParameters:
    """Parameters of every device of pipelines, (p,) or (V, p) each, by who has the same, and groups of layers.

    `shared`: replicas; `experts`: those of experts; `whole`: tensor ranks as well. `tied`: parameters that
    the first and the last device both have.
    """

    shared: Floats
    experts: Floats
    replicated: Floats
    pieces: Floats
    tied: Floats

    @classmethod
    def of(
        cls, sizes: LayerSizes, division: Division, own: NDArray[np.int64], groups: Flags | None = None
    ) -> DeviceParameters:
        """Parameters of devices with some chunks of a division each, (p, slots); of some `groups` (G,) where told."""
        taken = np.ones(len(division.groups), dtype=np.bool_) if groups is None else groups
        parameters = sizes.parameters * np.repeat(taken, division.sizes)
        every, experts, whole = np.add.reduceat(parameters, division.first_layers, axis=1)
        pieces = np.add.reduceat(taken.astype(np.float64), division.first_groups)
        tied = np.zeros(len(own))
        tied[[0, -1]] = sizes.tied_parameters
        columns = (every - experts - whole, experts, whole, pieces)
        shared, expert, kept, exchanged = (each[own].sum(axis=1) for each in columns)
        return cls(shared, expert, kept, exchanged, tied)

    @property
    def distinct(self) -> tuple[DeviceParameters, NDArray[np.intp]]:
        """Parameters of distinct devices (k,) of one pipeline, and which of them each one is, (p,)."""
        rows = np.array([getattr(self, f.name) for f in fields(self)])
        found, which = np.unique(rows, axis=1, return_inverse=True)
        return DeviceParameters(*found), which.ravel()


@dataclass(frozen=True)
class GradientSyncWork:
    """Gradient synchronisation on every device of pipelines, (V, p) each, before anything hides it.

    Seconds of exchanges, and parameters that a device steps. `window` (V, 1): passes of one microbatch that all but the
    last exchanges have to hide behind, `reductions` and `gathers` how many exchanges there are of each.
    """

    reduce_s: Floats
    gather_s: Floats
    tie_s: Floats
    stepped: Floats
    reductions: Floats
    gathers: Floats
    window: Floats

    @classmethod
    def of(
        cls,
        held: DeviceParameters,
        exchanges: Communication,
        framework: Framework,
        wire_bytes: tuple[float, float],
        microbatches: Sequence[int],
        whole: DeviceParameters | None = None,
    ) -> GradientSyncWork:
        """Work of plans (V,) that run so many `microbatches` (V,); `wire_bytes`: of one weight and one gradient.

        `whole`: parameters of the groups that each replica keeps whole, where some are divided: only these are gathered
        after the step, and reduced after the last microbatch alone.
        """
        e, each = exchanges, exchanges.plans
        late = [[s.zero < Zero.GRADIENTS or not framework.reduces_every_microbatch] for s in each]
        apart = [[s.zero in (Zero.OPTIMIZER, Zero.GRADIENTS) or s.stays_whole] for s in each]
        gathered, reduced = wire_bytes[0] * np.array(apart), wire_bytes[1] * np.array(late)
        kept = held if whole is None else whole
        summed = kept if framework.reduces_every_microbatch else held
        reduce_s = e.reduce_s(summed.shared * reduced) + e.reduce_experts_s(summed.experts * reduced)
        reduce_s += e.reduce_replicated_s(summed.replicated * reduced)
        gather_s = e.gather_s(kept.shared * gathered) + e.gather_experts_s(kept.experts * gathered)
        gather_s += e.gather_replicated_s(kept.replicated * gathered)
        ranks = [np.where(e.divides, some, 1) for some in e.ranks]
        return cls(
            reduce_s,
            gather_s,
            e.tie_s(held.tied * wire_bytes[1]),
            divided_parameters(ranks, held.shared, held.experts, held.replicated),
            np.broadcast_to(summed.pieces, reduce_s.shape),
            np.broadcast_to(kept.pieces, reduce_s.shape),
            np.array([[overlap_window(s, m)] for s, m in zip(each, microbatches, strict=True)]),
        )

    def on(self, which: NDArray[np.intp]) -> GradientSyncWork:
        """Work of devices that are each one of these, (V, p)."""
        devices = {f.name: getattr(self, f.name)[:, which] for f in fields(self) if f.name != "window"}
        return replace(self, **devices)

    def take(self, rows: slice) -> GradientSyncWork:
        """Work of some of the plans."""
        return GradientSyncWork(*(getattr(self, f.name)[rows] for f in fields(self)))

    def beside(
        self, forward_s: Floats, turned_s: Floats, framework: Framework, optimizer_s: float | Floats
    ) -> GradientSyncs:
        """Exposed gradient synchronisation beside passes of one microbatch before and after the loss, (V, p) each.

        iteration = pipeline + max over devices of (reduction + tied + optimizer + gather) + the framework's own time;
        what hides of reductions and gathers is as of `overlapped_s` (docs/reference/formulas/pipeline.md).
        `optimizer_s`: seconds of a step per parameter.
        """
        lost = framework.interference
        reduction, gather = self.reduce_s, self.gather_s
        if framework.hides_reduction:
            reduction = overlapped_s(self.window * turned_s, reduction, self.reductions, lost)
        if framework.hides_gathers:
            gather = overlapped_s(self.window * forward_s, gather, self.gathers, lost)
        hidden_s = np.maximum(self.reduce_s - reduction, 0.0) + np.maximum(self.gather_s - gather, 0.0)
        return GradientSyncs(
            reduction_s=reduction + self.tie_s,
            optimizer_s=self.stepped * optimizer_s * framework.optimizer_stretch,
            gather_s=gather,
            hidden_s=hidden_s,
        )


def gradient_sync(
    held: DeviceParameters,
    forward_s: Floats,
    turned_s: Floats,
    exchanges: Communication,
    framework: Framework,
    rates: GradientSyncRates,
    microbatches: Sequence[int],
) -> GradientSyncs:
    """The gradient synchronisation of plans (V,), of every device; `microbatches` (V,).

    `forward_s`, `turned_s` (V, p): passes of one microbatch, before and after the loss.
    """
    work = GradientSyncWork.of(held, exchanges, framework, rates.wire_bytes, microbatches)
    return work.beside(forward_s, turned_s, framework, rates.optimizer_s)


def overlap_window(plan: ParallelPlan, microbatches: int) -> float:
    """Passes of one microbatch that all gradients but the last ones, or all weights but the first, have to hide behind.

    An interleaved pipeline ends (and begins) chunk by chunk, as many microbatches of each as there are stages, a
    breadth-first one with all microbatches of a chunk; other schedules with the last (first) microbatch.
    """
    s = plan
    each = {
        Schedule.INTERLEAVED: min(s.pipeline_parallel, microbatches),
        Schedule.BREADTH_FIRST: microbatches,
    }
    if s.schedule not in each:
        return 1.0
    return (1 + (s.chunks - 1) * each[s.schedule]) / s.chunks
