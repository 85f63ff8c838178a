"""One pipeline with its stages cut, on many architectures: what it exchanges, holds and fits, bounds and times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from phaze.arrays import Floats, Integers, Rows
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of
from phaze.parallel.pipelines.pipeline_simulation import pipelines_s
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.gradient_sync import GradientSyncs, GradientSyncWork
from phaze.parallel.training.exchanges.weight_prefetch import Groups
from phaze.parallel.training.memory.memory_footprint import recomputed_groups
from phaze.parallel.training.stage_times import (
    ChunkPasses,
    ZeroExchanges,
    ZeroTraffic,
    boundary_bytes,
    zero_traffic,
)
from phaze.solvers.looks import Look, wanted
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class GroupTimes:
    """Passes of kinds of groups (A, 7, K), rows as of `GroupPasses`, and seconds of a step per parameter, (A,)."""

    rows: Floats
    optimizer_s: Floats

    def take(self, at: Rows) -> GroupTimes:
        """Some of the architectures."""
        return GroupTimes(self.rows[at], self.optimizer_s[at])

    def __len__(self) -> int:
        """Architectures."""
        return len(self.rows)

    @cached_property
    def terms(self) -> Floats:
        """Terms of linear forms, (3 K + 2, A): forward, recomputation and backward of every kind, a step, and 1."""
        passes = self.rows[:, :3].reshape(len(self.rows), -1)
        return np.concatenate([passes, self.optimizer_s[:, None], np.ones((len(passes), 1))], axis=1).T


@dataclass(frozen=True)
class PipelineCommunication:
    """Communication of a pipeline between devices whose links have one bandwidth, under every choice of ZeRO and order.

    Choices (V,) are those of ZeRO and of neighbours. Schedules that place chunks alike exchange alike.
    """

    options: ShapeOptions
    plan: ParallelPlan
    link_bytes_per_s: float

    @cached_property
    def choices(self) -> tuple[ParallelPlan, ...]:
        """Plans under each choice of ZeRO stage and rank order, (V,)."""
        zeros, orders = self.options.space.choices(self.plan)
        return tuple(replace(self.plan, zero=z, order=o) for z, o in product(zeros, orders))

    @cached_property
    def division(self) -> Division:
        """The layers of every chunk."""
        return self.options.layouts.division(self.plan)

    @cached_property
    def gradient_sync_work(self) -> GradientSyncWork:
        """Exchanges and optimizer step after the last microbatch, before anything hides them, (V, p)."""
        layouts, each = self.options.layouts, self.choices
        counts = [layouts.microbatches(self.plan)] * len(each)
        held, which = layouts.device_parameters(self.plan).distinct
        work = GradientSyncWork.of(held, self._exchanges, layouts.framework, layouts.wire_bytes, counts)
        return work.on(which)

    @cached_property
    def _exchanges(self) -> Communication:
        """Communication between the devices of each choice."""
        return self.options.layouts.exchanges(self.link_bytes_per_s, *self.choices)

    @cached_property
    def transfer_s(self) -> Floats:
        """Seconds of a transfer from each chunk to the next, (V, C - 1)."""
        layouts = self.options.layouts
        cut, which = np.unique(boundary_bytes(self.options.chain, self.division), return_inverse=True)
        seconds: Floats = self._exchanges.transfer_s(cut, layouts.framework.scatters_transfers)
        return seconds[:, which]

    @cached_property
    def moved(self) -> Floats:
        """Gathers and reductions of every group in forward, then in backward, (4, V, G): what ZeRO exchanges."""
        layouts, each = self.options.layouts, self.choices
        both = [zero_traffic(s, layouts.framework, layouts.wire_bytes) for s in each]
        found = np.zeros((4, len(each), len(self.division.groups)))
        busy = [v for v, one in enumerate(both) if one != (ZeroTraffic(), ZeroTraffic())]
        if busy:
            exchanges = layouts.exchanges(self.link_bytes_per_s, *(each[v] for v in busy))
            moving = ZeroExchanges(
                *layouts.sizes(self.plan).sizes(self.plan.grain), exchanges, layouts.framework
            )
            for turned in (0, 1):
                found[2 * turned : 2 * turned + 2, busy] = moving.groups_s([both[v][turned] for v in busy])
        return found

    @cached_property
    def counts(self) -> Floats:
        """Groups of each kind in every chunk, (C, K)."""
        return self.counted(np.ones(len(self.division.groups)))

    def counted(self, times: Floats) -> Floats:
        """Groups of each kind in every chunk, each as often as said, (C, K)."""
        first, which = self.options.kinds
        return np.add.reduceat(np.eye(len(first))[which] * times[:, None], self.division.first_groups, axis=0)


@dataclass(frozen=True)
class CutPipeline:
    """A pipeline under one schedule on architectures whose links have one bandwidth."""

    options: ShapeOptions
    plan: ParallelPlan
    exchanged: PipelineCommunication

    @classmethod
    def of(cls, options: ShapeOptions, plan: ParallelPlan, link_bytes_per_s: float) -> CutPipeline:
        """Cut pipeline of a plan; what it exchanges is kept with the options of its shape."""
        s = plan
        place = chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tobytes()
        staggered = s.schedule if s.schedule in (Schedule.INTERLEAVED, Schedule.BREADTH_FIRST) else None
        key = (
            *(place, staggered, s.joins_ends, s.schedule.weight_copies),
            *(s.pipeline_parallel, s.chunks, s.data_parallel, s.stages, link_bytes_per_s),
        )
        if key not in options.kept:
            options.kept[key] = PipelineCommunication(options, s, link_bytes_per_s)
        return cls(options, s, options.kept[key])

    @cached_property
    def microbatches(self) -> int:
        """Microbatches of one pipeline."""
        return self.options.layouts.microbatches(self.plan)

    @cached_property
    def own(self) -> Integers:
        """Chunks of every device, (p, slots)."""
        s = self.plan
        return chunks_of(s.schedule, s.pipeline_parallel, s.chunks)


@dataclass(frozen=True)
class FittedPlan:
    """A plan that fits: a choice of a pipeline, with what it recomputes."""

    pipeline: CutPipeline
    plan: ParallelPlan

    @cached_property
    def choice(self) -> int:
        """The number of what ranks divide and of neighbours among the choices of its pipeline."""
        each = self.pipeline.exchanged.choices
        return [(one.zero, one.order) for one in each].index((self.plan.zero, self.plan.order))

    @property
    def rank(self) -> tuple[object, ...]:
        """Rank by which equally fast plans are ordered: fewer devices and stages first."""
        s = self.plan
        return s.devices, s.pipeline_parallel, s.chunks, s.schedule, s.stages, self.choice

    @cached_property
    def recomputation(self) -> Floats:
        """Groups that run again, (G,)."""
        return recomputed_groups(self.pipeline.exchanged.division, self.plan).astype(np.float64)

    @cached_property
    def gradient_sync_work(self) -> GradientSyncWork:
        """Exchanges and optimizer step after its last microbatch, before anything hides them, (1, p)."""
        return self.pipeline.exchanged.gradient_sync_work.take(slice(self.choice, self.choice + 1))

    @cached_property
    def _moves(self) -> bool:
        """Whether ZeRO exchanges anything in the passes of microbatches."""
        return bool(self.pipeline.exchanged.moved[:, self.choice].any())

    def iteration_s(self, times: GroupTimes) -> Floats:
        """Seconds of an iteration, (A,): the pipeline simulated, and what follows it."""
        return self.iterations_within(times, np.full(len(times), np.inf))[0]

    def iterations_within(
        self, times: GroupTimes, limit_s: Floats, look: Look = wanted
    ) -> tuple[Floats, int]:
        """The same, infinite where a bound of the pipeline says that they take more than a limit (A,).

        With it how many pipelines were simulated; `look` is called between some of them.
        """
        p, s, chunks = self.pipeline, self.plan, self.chunks(times)
        run = s.schedule, p.microbatches, s.pipeline_parallel
        last_s, own_s = (
            self.gradient_sync(times, chunks).total_s.max(axis=1),
            p.options.layouts.framework.iteration_s,
        )
        least_s = (pipeline_bound_s(*run, chunks) + last_s + own_s) * (1 - BOUND_ROUNDING)
        found, at = np.full(len(times), np.inf), np.flatnonzero(least_s <= limit_s)
        if len(at):
            found[at] = pipelines_s(*run, chunks.take(at), look) + last_s[at] + own_s
        return found, len(at)

    def gradient_sync(self, times: GroupTimes, chunks: Chunks) -> GradientSyncs:
        """Gradient synchronisation after the last microbatch, (A, p), of devices whose pipelines run these chunks."""
        p = self.pipeline
        passes = chunks.forward_s[:, p.own].sum(axis=2), chunks.backward_s[:, p.own].sum(axis=2)
        return self.gradient_sync_work.beside(
            *passes, p.options.layouts.framework, times.optimizer_s[:, None]
        )

    def chunks(self, times: GroupTimes) -> Chunks:
        """Chunk times of the pipeline on every architecture, (A, C)."""
        p, framework = self.pipeline, self.pipeline.options.layouts.framework
        plain, recomputation = p.exchanged.counts, p.exchanged.counted(self.recomputation)
        rows = times.rows.transpose(1, 0, 2)
        summed = [_summed(row, recomputation if k in (1, 4) else plain) for k, row in enumerate(rows)]
        passes = ChunkPasses(np.array(summed[:3]), np.array(summed[3:6]), summed[6], framework)
        if self._moves:
            passes = passes.beside(*self._beside(times))
        shape = len(times), len(p.exchanged.division.chunks) - 1
        return passes.pipeline(np.broadcast_to(p.exchanged.transfer_s[self.choice], shape))

    def _beside(self, times: GroupTimes) -> tuple[Floats, Floats]:
        """Seconds that exchanges of ZeRO add to forward and backward of every chunk, (A, C)."""
        p, layouts = self.pipeline, self.pipeline.options.layouts
        rows = times.rows[:, :, p.options.kinds[1]]
        beside = rows[:, 0], rows[:, 1] * self.recomputation + rows[:, 2]
        first = np.broadcast_to(
            p.exchanged.division.first_groups, (len(times), len(p.exchanged.division.chunks))
        )
        body, exchanges = (
            np.array(p.exchanged.division.body),
            layouts.exchanges(p.exchanged.link_bytes_per_s, self.plan),
        )
        moving = ZeroExchanges(*layouts.sizes(self.plan).sizes(self.plan.grain), exchanges, layouts.framework)
        added = []
        for turned in (0, 1):
            moved = p.exchanged.moved[2 * turned : 2 * turned + 2]
            gather, reduce = (np.broadcast_to(part[self.choice], beside[0].shape) for part in moved)
            groups = Groups(beside[turned], gather, reduce, body, first)
            added.append(moving.shown_s(groups, turned=turned > 0))
        return added[0], added[1]


def _summed(seconds: Floats, counts: Floats) -> Floats:
    """Sums over kinds, (A, C), of seconds (A, K) as often as chunks have them, (C, K); always in the same order."""
    found = np.zeros((len(seconds), len(counts)))
    for k, times in enumerate(counts.T):
        if times.any():
            found += seconds[:, k, None] * times
    return found
