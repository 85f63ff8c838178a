"""Offloading to the memory of the host: bytes there, and seconds that moving them over the link adds to an iteration.

Weights come in for every pass, one group of layers ahead, and activations leave behind forward and come back ahead of
backward (ZeRO-Infinity, arXiv 2104.07857, section 5.2.2); gradients leave behind backward, and the host steps the
optimizer with the bandwidth of its own memory, after which new weights come in (ZeRO-Offload, arXiv 2101.06840, section
3.2). The two directions of the link do not disturb each other. What a device leaves has to fit into its share of the
host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.training.gradient_sync import GradientSyncRates
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.memory_footprint import (
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
    """Bytes that every group of layers moves in a pass of one microbatch, (G,) each, with the host of a device."""

    host: Host
    division: Division
    weights: Floats
    activations: Floats
    gradients: Floats
    hides: bool

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
    ) -> OffloadTraffic:
        """Traffic of a plan with the host; `wire_bytes`: of one weight and one gradient.

        `hides`: whether computation goes on meanwhile.
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
        )

    def forward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """Forward with what it waits for the link; `compute_s` (G,)."""
        return self._added(side, compute_s, self.weights, self.activations, turned=False)

    def backward(self, side: PassTime, compute_s: Floats) -> PassTime:
        """Backward, from the last group to the first."""
        return self._added(side, compute_s, self.weights + self.activations, self.gradients, turned=True)

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


def beside_s(
    compute_s: Sequence[float], inward_s: Sequence[float], outward_s: Sequence[float], *, drains: bool
) -> float:
    """Seconds of groups one after the other, with transfers of each before and after it, two groups at most in transit.

    `drains`: until the last has left; otherwise until the last has computed.
    """
    arrived = time = left = 0.0
    done, gone = [0.0, 0.0], [0.0, 0.0]
    for compute, inward, outward in zip(compute_s, inward_s, outward_s, strict=True):
        arrived = max(arrived, done[-2]) + inward
        time = max(time, arrived, gone[-2]) + compute
        left = max(left, time) + outward
        done.append(time)
        gone.append(left)
    return max(time, left) if drains else time
