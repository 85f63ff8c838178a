"""From layer times to the time of one iteration: data and pipeline degrees and stage cuts, optimised exactly.

One planner serves one chain (microbatch size and tensor width fixed), one recompute choice and one memory
capacity, for any number of architectures at once. Under 1F1B

    iteration = slots x max over stages(load) + max over stages(parameters) x rate + latency

with slots = ceil(m / d) + S - 1, a stage's load the sum of its layers' times plus the transfers at its two
ends, and rate = gradient reduction plus optimizer step per parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import Collective, collective_s, send_s
from phaze.placement.checker import Premises, check_plan
from phaze.placement.cluster import Cluster, FixedDegrees, Recompute
from phaze.placement.iterations import Iterations
from phaze.placement.memory import ChainMemory
from phaze.placement.options import NEVER_S, SCALE_OUT, SCALE_UP, Options, in_order, options, tier_of
from phaze.placement.plan import Plan
from phaze.placement.quick import Coefficients, coefficients, quick_bound
from phaze.scheduling.layers import LayerTimes
from phaze.solvers.placement.partition import (
    PartitionProblem,
    StageLimits,
    bottlenecks,
    fewest_stages,
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


@lru_cache(maxsize=256)
def least_weights(weights: tuple[float, ...], kinds: tuple[int, ...]) -> tuple[float, ...]:
    """Smallest possible largest sum of a stage, with at most 1..L stages (shared by all microbatch sizes)."""
    row = np.array([weights])
    layers = row.shape[1]
    anywhere = StageLimits(np.full((layers, layers), layers), None)
    problem = PartitionProblem(row, row, np.zeros((1, layers + 1)), anywhere, np.array(kinds))
    return tuple(bottlenecks(problem, range(1, layers + 1))[0].tolist())


@dataclass(frozen=True)
class Planner:
    """Placement of one chain on one cluster for architectures of one memory capacity."""

    chain: LayerChain
    numerics: Numerics
    cluster: Cluster
    recompute: Recompute
    memory_bytes: float
    fixed: FixedDegrees
    _coefficients: dict[float, list[Coefficients]] = field(default_factory=dict)

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
        o = self.options
        least = np.where(o.microbatches < o.stages, self._fewest(1), self._fewest(None))
        return o.take(o.stages >= least)

    def _fewest(self, in_flight: int | None) -> int:
        """Fewest stages that fit in memory; more than there are layers if nothing does."""
        return fewest_stages(self.memory.limits(in_flight)) or len(self.index) + 1

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
        return np.array(least_weights(tuple(self.parameters.tolist()), self.chain.index))

    def _per_layer(self, field: str) -> FloatArray:
        values = np.array([getattr(layer, field) for layer in self.chain.layers], dtype=np.float64)
        return values[self.index]

    @property
    def fits(self) -> bool:
        """Whether some placement fits in memory."""
        layers = np.zeros((1, len(self.chain.layers)))
        one = np.ones(1)
        return bool(np.isfinite(self.iteration_s(LayerTimes(layers, layers), Rates(one, one))[0][0]))

    def least_memory_bytes(self, precision: float = 1e-3) -> float:
        """Smallest memory with which some placement fits, to that relative precision; infinite without any degrees.

        What is returned fits.
        """
        if not len(self.options.stages):
            return float(np.inf)
        deepest = int(self.options.in_flight.max())
        low, last = 0.0, len(self.index) - 1
        high = max(self.memory.peak_bytes(0, last, deepest, recompute=redo) for redo in (False, True))
        while high - low > precision * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if replace(self, memory_bytes=middle).fits else (middle, high)
        return high

    # -- per architecture ------------------------------------------------------------------------------------

    def problem(
        self, times: LayerTimes, rates: Rates, pipeline_tier: int, in_flight: int | None
    ) -> PartitionProblem:
        """The partition problem of (A,) architectures when stages exchange tensors over one tier."""
        forward, backward = times.forward_s[:, self.index], times.backward_s[:, self.index]
        plain = forward + backward
        redo = plain + forward if self.recompute is Recompute.FULL else plain
        return PartitionProblem(
            plain,
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
        for code in (SCALE_UP, SCALE_OUT):
            here = chosen.data_tier == code
            bandwidth, latency_s = tier_of(self.cluster, code, rates.link_bytes_per_s)
            reduction[:, here] = np.minimum(send_s(share[None, here], bandwidth[:, None], 0.0), NEVER_S)
            latency[here] = 2 * (d[here] - 1) * latency_s
        step = rates.optimizer_s[:, None] if self.training else 0.0
        return reduction + step, latency * (self.numerics.gradient_bytes > 0)

    def coefficients(self, spare: float) -> list[Coefficients]:
        """Coefficients of the quick bound, kept per forward share."""
        if spare not in self._coefficients:
            self._coefficients[spare] = coefficients(self, spare)
        return self._coefficients[spare]

    def quick_bound(self, times: LayerTimes, rates: Rates) -> FloatArray:
        """A cheap lower bound on the iteration time, (A,) seconds; infinite where nothing can fit in memory."""
        return quick_bound(self, _finite(times), rates)

    def iteration_s(
        self, times: LayerTimes, rates: Rates, give_up_s: FloatArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """The least iteration time, (A,) seconds, exact for these layer times, and the option that reaches it.

        Infinite, with option -1, where nothing fits or `give_up_s` (A,) cannot be beaten.
        """
        if not len(self.roomy.stages):
            return np.full(len(times.forward_s), np.inf), np.full(len(times.forward_s), -1)
        return Iterations(self, _finite(times), rates).solve(give_up_s)

    def value(self, times: LayerTimes, rates: Rates, choice: IntArray) -> FloatArray:
        """Iteration time (A,) of a given option per architecture."""
        return Iterations(self, _finite(times), rates).value(choice)

    def best(self, times: LayerTimes, rates: Rates, give_up_s: float = np.inf) -> Plan | None:
        """The best plan of one architecture, checked, or None where nothing fits or gets below `give_up_s`.

        Raises PlanError where the plan does not stand the independent check: a defect of ours.
        """
        if not len(self.roomy.stages):
            return None
        search = Iterations(self, _finite(times), rates)
        seconds, choice = search.solve(np.array([give_up_s]))
        if not np.isfinite(seconds[0]):
            return None
        plan = search.plan(int(choice[0]))
        check_plan(plan, self.premises(times, rates))
        return plan

    def premises(self, times: LayerTimes, rates: Rates) -> Premises:
        """What the plan of the first architecture is checked against."""
        return Premises(
            chain=self.chain,
            forward_s=times.forward_s[0].tolist(),
            backward_s=times.backward_s[0].tolist(),
            numerics=self.numerics,
            cluster=self.cluster,
            memory_bytes=self.memory_bytes,
            link_bytes_per_s=float(rates.link_bytes_per_s[0]),
            optimizer_s=float(rates.optimizer_s[0]),
            fixed=self.fixed,
        )


def _finite(times: LayerTimes) -> LayerTimes:
    """Layer times that can be added up; a collective without links takes infinitely long."""
    return LayerTimes(np.minimum(times.forward_s, NEVER_S), np.minimum(times.backward_s, NEVER_S))
