"""Offloading to the memory of the host: bytes there, and seconds that moving them over the link adds to an iteration.

Weights come in for every pass, one group of layers ahead, and activations leave behind forward and come back ahead of
backward (ZeRO-Infinity, arXiv 2104.07857, section 5.2.2); gradients leave behind backward, and the host steps the
optimizer with the bandwidth of its own memory, after which new weights come in (ZeRO-Offload, arXiv 2101.06840, section
3.2). Where all microbatches pass a chunk before any passes the next one, weights and gradients move once per chunk,
not once per microbatch, while the chunk before computes (Harmony, arXiv 2202.01306, input-batch grouping). The two
directions of the link do not disturb each other. What a device leaves has to fit into its share of the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.training.exchanges.gradient_sync import GradientSyncRates
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.memory.memory_footprint import (
    GroupFootprint,
    divided_parameters,
    ranks_of,
    recomputed_groups,
)
from phaze.parallel.training.stage_times import PassTime
from phaze.tolerances import SAME
from phaze.workload.workload import Numerics

_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Host:
    """Share of its host that one device has: the link per direction, memory, and memory bandwidth."""

    link_bytes_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float

    @classmethod
    def of(cls, table: ArchitectureTable, plan: ParallelPlan) -> Host:
        """The host of the one architecture of a table. Raises InputError where it does not say what is needed."""
        fields = (
            "host_bandwidth_bytes_per_s",
            "host_memory_bandwidth_bytes_per_s",
            "host_memory_capacity_bytes",
        )
        found = {field: float(table[field][0]) for field in fields}
        steps = Offload.OPTIMIZER in plan.offload
        for field in fields if steps else (fields[0], fields[2]):
            if np.isnan(found[field]):
                raise InputError(f"offload needs the architecture's {field}")
        return cls(*found.values())

    def check(self, iteration: Iteration) -> None:
        """Raises InputError where what devices leave to the host does not fit there."""
        if iteration.host_bytes > self.memory_bytes * (1 + SAME):
            raise InputError(
                f"{iteration.host_bytes / _GIB:.4g} GiB offloaded by a device do not fit into the "
                f"{self.memory_bytes / _GIB:.4g} GiB of its host"
            )

    def step_s(self, rates: GradientSyncRates, plan: ParallelPlan, numerics: Numerics) -> float:
        """Seconds of an optimizer step per parameter where states or weights are the host's."""
        link_s, step_s = 1 / self.link_bytes_per_s, float(rates.optimizer_s)
        if Offload.OPTIMIZER in plan.offload:
            step_s = numerics.optimizer_traffic_bytes / self.memory_bytes_per_s
        if len({Offload.OPTIMIZER, Offload.WEIGHTS} & plan.offload) == 1:  # on different sides
            step_s += rates.gathered_bytes * link_s
        return step_s


@dataclass(frozen=True)
class OffloadTraffic:
    """Bytes that every group of layers moves in a pass, (G,) each, between a device and its host.

    Activations move with every microbatch, and so do weights and gradients unless devices run `swapped` chunks, all
    microbatches of one after the other.
    """

    host: Host
    division: Division
    weights: Floats
    activations: Floats
    gradients: Floats
    hides: bool
    swapped: SwappedChunks | None = None

    @classmethod
    def of(
        cls,
        host: Host,
        footprint: GroupFootprint,
        division: Division,
        plan: ParallelPlan,
        wire_bytes: tuple[float, float],
        *,
        hides: bool,
        swapped: SwappedChunks | None = None,
    ) -> OffloadTraffic:
        """Traffic of a plan with the host; `wire_bytes`: of one weight and one gradient.

        `hides`: whether computation goes on meanwhile. `swapped`: chunks through which all microbatches go at once.
        """
        s = plan
        divided = divided_parameters(ranks_of(s), footprint.shared, footprint.experts, footprint.replicated)
        whole, (weight, gradient) = footprint.parameters, wire_bytes
        kept = np.where(recomputed_groups(division, s), footprint.spared_bytes, footprint.saved_bytes)

        def moved(what: Offload, each_bytes: Floats) -> Floats:
            return each_bytes if what in s.offload else np.zeros(len(whole))

        return cls(
            host,
            division,
            moved(Offload.WEIGHTS, weight * (divided if s.zero >= Zero.WEIGHTS else whole)),
            moved(Offload.ACTIVATIONS, kept),
            moved(Offload.OPTIMIZER, gradient * (divided if s.zero >= Zero.GRADIENTS else whole)),
            hides,
            swapped,
        )

    def bytes_in_iteration(self, microbatches: int) -> Floats:
        """Bytes of every chunk over the link of its device in an iteration of so many microbatches, (C,).

        Weights come twice, for forward and backward; gradients leave, and activations leave and come back.
        """
        state, kept = 2 * self.weights + self.gradients, 2 * self.activations
        times = microbatches if self.swapped is None else 1
        found: Floats = np.add.reduceat(times * state + microbatches * kept, self.division.first_groups)
        return found

    def forward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """Forward with what it waits for the link; `compute_s` (G,)."""
        weights, _ = self._beside_each_microbatch
        found = self._added(side, compute_s, weights, self.activations, turned=False)
        return found if self.swapped is None else self._swapping(found, self.swapped, compute_s, turned=False)

    def backward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """Backward, from the last group to the first."""
        weights, gradients = self._beside_each_microbatch
        found = self._added(side, compute_s, weights + self.activations, gradients, turned=True)
        return found if self.swapped is None else self._swapping(found, self.swapped, compute_s, turned=True)

    @property
    def _beside_each_microbatch(self) -> tuple[Floats, Floats]:
        """Weights and gradients that move with every microbatch, (G,) each."""
        none = np.zeros_like(self.weights)
        return (self.weights, self.gradients) if self.swapped is None else (none, none)

    def _swapping(
        self, side: PassTime, swapped: SwappedChunks, compute_s: Floats, *, turned: bool
    ) -> PassTime:
        """The side, whose activations have moved, with the waits for weights and gradients of its chunks."""
        moved_s = np.stack([self.weights, turned * self.gradients, turned * self.activations])
        rows = np.stack([compute_s, *moved_s / self.host.link_bytes_per_s])
        computing_s, *chunks_s = np.add.reduceat(rows, self.division.first_groups, axis=1)
        waits_s = (chunks_s[0] + chunks_s[1]) / swapped.microbatches
        if self.hides:
            waits_s = swapped.waits_s(computing_s + side.zero_s, *chunks_s, turned=turned)
        return replace(side, zero_s=side.zero_s + waits_s, moved_s=side.moved_s + waits_s)

    def _added(
        self, side: PassTime, compute_s: Floats, inward: Floats, outward: Floats, *, turned: bool
    ) -> PassTime:
        """Exchanges among devices run beside those with the host: the longer wait counts."""
        link, first_groups = self.host.link_bytes_per_s, self.division.first_groups
        if not self.hides:
            moved_s = np.add.reduceat(inward + outward, first_groups) / link
            return replace(side, zero_s=side.zero_s + moved_s, moved_s=moved_s)
        waits = np.zeros(len(side.zero_s))
        for chunk, (first, last) in enumerate(self.division.chunks):
            groups = slice(first, last + 1)
            columns = [x[groups].tolist() for x in (compute_s, inward / link, outward / link)]
            ordered = [column[::-1] if turned else column for column in columns]
            waits[chunk] = beside_s(*ordered, drains=turned) - sum(columns[0])
        longer_s = np.maximum(side.zero_s, waits)
        return replace(side, zero_s=longer_s, moved_s=longer_s - side.zero_s)


@dataclass(frozen=True)
class SwappedChunks:
    """Chunks that devices run one after the other, all microbatches of each; `own` (p, v): those of every device."""

    own: Integers
    microbatches: int

    def waits_s(
        self, pass_s: Floats, weights_s: Floats, gradients_s: Floats, activations_s: Floats, *, turned: bool
    ) -> Floats:
        """Seconds that a microbatch waits in each chunk for what chunks swap, (C,): of all microbatches their share.

        Weights of a chunk come while the one before computes, once its own predecessor has made room, behind the
        activations of the former; gradients leave while the next one computes. `pass_s`: of a microbatch.
        """
        found, m = np.zeros(len(pass_s)), self.microbatches
        for own in self.own[:, ::-1] if turned else self.own:
            lasting_s = m * pass_s[own]
            inward_s = weights_s[own] + m * np.append(0.0, activations_s[own[:-1]])
            columns = (lasting_s.tolist(), inward_s.tolist(), gradients_s[own].tolist())
            ends_s = ends_beside_s(*columns, drains=turned)
            found[own] = np.maximum(np.diff(ends_s, prepend=0.0) - lasting_s, 0.0) / m
        return found


def beside_s(
    compute_s: Sequence[float], inward_s: Sequence[float], outward_s: Sequence[float], *, drains: bool
) -> float:
    """Seconds of groups one after the other, with transfers of each before and after it: the last of their ends."""
    return ends_beside_s(compute_s, inward_s, outward_s, drains=drains)[-1]


def ends_beside_s(
    compute_s: Sequence[float], inward_s: Sequence[float], outward_s: Sequence[float], *, drains: bool
) -> list[float]:
    """Ends of groups one after the other, with transfers of each before and after it, two at most in transit.

    `drains`: the last ends when it has left; otherwise when it has computed.
    """
    arrived = time = left = 0.0
    done, gone = [0.0, 0.0], [0.0, 0.0]
    for compute, inward, outward in zip(compute_s, inward_s, outward_s, strict=True):
        arrived = max(arrived, done[-2]) + inward
        time = max(time, arrived, gone[-2]) + compute
        left = max(left, time) + outward
        done.append(time)
        gone.append(left)
    return [*done[2:-1], max(time, left) if drains else time]
