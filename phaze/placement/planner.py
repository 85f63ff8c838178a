"""From layer times to the time of one iteration: data and pipeline degrees and stage cuts, optimised exactly.

One planner serves one chain (microbatch size and tensor width fixed), one recompute choice and one memory
capacity, for any number of architectures at once. Under 1F1B

    iteration = slots x max over stages(load) + max over stages(parameters) x rate + latency

with slots = ceil(m / d) + S - 1, a stage's load the sum of its layers' times plus the transfers at its two
ends, and rate = gradient reduction plus optimizer step per parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import all_gather_s
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.iterations import Iterations
from phaze.placement.memory import ChainMemory
from phaze.placement.options import SCALE_UP, Options, options
from phaze.placement.plan import Plan
from phaze.placement.quick import quick_bound
from phaze.scheduling.layers import LayerTimes
from phaze.solvers.placement.partition import (
    PartitionProblem,
    StageLimits,
    bottlenecks,
)
from phaze.workload.work import LayerChain
from phaze.workload.workload import Numerics

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rates:
    """What an architecture contributes beside layer times, (A,) each.

    `link_bytes_per_s` per direction; `optimizer_s` seconds per parameter of one optimizer step.
    """

    link_bytes_per_s: FloatArray
    optimizer_s: FloatArray

    def take(self, rows: NDArray[np.intp]) -> Rates:
        """The same for some of the architectures."""
        return Rates(self.link_bytes_per_s[rows], self.optimizer_s[rows])


@dataclass(frozen=True)
class Planner:
    """Placement of one chain on one cluster for architectures of one memory capacity."""

    chain: LayerChain
    numerics: Numerics
    cluster: Cluster
    recompute: Recompute
    memory_bytes: float
    fixed: FixedDegrees

    # -- what does not depend on the architecture ----------------------------------------------------------

    @cached_property
    def index(self) -> IntArray:
        """Unique layer at every position, (L,)."""
        return np.array(self.chain.index, dtype=np.int64)

    @cached_property
    def parameters(self) -> FloatArray:
        """Parameters per device at every position, (L,)."""
        return self._per_layer("parameters")

    @cached_property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return any(layer.backward is not None for layer in self.chain.layers)

    @cached_property
    def options(self) -> Options:
        """Degrees to choose from."""
        return options(self.cluster, self.chain, self.fixed)

    @cached_property
    def roomy(self) -> Options:
        """The degrees for which some partition fits in memory (a bound where a short batch holds less)."""
        depth = np.unique(self.options.stages)
        short = self.options.microbatches < self.options.stages
        room = {held: self._deep_enough(depth, held) for held in (None, 1)}
        at = np.searchsorted(depth, self.options.stages)
        return self.options.take(np.where(short, room[1][at], room[None][at]))

    def _deep_enough(self, depth: IntArray, in_flight: int | None) -> NDArray[np.bool_]:
        if not len(depth):
            return np.zeros(0, dtype=bool)
        nothing = np.zeros((1, len(self.index)))
        ends = np.zeros((1, len(self.index) + 1))
        problem = PartitionProblem(nothing, nothing, ends, self.memory.limits(in_flight), self.index)
        return np.isfinite(bottlenecks(problem, depth.tolist())[0])

    @cached_property
    def memory(self) -> ChainMemory:
        """Bytes of every layer, and where stages fit."""
        return ChainMemory(
            static_bytes=self.parameters * self.numerics.state_bytes,
            saved_bytes=self._per_layer("saved_bytes"),
            input_bytes=self._per_layer("input_bytes"),
            working_bytes=self._per_layer("working_bytes"),
            memory_bytes=self.memory_bytes,
            recompute=self.recompute is Recompute.FULL,
        )

    @cached_property
    def least_weight(self) -> FloatArray:
        """Smallest possible largest stage, in parameters, with at most S = 1..L stages, memory aside, (L,)."""
        layers = len(self.index)
        anywhere = StageLimits(np.full((layers, layers), layers), None)
        weights = self.parameters[None, :]
        problem = PartitionProblem(weights, weights, np.zeros((1, layers + 1)), anywhere, self.index)
        return bottlenecks(problem, range(1, layers + 1))[0]

    def _per_layer(self, field: str) -> FloatArray:
        values = np.array([getattr(layer, field) for layer in self.chain.layers], dtype=np.float64)
        return values[self.index]

    # -- per architecture ------------------------------------------------------------------------------------

    def problem(self, times: LayerTimes, rates: Rates, tier: int, in_flight: int | None) -> PartitionProblem:
        """The partition problem of (A,) architectures when stages exchange tensors over one tier."""
        forward, backward = times.forward_s[:, self.index], times.backward_s[:, self.index]
        plain = forward + backward
        redo = plain + forward if self.recompute is Recompute.FULL else plain
        return PartitionProblem(
            plain, redo, self.boundaries(rates, tier), self.memory.limits(in_flight), self.index
        )

    def boundaries(self, rates: Rates, tier: int) -> FloatArray:
        """Seconds per microbatch that a cut before layer i costs each of the two stages it separates, (A, L+1).

        The group's devices send 1/t of the tensor each and gather the rest inside the group (Narayanan et al.,
        SC'21, section 4.1); in training the gradient comes back the same way. Charged at both ends, never
        hidden: each stage sends one way and receives (with the gather) the other way.
        """
        width = self.chain.tensor_parallel
        network = self.cluster.network
        bandwidth = network.bandwidth_bytes_per_s(tier, rates.link_bytes_per_s)[:, None]
        cut_bytes = self._per_layer("output_bytes")[None, :-1]
        send = cut_bytes / width / bandwidth + network.latency_s(tier)
        gather = all_gather_s(cut_bytes, width, rates.link_bytes_per_s[:, None], network.latency_s(SCALE_UP))
        seconds = np.zeros((len(bandwidth), len(self.index) + 1))
        seconds[:, 1:-1] = send * (2 if self.training else 1) + gather
        return seconds

    def weight_rates(self, rates: Rates, chosen: Options) -> tuple[FloatArray, FloatArray]:
        """(A, O) seconds per parameter of the largest stage, and (O,) latency of the gradient reduction.

        Ring all-reduce of the gradients, 2 (d - 1) / d of their bytes, then the optimizer step.
        """
        d = chosen.data_parallel
        network = self.cluster.network
        share = 2 * (d - 1) / d * self.numerics.gradient_bytes
        reduction = np.zeros((len(rates.optimizer_s), len(d)))
        latency = np.zeros(len(d))
        for tier in (0, 1):
            here = chosen.data_tier == tier
            bandwidth = network.bandwidth_bytes_per_s(tier, rates.link_bytes_per_s)[:, None]
            reduction[:, here] = share[None, here] / bandwidth
            latency[here] = 2 * (d[here] - 1) * network.latency_s(tier)
        step = rates.optimizer_s[:, None] if self.training else 0.0
        return reduction + step, latency * (self.numerics.gradient_bytes > 0)

    def quick_bound(self, times: LayerTimes, rates: Rates) -> FloatArray:
        """A cheap lower bound on the iteration time, (A,) seconds; infinite where nothing can fit in memory."""
        return quick_bound(self, times, rates)

    def iteration_s(self, times: LayerTimes, rates: Rates) -> FloatArray:
        """The least iteration time, (A,) seconds, exact for these layer times; infinite where nothing fits."""
        if not len(self.roomy.stages):
            return np.full(len(times.forward_s), np.inf)
        return Iterations(self, times, rates).solve()[0]

    def best(self, times: LayerTimes, rates: Rates) -> Plan | None:
        """The best plan of one architecture, or None where nothing fits."""
        if not len(self.roomy.stages):
            return None
        search = Iterations(self, times, rates)
        seconds, choice = search.solve()
        return search.plan(int(choice[0])) if np.isfinite(seconds[0]) else None
