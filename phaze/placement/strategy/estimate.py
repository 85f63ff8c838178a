"""From a strategy to the time and memory of an iteration, on one architecture of a cluster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from phaze.arrays import Floats
from phaze.cost.kernels.fitted import NO_OWN, Own
from phaze.cost.model import CostModel
from phaze.cost.optimizer import optimizer_s_per_parameter
from phaze.cost.rung import Rung
from phaze.errors import LEFT_OUT, OutOfTimeError
from phaze.hardware.derived import under_load
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.energy import ChainEnergy, Drivers
from phaze.placement.pipelines.chunks import Chunks
from phaze.placement.pipelines.held import held_peak
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.pipelines.simulation import pipeline_s, simulate
from phaze.placement.pipelines.timeline import Timeline
from phaze.placement.strategy.admissible import check, check_mode
from phaze.placement.strategy.breakdown import breakdown, busiest
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.exchange import Exchanges
from phaze.placement.strategy.figures import LayerFigures, foresee, layer_figures
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.iteration import Iteration, MemoryBreakdown
from phaze.placement.strategy.layouts import Layouts
from phaze.placement.strategy.load import Loads, boundary_bytes, loads
from phaze.placement.strategy.memory import StrategyMemory
from phaze.placement.strategy.needs import ChunkNeeds, GroupNeeds, recomputed
from phaze.placement.strategy.offload import Host, Traffic
from phaze.placement.strategy.operators import Costs
from phaze.placement.strategy.passes import group_passes
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.placement.strategy.tail import Held, TailRates, Tails, tails
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.work import LayerChain
from phaze.workload.workload import Workload

STATES = 1e5  # of one search for a schedule on cores, which starts from those of all layers together


@dataclass(frozen=True)
class Estimator:
    """Strategies of one workload on one architecture (`table` of one row) of a cluster, under a framework.

    What strategies share is kept. Of several architectures it knows the layers alone, and `each` of them, which then is
    a row `among` them. `laid_out`: what is known already that no architecture changes. Once the time of `effort` is
    over nothing is told any more: OutOfTimeError, so that no search goes on and no unfinished schedule is believed.
    """

    workload: Workload
    table: ArchitectureTable
    cluster: Cluster
    framework: Framework
    rung: Rung = Rung.ANALYTIC
    own: Own = field(default_factory=lambda: NO_OWN)
    effort: Effort = field(default_factory=lambda: Effort(lambda: inf, states=STATES))
    laid_out: Layouts | None = None
    among: tuple[Estimator, int] | None = None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def each(self) -> list[Estimator]:
        """One for each architecture: the same to the last bit as it is alone, but layers are worked out for all."""
        count = len(self.table)
        if count == 1:
            return [self]
        alone = (self.table.take(np.array([row])) for row in range(count))
        return [
            replace(self, table=one, laid_out=self.layouts, among=(self, row), _kept={})
            for row, one in enumerate(alone)
        ]

    @cached_property
    def loaded(self) -> ArchitectureTable:
        """The architecture at the clock that training leaves it."""
        return under_load(self.table)

    @cached_property
    def model(self) -> CostModel:
        """Operator costs on the architecture."""
        return CostModel(self.loaded, self.cluster.network, self.rung, self.own)

    @cached_property
    def costs(self) -> Costs:
        """Operators as the framework runs them."""
        links = np.asarray(self.loaded["link_bandwidth_bytes_per_s"], dtype=np.float64)
        return Costs(self.model, self.framework, links)

    @cached_property
    def layouts(self) -> Layouts:
        """What does not depend on the architecture."""
        told = self.framework.running(self.workload)
        return self.laid_out or Layouts(self.workload, self.cluster, told)

    @cached_property
    def rates(self) -> TailRates:
        """Bytes on the wire, and the speed of the optimizer."""
        step_s = optimizer_s_per_parameter(self.table, self.workload.numerics)
        return TailRates(*self.layouts.wire_bytes, float(step_s[0]))

    def figures(self, strategy: Strategy) -> LayerFigures:
        """What the layers take: the same for all strategies that agree in microbatch and sharding."""
        found = self._once(strategy)
        return self._joined(found) if strategy.joins_ends else found

    def _once(self, strategy: Strategy) -> LayerFigures:
        """The same where tied parameters count at both ends."""
        self._look_at_the_clock()
        selective = strategy.recompute is Recompute.SELECTIVE
        spared = strategy.kept | strategy.offloaded
        key = (strategy.microbatch, strategy.sharding, selective, spared)
        if key not in self._kept:
            self._kept[key] = self._figures(strategy)
        found: LayerFigures = self._kept[key]
        return found

    def _joined(self, figures: LayerFigures) -> LayerFigures:
        """Figures of a chain whose tied parameters count once."""
        key = "joined", id(figures)
        if key not in self._kept:
            chain = self.layouts.joined(figures.chain)
            self._kept[key] = figures if chain is figures.chain else replace(figures, chain=chain)
        found: LayerFigures = self._kept[key]
        return found

    def _figures(self, strategy: Strategy) -> LayerFigures:
        if self.among is not None:
            many, row = self.among
            return many._once(strategy).alone(row)
        chain, sharding = self.chain(strategy), strategy.sharding
        if sharding.whole:
            ends = (sharding.divided, sharding.undivided)
            divided, undivided = (self.figures(replace(strategy, sharding=one)) for one in ends)
            return divided.mixed(undivided, chain)
        spared = strategy.kept | strategy.offloaded
        found = layer_figures(chain, self.costs, self.loaded, self.effort, spared)
        return found.alone() if len(self.table) == 1 else found

    def _look_at_the_clock(self) -> None:
        if self.effort.left_s() <= 0:
            raise OutOfTimeError(LEFT_OUT)

    def passes(self, strategy: Strategy) -> Floats:
        """What groups of layers take in their passes, rows of `GroupPasses` (7, G), without exchanges of ZeRO."""
        figures = self.figures(strategy)
        key = "passes", id(figures), strategy.grain
        if key not in self._kept:
            self._kept[key] = group_passes(figures, self.division(strategy), self.framework)
        found: Floats = self._kept[key]
        return found

    def foresee(self, strategies: Sequence[Strategy]) -> None:
        """Cost the operators of some strategies together, which is faster than of one after the other.

        The least and most microbatches come first: their chains tell those between. Of one among many, for all of them.
        """
        if self.among is not None:
            self.among[0].foresee(strategies)
            return
        sizes = {s.microbatch for s in strategies}
        ends = (min(sizes), max(sizes)) if sizes else ()
        ordered = sorted(strategies, key=lambda s: s.microbatch not in ends)
        foresee([self.chain(strategy) for strategy in ordered], self.costs)

    def chain(self, strategy: Strategy) -> LayerChain:
        """The layers of the model as a device runs them."""
        return self.layouts.chain(strategy)

    def division(self, strategy: Strategy) -> Division:
        """The chunks of the model. Raises InputError where it has too few blocks."""
        self._look_at_the_clock()
        return self.layouts.division(strategy)

    def microbatches(self, strategy: Strategy) -> int:
        """Microbatches that each pipeline runs."""
        return self.layouts.microbatches(strategy)

    def placed(self, strategy: Strategy) -> list[list[int]]:
        """The chunks of every device of a pipeline."""
        s = strategy
        found: list[list[int]] = chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tolist()
        return found

    def loads(self, strategy: Strategy) -> Loads:
        """Seconds of one microbatch in every chunk; those of the strategy that was asked for last are kept."""
        last: tuple[Strategy, Loads] | None = self._kept.get("loads")
        if last is None or last[0] != strategy:
            figures, division = self.figures(strategy), self.division(strategy)
            rest = (self.exchanges(strategy), self.framework, self.rates.wire_bytes, self.traffic(strategy))
            last = self._kept["loads"] = strategy, loads(figures, division, *rest)
        return last[1]

    def traffic(self, strategy: Strategy) -> Traffic | None:
        """With the host, where the strategy leaves something to it."""
        if not strategy.offload:
            return None
        host, wire = Host.of(self.table, strategy), self.rates.wire_bytes
        needs, division = self.needs(strategy), self.division(strategy)
        return Traffic.of(host, needs, division, strategy, wire, hides=self.framework.hides_offload)

    def needs(self, strategy: Strategy) -> GroupNeeds:
        """What every group of layers holds on a device."""
        return self.layouts.needs(strategy)

    def memory(self, strategy: Strategy) -> tuple[MemoryBreakdown, ...]:
        """Bytes on every device of a pipeline."""
        s, division = strategy, self.division(strategy)
        needs = ChunkNeeds.of(self.needs(s), division, recomputed(division, s))
        memory = self.memory_of(s, needs)
        pipeline = (s.schedule, s.pipeline_parallel, self.microbatches(s), s.chunks)
        return memory.devices(chunks_of(s.schedule, s.pipeline_parallel, s.chunks), held_peak(*pipeline))

    def memory_of(self, strategy: Strategy, needs: ChunkNeeds) -> StrategyMemory:
        """Memory of a strategy whose chunks need so much."""
        return self.layouts.memory_of(strategy, needs)

    def iteration(self, strategy: Strategy) -> Iteration:
        """Time and memory of an iteration. Raises InputError where the cluster or the model do not allow it."""
        s, microbatches = strategy, self.microbatches(strategy)
        check(s, self.cluster, microbatches)
        check_mode(s, self.workload.mode)
        chain, found = self.figures(s).chain, self.loads(s)
        busy_s = pipeline_s(s.schedule, microbatches, s.pipeline_parallel, self._chunks(found))
        placed, tails = self.placed(s), self.tails_of(s)
        iteration_s = busy_s + tails.longest_s + self.framework.iteration_s
        device = busiest(found, placed)
        own, tail = placed[device], tails.of_device(device)
        iteration = Iteration(
            iteration_s=iteration_s,
            time=breakdown(found, own, s, microbatches, tail, iteration_s, self.framework),
            memory=self.memory(s),
            microbatches=microbatches,
            model_flops=chain.model_flops * (self.cluster.global_batch // s.microbatch),
        )
        if s.offload:
            Host.of(self.table, s).check(iteration)
        return iteration

    def host_capacity_bytes(self, strategy: Strategy) -> float:
        """What a device may leave to its host. Raises InputError where the architecture does not say."""
        return Host.of(self.table, strategy).memory_bytes if strategy.offload else inf

    def held(self, strategy: Strategy) -> Held:
        """Parameters and groups of layers of every device of a pipeline."""
        return self.layouts.held(strategy)

    def tails_of(self, strategy: Strategy) -> Tails:
        """What follows the last microbatch on every device of its pipeline, (1, p)."""
        found, placed = self.loads(strategy), np.array(self.placed(strategy))
        passes = (found.forward.pass_s[placed].sum(axis=1), found.turned_s[placed].sum(axis=1))
        return self.tails(self.exchanges(strategy), self.held(strategy), *passes)

    def tails(self, exchanges: Exchanges, held: Held, forward_s: Floats, turned_s: Floats) -> Tails:
        """What follows the last microbatch on devices whose passes of one take so long, (p,) or (V, p) each."""
        each, rates = exchanges.strategies, self.rates
        if any(s.offload for s in each):
            rates = replace(rates, optimizer_s=np.array([[self.step_s(s)] for s in each]))
        counts = [self.microbatches(s) for s in each]
        return tails(held, forward_s, turned_s, exchanges, self.framework, rates, counts)

    def chunks(self, strategy: Strategy) -> Chunks:
        """What its pipeline runs."""
        return self._chunks(self.loads(strategy))

    def timeline(self, strategy: Strategy) -> Timeline:
        """When every pass of one pipeline runs; what follows the last one is not in it."""
        s = strategy
        return simulate(s.schedule, self.microbatches(s), s.pipeline_parallel, self.chunks(s))

    def energy_j(self, strategy: Strategy, iteration: Iteration) -> float:
        """Joules of one iteration on all devices of the cluster."""
        s, chain = strategy, self.figures(strategy).chain
        division, index = self.division(s), np.array(chain.index)
        again = index[np.repeat(recomputed(division, s), division.sizes)]
        (many, row), key = self.among or (self, 0), ("energy", id(chain))
        if key not in many._kept:
            timed = TimedChain(chain, many.model, many.table)
            many._kept[key] = ChainEnergy(timed, self.cluster, self.workload.numerics)
        energy: ChainEnergy = many._kept[key]
        spent = Drivers(
            np.bincount(again, minlength=len(chain.layers))[None].astype(np.float64),
            np.array([float(s.data_parallel)]),
            np.array([float(boundary_bytes(chain, division).sum())]),
            np.array([iteration.iteration_s]),
            gathers=2.0 * iteration.microbatches if s.zero is Zero.WEIGHTS else 0.0,
        )
        return float(energy.energy_j(np.array([row]), spent)[0])

    def step_s(self, strategy: Strategy) -> float:
        """Seconds of the optimizer, on the device or its host, per parameter."""
        if not strategy.offload:
            return float(self.rates.optimizer_s)
        return Host.of(self.table, strategy).step_s(self.rates, strategy, self.workload.numerics)

    def exchanges(self, *strategies: Strategy) -> Exchanges:
        """Between their devices."""
        return self.layouts.exchanges(float(self.table["link_bandwidth_bytes_per_s"][0]), *strategies)

    def _chunks(self, found: Loads) -> Chunks:
        weight = np.minimum(found.backward.weight_s, found.turned_s)
        return Chunks(
            forward_s=found.forward.pass_s,
            input_gradient_s=found.turned_s - weight,
            weight_gradient_s=weight,
            transfer_s=found.transfer_s,
            blocking=not self.framework.hides_transfers,
        )
