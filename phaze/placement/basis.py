"""What the placement of a chain rests on: degrees, memory, transfers and rates, before any is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import collective_s, send_s
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.memory import ChainMemory
from phaze.placement.options import NEVER_S, SCALE_UP, Options, in_order, options, tier_of
from phaze.scheduling.layers import LayerTimes
from phaze.solvers.placement.partition import (
    PartitionProblem,
    StageLimits,
    bottlenecks,
)
from phaze.workload.work import Collective, LayerChain
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


@lru_cache(maxsize=256)
def least_weights(weights: tuple[float, ...], kinds: tuple[int, ...]) -> tuple[float, ...]:
    """Smallest possible largest sum of a stage, with at most 1..L stages (shared by all microbatch sizes)."""
    row = np.array([weights])
    layers = row.shape[1]
    anywhere = StageLimits(np.full((layers, layers), layers), None)
    problem = PartitionProblem(row, row, np.zeros((1, layers + 1)), anywhere, np.array(kinds))
    return tuple(bottlenecks(problem, range(1, layers + 1))[0].tolist())


@dataclass(frozen=True)
class Basis:
    """One chain on one cluster, one recompute choice, for architectures of one memory capacity."""

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
        return self.options.take(self.options.stages >= self.fewest_stages(self.memory))

    @property
    def most_held(self) -> int:
        """The most microbatches that a stage of any option holds at once."""
        o = self.options
        return int((o.microbatches if self.memory.keeps_cache else o.in_flight).max(initial=1))

    def fewest_stages(self, memory: ChainMemory) -> IntArray:
        """Stages that each option needs at least to fit, (O,); more than there are layers if nothing does."""
        o = self.options
        held = o.microbatches if memory.keeps_cache else np.where(o.microbatches < o.stages, 1, 0)
        counts, which = np.unique(held, return_inverse=True)
        none = len(self.index) + 1
        fewest = [memory.fewest_stages(n or None) or none for n in counts.tolist()]
        return np.array(fewest, dtype=np.int64)[which]

    @property
    def recomputes_everywhere(self) -> bool:
        """Whether the last stage recomputes as well: where full recompute is asked for, as frameworks do it.

        Otherwise the last stage recomputes only if it must.
        """
        return self.fixed.recompute is Recompute.FULL

    @cached_property
    def memory(self) -> ChainMemory:
        """Bytes of every layer, and where stages fit."""
        saved, inputs, working = map(self._per_layer, ("saved_bytes", "input_bytes", "working_bytes"))
        if self.recomputes_everywhere:  # as if layers kept nothing but inputs, and worked on the rest
            saved, working = inputs, working + saved
        return ChainMemory(
            static_bytes=self.parameters * self.numerics.state_bytes,
            saved_bytes=saved,
            input_bytes=inputs,
            working_bytes=working,
            cache_bytes=self._per_layer("cache_bytes"),
            memory_bytes=self.memory_bytes,
            recompute=self.recompute is Recompute.FULL and not self.recomputes_everywhere,
            keeps_cache=self.chain.keeps_cache,
        )

    @cached_property
    def least_weight(self) -> FloatArray:
        """Smallest possible largest stage, in parameters, with at most S = 1..L stages, memory aside, (L,)."""
        return np.array(least_weights(tuple(self.parameters.tolist()), self.chain.index))

    def _per_layer(self, field: str) -> FloatArray:
        values = np.array([getattr(layer, field) for layer in self.chain.layers], dtype=np.float64)
        return values[self.index]

    # -- per architecture ------------------------------------------------------------------------------------

    def problem(
        self, times: LayerTimes, rates: Rates, pipeline_tier: int, in_flight: int | None
    ) -> PartitionProblem:
        """The partition problem of (A,) architectures when stages exchange tensors over one tier."""
        forward, backward = times.forward_s[:, self.index], times.backward_s[:, self.index]
        plain = forward + backward
        redo = plain + forward if self.recompute is Recompute.FULL else plain
        return PartitionProblem(
            redo if self.recomputes_everywhere else plain,
            redo,
            self.boundaries(rates, pipeline_tier),
            self.memory.limits(in_flight),
            self.index,
            exactly=self._exactly(rates),
        )

    def _exactly(self, rates: Rates) -> bool:
        """Whether a number of stages is to be taken literally, at some cost.

        At most so many is as good where fewer are an option of their own that costs no more.
        """
        return self.fixed.pipeline_parallel is not None or not in_order(self.cluster, rates.link_bytes_per_s)

    def boundaries(self, rates: Rates, pipeline_tier: int) -> FloatArray:
        """Seconds per microbatch that a cut before layer i costs each of the two stages it separates, (A, L+1).

        The group's devices send 1/t of the tensor each and gather the rest inside the group (Narayanan et al.,
        SC'21, section 4.1); in training the gradient comes back the same way. Charged at both ends, never
        hidden: each stage sends one way and receives (with the gather) the other way.
        """
        seconds = np.zeros((len(rates.link_bytes_per_s), len(self.index) + 1))
        cut_bytes = self._per_layer("output_bytes")[None, :-1]
        seconds[:, 1:-1] = self.transfer_s(cut_bytes, rates, pipeline_tier)
        return seconds

    def transfer_s(self, cut_bytes: FloatArray, rates: Rates, pipeline_tier: int) -> FloatArray:
        """What a cut with tensors of these bytes (broadcast against (A, 1)) costs a stage, in seconds."""
        width, links = self.chain.tensor_parallel, rates.link_bytes_per_s
        bandwidth, latency_s = tier_of(self.cluster, pipeline_tier, links)
        inside, inside_latency_s = tier_of(self.cluster, SCALE_UP, links)
        send = send_s(cut_bytes / width, bandwidth[:, None], latency_s)
        gather = collective_s(Collective.ALL_GATHER, cut_bytes, width, inside[:, None], inside_latency_s)
        seconds: FloatArray = np.minimum(send * (2 if self.training else 1) + gather, NEVER_S)
        return seconds

    def least_transfer_s(self, rates: Rates, pipeline_tier: int) -> FloatArray:
        """What the cheapest cut costs a stage, (A,)."""
        smallest = self._per_layer("output_bytes")[:-1].min(initial=np.inf, keepdims=True)
        if not np.isfinite(smallest[0]):
            return np.zeros(len(rates.link_bytes_per_s))
        return self.transfer_s(smallest[None, :], rates, pipeline_tier)[:, 0]

    def weight_rates(self, rates: Rates, chosen: Options) -> tuple[FloatArray, FloatArray]:
        """(A, O) seconds per parameter of the largest stage, and (O,) latency of the gradient reduction.

        Ring all-reduce of the gradients, 2 (d - 1) / d of their bytes, then the optimizer step.
        """
        d = chosen.data_parallel
        share = 2 * (d - 1) / d * self.numerics.gradient_bytes
        reduction = np.zeros((len(rates.optimizer_s), len(d)))
        latency = np.zeros(len(d))
        for code in range(len(self.cluster.network.tiers)):
            here = chosen.data_tier == code
            bandwidth, latency_s = tier_of(self.cluster, code, rates.link_bytes_per_s)
            reduction[:, here] = np.minimum(send_s(share[None, here], bandwidth[:, None], 0.0), NEVER_S)
            latency[here] = 2 * (d[here] - 1) * latency_s
        step = rates.optimizer_s[:, None] if self.training else 0.0
        return reduction + step, latency * (self.numerics.gradient_bytes > 0)
