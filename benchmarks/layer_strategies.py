"""Strategies of every block on the devices of one stage: data, tensor, sharding and recompute (Galvatron, 2211.13878).

A layer on G devices divides its work among ds replicas of tensor groups of t devices, ds t = G; replicas keep weights
whole or divide them (ZeRO 3), and a block recomputes or not. Where the width changes, samples are dealt anew
between two layers, both ways for every microbatch. Seconds add up over layers, so that the exact program over
layers (`choose_layers`) decides:

    seconds = sum of m max(forward, gather) + m max(backward + again, gather + reduction)          divided
            = sum of m (forward + backward + again) + (reduction - backward)+ + (gather - forward)+   whole
            + optimizer + m (changes of width),

where hidden exchanges of a layer hide behind its own passes alone. It is the plan model's own passes, bytes and
collectives, but a sum: what it tells is how much widths by layer can gain over one width, by the same formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from phaze.solvers.layerwise import Axis, LayerProblem, LayerResult, LayerStrategy, choose_layers

from phaze.arrays import Flags, Floats
from phaze.cost.collectives.collective_times import fastest_s
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Collective

MOST_LOCAL = 32
"""Samples of a microbatch on one tensor group, as in the spaces of plans."""

MOST_LABELS = 20_000
"""Pairs of bytes and seconds in one choice; where there are more, its lower bound tells what is left to gain."""


@dataclass(frozen=True)
class LayerCostRow:
    """What all blocks take under one strategy, (G,) each: seconds of an iteration, bytes kept, bytes while one runs."""

    time_s: Floats
    kept_bytes: Floats
    working_bytes: Floats


@dataclass(frozen=True)
class LayerWidths:
    """The choice on all devices of an estimator's cluster as one stage, `microbatches` one after the other."""

    estimator: Estimator
    microbatches: int
    capacity_bytes: float

    @cached_property
    def strategies(self) -> tuple[LayerStrategy, ...]:
        """Ways to divide a layer whose microbatch has whole samples for every tensor group; narrow ones first."""
        e, found = self.estimator, []
        devices = e.cluster.devices
        for width in e.workload.tensor_parallel_divisors(min(e.cluster.network.scale_up_devices, devices)):
            ranks, rest = divmod(devices, width)
            samples, left = divmod(self.samples, ranks)
            if rest or left or not 0 < samples <= MOST_LOCAL:
                continue
            for axis in (Axis.DATA, Axis.SHARDED)[: 1 + (ranks > 1)]:
                levels = tuple((a, n) for a, n in ((axis, ranks), (Axis.TENSOR, width)) if n > 1)
                found += [LayerStrategy(1, levels, again) for again in (False, True)]
        return tuple(found)

    @property
    def samples(self) -> int:
        """Samples of a microbatch, on all devices together; none where the batch has no such part."""
        samples, rest = divmod(self.estimator.cluster.global_batch, self.microbatches)
        return 0 if rest else samples

    def plan(self, strategy: LayerStrategy) -> ParallelPlan:
        """The plan that has one strategy for all layers."""
        width, ranks = _shape(strategy)
        sequence = width > 1 and self.estimator.workload.sequence_length is not None
        zero = Zero.WEIGHTS if strategy.degree(Axis.SHARDED) > 1 else Zero.OPTIMIZER
        return ParallelPlan(
            self.samples // ranks,
            ranks,
            sharding=Sharding(width, sequence),
            zero=zero if ranks > 1 else Zero.NONE,
            recompute=Recompute.FULL if strategy.recompute else Recompute.NONE,
        )

    def chosen(self, able: Sequence[int] | None = None) -> LayerResult | None:
        """The fastest choice among some strategies, or all; None where nothing fits.

        One limit after the other on what a layer takes while it runs, since that grows with what is kept the least.
        """
        best: LayerResult | None = None
        chosen = np.isin(np.arange(len(self.strategies)), list(able or range(len(self.strategies))))
        working = np.array([row.working_bytes for row in self._rows])
        for limit in np.unique(working[chosen].max(axis=1)).tolist():
            fits = (working <= limit) & chosen[:, None]
            if limit < self.capacity_bytes and fits.any(axis=0).all():
                found = choose_layers(self._problem(fits, self.capacity_bytes - limit), MOST_LABELS)
                if found.strategies and (best is None or found.time_s < best.time_s):
                    best = found
        return best

    def uniform_s(self) -> float:
        """Seconds of the fastest strategy that all layers have; infinite where none fits."""
        each = (self.chosen([number]) for number in range(len(self.strategies)))
        return min((one.time_s for one in each if one is not None), default=np.inf)

    def one_width_s(self) -> float:
        """Seconds of the fastest choice in which all layers have one width; infinite where none fits."""
        widths: dict[int, list[int]] = {}
        for number, strategy in enumerate(self.strategies):
            widths.setdefault(strategy.degree(Axis.TENSOR), []).append(number)
        each = map(self.chosen, widths.values())
        return min((one.time_s for one in each if one is not None), default=np.inf)

    # -- what layers take

    @cached_property
    def _rows(self) -> list[LayerCostRow]:
        return [self._row(strategy) for strategy in self.strategies]

    def _problem(self, fits: Flags, limit_bytes: float) -> LayerProblem:
        time_s = np.array([row.time_s for row in self._rows]).T
        kept = np.array([row.kept_bytes for row in self._rows]).T
        return LayerProblem(np.where(fits.T, time_s, np.inf), kept, self._change_s, limit_bytes)

    def _row(self, strategy: LayerStrategy) -> LayerCostRow:
        e, plan = self.estimator, self.plan(strategy)
        rows, need = e.passes(plan), e.memory_footprint(plan)
        forward, again, backward = np.maximum(rows[:3], rows[3:6])
        backward = backward + again * strategy.recompute
        state, ranks = e.layouts.parameter_bytes, plan.replicas
        divided = need.parameters / ranks
        whole = divided if plan.zero is Zero.WEIGHTS else need.parameters
        kept = whole * (state.weight + state.gradient) + divided * state.optimizer
        kept += need.scaled_bytes + need.frozen_bytes
        saved = need.spared_bytes if strategy.recompute else need.saved_bytes
        working = need.working_bytes + need.again_bytes * strategy.recompute
        working = working + 2 * need.parameters * state.weight * (plan.zero is Zero.WEIGHTS)
        seconds = self._passes_s(plan, forward, backward, need.parameters)
        return LayerCostRow(seconds + divided * e.rates.optimizer_s, kept + saved, working)

    def _passes_s(self, plan: ParallelPlan, forward: Floats, backward: Floats, parameters: Floats) -> Floats:
        """Passes of all microbatches with the exchanges that do not hide behind them."""
        e, m = self.estimator, self.microbatches
        exchanges, wire = e.exchanges(plan), e.rates.wire_bytes
        gather, reduce = (
            exchanges.gather_s(parameters * wire[0])[0],
            exchanges.reduce_s(parameters * wire[1])[0],
        )
        found: Floats = m * (forward + backward)
        if plan.zero is Zero.NONE:
            return found
        if plan.zero is Zero.WEIGHTS and e.framework.hides_gathers:
            found = m * (np.maximum(forward, gather) + np.maximum(backward, gather + reduce))
        elif plan.zero is Zero.WEIGHTS:
            found = found + m * (2 * gather + reduce)
        else:
            found = found + (np.maximum(reduce - backward, 0) if e.framework.hides_reduction else reduce)
            found = found + (np.maximum(gather - forward, 0) if e.framework.hides_gathers else gather)
        return found

    @cached_property
    def _change_s(self) -> Floats:
        """Seconds of an iteration in which samples are dealt anew between two blocks, (G, S, S)."""
        strategies, sizes = self.strategies, self._boundary_bytes
        found = np.zeros((len(sizes) + 1, len(strategies), len(strategies)))
        known: dict[tuple[int, int], Floats] = {}
        for a, one in enumerate(strategies):
            for b, other in enumerate(strategies):
                narrow, wide = sorted((one.degree(Axis.TENSOR), other.degree(Axis.TENSOR)))
                if narrow < wide:
                    if (narrow, wide) not in known:
                        known[narrow, wide] = np.array([self._dealt_s(size, narrow, wide) for size in sizes])
                    found[1:, a, b] = self.microbatches * known[narrow, wide]
        return found

    def _dealt_s(self, sample_bytes: float, narrow: int, wide: int) -> float:
        """One tensor between layers in narrow groups and layers in wide ones, forward and its gradient backward.

        Where sequences are divided every device has its share of all tokens before and after, dealt anew among those
        of a wide group. Otherwise a wide group has all samples of its narrow ones: put together one way, and a choice
        of what is there the other way.
        """
        e, ratio = self.estimator, wide // narrow
        held = sample_bytes * self.samples * wide / e.cluster.devices  # of a wide group
        among = e.cluster.network, e.loaded["link_bandwidth_bytes_per_s"], ratio, narrow
        if e.workload.sequence_length is not None:
            return 2 * float(fastest_s(Collective.ALL_TO_ALL, held / wide, *among)[0])
        return float(fastest_s(Collective.ALL_GATHER, held, *among)[0])

    @property
    def _boundary_bytes(self) -> list[float]:
        """Bytes of one sample that come to every block but the first from the one ahead."""
        plan = self.plan(self.strategies[0])
        chain, division = self.estimator.chain(plan), self.estimator.division(plan)
        sent = [chain.layers[chain.index[first - 1]].output_bytes for first, _ in division.groups[1:]]
        return [size / plan.microbatch for size in sent]


def _shape(strategy: LayerStrategy) -> tuple[int, int]:
    """Width, and replicas of it."""
    return strategy.degree(Axis.TENSOR), strategy.degree(Axis.DATA) * strategy.degree(Axis.SHARDED)


def layer_widths(estimator: Estimator, capacity_bytes: float) -> Iterator[LayerWidths]:
    """The choices of an estimator's cluster for every number of microbatches that is a power of two and leaves some."""
    for power in range(estimator.cluster.global_batch.bit_length()):
        some = LayerWidths(estimator, 1 << power, capacity_bytes)
        if some.samples and some.strategies:
            yield some
