"""Bounds of strategies that fit in memory: exact loads, but for exchanges whose hiding has to be simulated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.placement.pipelines.bounds import pipeline_bound_s
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.load import Wire, Wires, boundary_bytes, wires
from phaze.placement.strategy.memory import recomputed
from phaze.placement.strategy.search.bound import busy_bound_s
from phaze.placement.strategy.search.passes import ChunkPasses, GroupPasses
from phaze.placement.strategy.strategy import Strategy
from phaze.placement.strategy.tail import Held

Floats = NDArray[np.float64]
_LONG_S = 1e30  # computation that any exchange hides behind


@dataclass(frozen=True)
class Refinement:
    """Strategies (V,) that differ in recomputed blocks, ZeRO and order alone, and hold one division."""

    estimator: Estimator
    strategies: tuple[Strategy, ...]

    def bounds_s(self) -> Floats:
        """At most their iteration times, (V,)."""
        e, first = self.estimator, self.strategies[0]
        own = chunks_of(first.schedule, first.pipeline_parallel, first.chunks)
        passes, microbatches = self._passes(), e.microbatches(first)
        chunks = passes.pipeline(self._transfers_s())
        busy_s = busy_bound_s(first.schedule, first.pipeline_parallel, passes, microbatches)
        exact = np.array([self._exact(s) for s in self.strategies])
        if exact.any():
            told_s = pipeline_bound_s(first.schedule, microbatches, first.pipeline_parallel, chunks)
            busy_s = np.where(exact, np.maximum(busy_s, told_s), busy_s)
        forward_s, turned_s = chunks.forward_s[:, own].sum(axis=2), chunks.backward_s[:, own].sum(axis=2)
        held = e.held(first)
        rest_s = [
            (self._tail_s if exactly else self._least_tail_s)(s, held, forward_s[row], turned_s[row])
            for row, (s, exactly) in enumerate(zip(self.strategies, exact.tolist(), strict=True))
        ]
        return busy_s + rest_s + e.framework.iteration_s

    def rest_s(self) -> Floats:
        """At most what iterations take beyond pipelines without exchanges of ZeRO, (V,), whatever is recomputed."""
        e, first = self.estimator, self.strategies[0]
        own = chunks_of(first.schedule, first.pipeline_parallel, first.chunks)
        each, held, none = (
            e.microbatches(first) // first.schedule.weight_copies,
            e.held(first),
            np.zeros(len(own)),
        )
        found = np.array([self._least_tail_s(s, held, none, none) for s in self.strategies])
        if not e.framework.hides_gathers and e.framework.launches_add_up:
            exchanged = np.array([self._exchanged_s(s).sum(axis=0) for s in self.strategies])
            found += each * exchanged[:, own].sum(axis=2).min(axis=1)
        if not e.framework.hides_offload and e.framework.launches_add_up:
            found += each * self._moved_s().sum(axis=1)[:, own].sum(axis=2).min(axis=1)
        return found + e.framework.iteration_s

    def _exact(self, strategy: Strategy) -> bool:
        """Whether the loads are."""
        moves = wires(strategy, self.estimator.framework, self.estimator.rates.wire_bytes)
        hides = self.estimator.framework.hides_gathers and moves != (Wire(), Wire())
        return not hides and not (strategy.offload and self.estimator.framework.hides_offload)

    def _tail_s(self, strategy: Strategy, held: Held, forward_s: Floats, turned_s: Floats) -> float:
        """What follows the last microbatch."""
        return float(self.estimator.tails(strategy, held, forward_s, turned_s).total_s.max())

    def _least_tail_s(self, strategy: Strategy, held: Held, forward_s: Floats, turned_s: Floats) -> float:
        """The least where passes may be longer: with those that hide most of it, or least."""
        said, long_s = self.estimator.framework, np.full(len(forward_s), _LONG_S)
        total_s = self.estimator.tails(strategy, held, forward_s, turned_s).total_s
        if said.hides_reduction or said.hides_gathers:
            total_s = np.minimum(total_s, self.estimator.tails(strategy, held, long_s, long_s).total_s)
        return float(total_s.max())

    def _passes(self) -> ChunkPasses:
        division = self._division
        again = np.array([recomputed(division, s) for s in self.strategies])
        first = np.broadcast_to(division.first_groups, (len(again), len(division.first_groups)))
        figures, framework = self.estimator.figures(self.strategies[0]), self.estimator.framework
        groups = GroupPasses.of([figures], division, framework).repeated(len(again))
        passes = groups.chunks(first, again, framework)
        added, moved = np.array([self._exchanged_s(s) for s in self.strategies]), self._moved_s()
        if not added.any() and not moved.any():
            return passes
        beside = np.array([passes.device_s[0], passes.device_s[1] + passes.device_s[2]]).transpose(1, 0, 2)
        if framework.hides_gathers:
            added = np.maximum(added - beside, 0.0)
        added = np.maximum(added, moved - beside) if framework.hides_offload else added + moved
        return passes.beside(added[:, 0], added[:, 1])

    def _moved_s(self) -> Floats:
        """Seconds of transfers with hosts in forward and backward of every chunk, (V, 2, C); hidden ones at least."""
        found = np.zeros((len(self.strategies), 2, len(self._division.chunks)))
        for row, strategy in enumerate(self.strategies):
            if (traffic := self.estimator.traffic(strategy)) is not None:
                found[row] = traffic.least_s()
        return found

    def _exchanged_s(self, strategy: Strategy) -> Floats:
        """Seconds of the exchanges of ZeRO in forward and backward of every chunk, (2, C); hidden ones at least."""
        e, first_groups = self.estimator, self._division.first_groups
        found = np.zeros((2, len(first_groups)))
        moving = Wires(e.figures(strategy), self._division, e.exchanges(strategy), e.framework)
        for row, wire in enumerate(wires(strategy, e.framework, e.rates.wire_bytes)):
            if wire != Wire():
                gathers, reductions = moving.groups_s(wire)
                found[row] = np.add.reduceat(gathers + reductions, first_groups)
        return found

    def _transfers_s(self) -> Floats:
        """From each chunk to the next, (V, C - 1)."""
        e, first = self.estimator, self.strategies[0]
        sent = boundary_bytes(e.figures(first).chain, self._division)
        scatters = e.framework.scatters_transfers
        each = {s.order: e.exchanges(s).transfer_s(sent, scatters) for s in self.strategies}
        return np.array([each[s.order] for s in self.strategies])

    @property
    def _division(self) -> Division:
        return self.estimator.division(self.strategies[0])
