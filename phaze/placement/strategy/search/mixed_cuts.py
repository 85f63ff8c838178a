"""Cuts for pipelines whose stages may be of different architectures, chosen together with these.

The program for mixed pipelines (`phaze.solvers.placement.mixed`) has what is linear: a stage has all microbatches to
pass, then its optimizer step. Where neither exchanges nor memory count, what it finds bounds all pipelines of its depth
with one chunk on each device. Cuts are those of the same program where every stage fits into the memory of its
architecture, as it is or with all of it recomputed; what they are worth the simulation tells.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Flags, Floats, Integers
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.memory import ranks_of
from phaze.placement.strategy.needs import ChunkNeeds
from phaze.placement.strategy.search.mixed_pipeline import Architectures
from phaze.placement.strategy.search.options import Depth, ShapeOptions
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.solvers.placement.mixed import Goal, MixedChain, line_bounds, place_mixed
from phaze.solvers.placement.mixed import Line as MixedLine
from phaze.solvers.placement.stage_costs import interval_sums


@dataclass(frozen=True)
class Line:
    """A pipeline of one chunk on each device, whose cuts are open; `bound`: what no choice of them is better than."""

    depth: Depth
    pipeline: Strategy
    problem: MixedLine
    bound: float


@dataclass(frozen=True)
class Cutting:
    """Pipelines of one shape on devices of some architectures (K,)."""

    options: ShapeOptions
    architectures: Architectures

    def lines(self, goal: Goal) -> list[Line]:
        """Every number of stages and replicas whose cuts are worth a look, with bounds."""
        deep = [(depth, one) for depth in self.options.depths for one in depth.pipelines]
        some = [(d, s) for d, s in deep if s.chunks == 1 < s.pipeline_parallel < len(self.options.blocks)]
        if not self.options.space.balances or len(self.architectures) < 2:
            return []
        problems = [self._line(strategy) for _, strategy in some]
        bounds = line_bounds(problems, goal).tolist()
        return [Line(d, s, *rest) for (d, s), *rest in zip(some, problems, bounds, strict=True)]

    def stages(self, line: Line, goal: Goal, most_s: float) -> tuple[int, ...]:
        """Blocks of every stage of the best plan of the program; empty where none fits or keeps `most_s`."""
        found = place_mixed([self._fitting(line.pipeline)], goal, most_s)
        return tuple(stage.last + 1 - stage.first for stage in found.stages)

    # -- without memory --------------------------------------------------------------------------------------

    def _line(self, strategy: Strategy) -> MixedLine:
        layouts, chips = self.options.layouts, self.architectures
        ranks = max(ranks_of(strategy)) if any(self._zeros(strategy)) else 1
        return MixedLine(
            chain=self._chain,
            stages=strategy.pipeline_parallel,
            slots=float(layouts.microbatches(strategy)),
            rate_s=chips.times.optimizer_s * layouts.framework.optimizer_stretch / ranks,
            latency_s=layouts.framework.iteration_s,
        )

    def _zeros(self, strategy: Strategy) -> tuple[Zero, ...]:
        return self.options.space.choices(strategy)[0]

    @cached_property
    def _chain(self) -> MixedChain:
        """Blocks with what comes before the first and after the last, whatever fits."""
        first, chips, count = self.options.blocks, self.architectures, len(self.options.blocks)
        inner = self._runs_s(self.options.again)
        sizes = self.options.layouts.sizes(self.options.shape)
        parameters = np.add.reduceat(sizes.parameters[0], [g for g, _ in self.options.division.groups])
        return MixedChain(
            inner_s=inner,
            last_s=inner[:, :, -1].copy(),
            deepest=np.full((1, count, count), count),
            group=np.zeros(len(chips), dtype=np.int64),
            weight=np.add.reduceat(parameters, first),
            power_w=chips.power_w,
        )

    def _runs_s(self, again: Flags) -> Floats:
        """Seconds of one microbatch in runs of blocks i..j, of which some kinds run again, (K, L, L)."""
        rows, (_, kinds) = self.architectures.times.rows, self.options.kinds
        seconds = (rows[:, 0] + rows[:, 2] + again * rows[:, 1])[:, kinds]
        return np.stack([interval_sums(one) for one in np.add.reduceat(seconds, self.options.blocks, axis=1)])

    # -- within memory ---------------------------------------------------------------------------------------

    def _fitting(self, strategy: Strategy) -> MixedLine:
        """The same with every architecture twice, as it is and with all blocks recomputed, where that is free."""
        line, chain, modes = self._line(strategy), self._chain, self._modes
        capacities, group = np.unique(self.architectures.capacity_bytes, return_inverse=True)
        loads = [self._runs_s(again) for again in modes]
        deepest = [self._deepest(strategy, again, capacities) for again in modes]
        inner, every = np.concatenate(loads), np.concatenate(deepest)
        groups = np.concatenate([group.ravel() + k * len(capacities) for k in range(len(modes))])
        last = np.where(every[groups][:, :, -1] >= 1, inner[:, :, -1], np.inf)
        power_w, rate_s = (np.tile(each, len(modes)) for each in (chain.power_w, line.rate_s))
        fitting = MixedChain(inner, last, every, groups, chain.weight, power_w)
        return replace(line, chain=fitting, rate_s=rate_s)

    @cached_property
    def _modes(self) -> list[Flags]:
        """Kinds of groups that run again: as the shape has it, and all blocks where as few as need be do."""
        shape, (first, which) = self.options.shape, self.options.kinds
        if shape.recompute is not Recompute.FULL or shape.recomputed is None:
            return [self.options.again]
        every = np.zeros(len(first), dtype=np.bool_)
        every[which[np.array(self.options.division.body)]] = True
        return [self.options.again, every]

    def _deepest(self, strategy: Strategy, again: Flags, capacities: Floats) -> Integers:
        """The largest index from the end at which runs of blocks i..j fit into each memory, (G, L, L).

        Under 1F1B, which holds as many microbatches as there are stages to the end; ranks divide what they may.
        """
        layouts, count = self.options.layouts, len(self.options.blocks)
        memory = layouts.memory_of(replace(strategy, zero=max(self._zeros(strategy))), self._needs(again))
        own = np.arange(count * count)[:, None]
        kept, working = memory.activations_bytes(own, np.ones((count * count, 1, 1)))
        room = capacities[:, None] - (memory.fixed_bytes(own) + working)
        most = np.divide(room, kept, out=np.full_like(room, np.inf), where=kept > 0)
        held = np.where(room < 0, 0.0, np.where(most >= layouts.microbatches(strategy), count, most))
        return np.minimum(held, count).astype(np.int64).reshape(len(capacities), count, count)

    def _needs(self, again: Flags) -> ChunkNeeds:
        """What runs of blocks i..j keep, (L L,)."""
        layouts, (_, which) = self.options.layouts, self.options.kinds
        apart = replace(self.options.shape, pipeline_parallel=len(self.options.blocks), stages=())
        division = layouts.division(apart)
        each = ChunkNeeds.of(layouts.needs(apart), division, again[which] & np.array(division.body))
        largest = {"working_bytes", "largest", "widest_bytes"}
        runs = {f.name: getattr(each, f.name) for f in fields(ChunkNeeds)}
        return ChunkNeeds(
            **{
                n: (interval_maxima if n in largest else interval_sums)(one).ravel()
                for n, one in runs.items()
            }
        )


def interval_maxima(values: Floats) -> Floats:
    """Largest of values[i..j] at [i, j], none of them negative."""
    found: Floats = np.maximum.accumulate(
        np.triu(np.broadcast_to(values, (len(values), len(values)))), axis=1
    )
    return found
