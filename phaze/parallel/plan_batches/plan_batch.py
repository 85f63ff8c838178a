"""Iterations of many plans at once, and the layers, divisions and recomputation that they share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.in_flight import in_flight_peak
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of
from phaze.parallel.pipelines.pipeline_simulation import pipelines_s
from phaze.parallel.training.exchanges.communication import Communication
from phaze.parallel.training.exchanges.gradient_sync import DeviceParameters
from phaze.parallel.training.exchanges.weight_prefetch import Groups
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import ChunkFootprint, recomputed_groups
from phaze.parallel.training.stage_times import (
    ChunkPasses,
    GroupPasses,
    ZeroExchanges,
    ZeroTraffic,
    boundary_bytes,
    zero_traffic,
)


@dataclass(frozen=True)
class PlanBatch:
    """Plans (B,) of one number of chunks (C), cut into the same groups of layers (G).

    `which` (V,): the one that each of many is, but for replicas, schedule, ZeRO and order.
    """

    estimator: Estimator
    plans: tuple[ParallelPlan, ...]
    which: Integers

    @classmethod
    def of(cls, estimator: Estimator, plans: Sequence[ParallelPlan]) -> PlanBatch:
        """Batch of many plans."""
        found: dict[Hashable, int] = {}
        which = np.array([found.setdefault(_shared_choices(s), len(found)) for s in plans])
        first = np.unique(which, return_index=True)[1]
        return cls(estimator, tuple(plans[at] for at in first.tolist()), which)

    @cached_property
    def divisions(self) -> list[Division]:
        """The chunks of each."""
        return [self.estimator.division(s) for s in self.plans]

    @cached_property
    def first_groups(self) -> Integers:
        """The group that every chunk starts with, (B, C)."""
        return np.array([division.first_groups for division in self.divisions])

    @cached_property
    def recomputation(self) -> Flags:
        """Groups that run again, (B, G)."""
        return np.array([recomputed_groups(d, s) for d, s in zip(self.divisions, self.plans, strict=True)])

    @cached_property
    def groups(self) -> GroupPasses:
        """Pass times of every group of layers, without exchanges of ZeRO."""
        return GroupPasses(np.array([self.estimator.passes(s) for s in self.plans]))

    @property
    def passes(self) -> ChunkPasses:
        """Pass times of every chunk, (B, C)."""
        return self.groups.chunks(self.first_groups, self.recomputation, self.estimator.framework)

    @property
    def sent_bytes(self) -> Floats:
        """Bytes from each chunk to the next, (B, C - 1)."""
        chains = [self.estimator.layer_costs(s).chain for s in self.plans]
        return np.array([boundary_bytes(*each) for each in zip(chains, self.divisions, strict=True)])

    @property
    def sizes(self) -> tuple[Floats, NDArray[np.intp]]:
        """`LayerSizes.parameters` of distinct groups, (3, B, K); which each group is (G,)."""
        each = [self.estimator.layer_costs(s).sizes(s.grain) for s in self.plans]
        stacked = np.concatenate([sizes[:, which] for sizes, which in each])
        distinct, which = np.unique(stacked, axis=1, return_inverse=True)
        return distinct.reshape(-1, 3, distinct.shape[1]).transpose(1, 0, 2), which.ravel()

    @property
    def device_parameters(self) -> Floats:
        """`LayerSizes.parameters` of every chunk, and its groups of layers, (4, B, C)."""
        found = []
        for s, division in zip(self.plans, self.divisions, strict=True):
            sizes = np.add.reduceat(self.estimator.layer_costs(s).parameters, division.first_layers, axis=1)
            found.append([*sizes, [last + 1 - first for first, last in division.chunks]])
        return np.array(found, dtype=np.float64).transpose(1, 0, 2)

    @property
    def tied(self) -> Floats:
        """Parameters that the first and the last device both have, (B,)."""
        costs = (self.estimator.layer_costs(s) for s in self.plans)
        return np.array([each.tied_parameters for each in costs], dtype=np.float64)

    @cached_property
    def memory_footprint(self) -> ChunkFootprint:
        """Memory footprint of every chunk, (B, C)."""
        e, rows = self.estimator, zip(self.plans, self.divisions, self.recomputation, strict=True)
        each = [
            ChunkFootprint.of(e.memory_footprint(s), division, recomputation)
            for s, division, recomputation in rows
        ]
        return ChunkFootprint(
            *(np.array([getattr(one, f.name) for one in each]) for f in fields(ChunkFootprint))
        )


def _shared_choices(plan: ParallelPlan) -> Hashable:
    s = plan
    return (
        s.microbatch,
        s.sharding,
        s.recompute,
        s.recomputed,
        s.kept,
        s.offloaded,
        s.stages,
        s.grain,
        s.joins_ends,
    )


@dataclass(frozen=True)
class Iterations:
    """Seconds of iterations, and bytes that their fullest devices need, (V,) each."""

    iteration_s: Floats
    memory_bytes: Floats


def batch_iterations(estimator: Estimator, plans: Sequence[ParallelPlan]) -> Iterations:
    """Iterations, as of `Estimator.iteration` for each. They are not checked: all must be such as can run."""
    found = np.empty((2, len(plans)))
    for rows, many in _batches(estimator, plans):
        found[:, rows] = many.iterations_s(), many.memory_bytes()
    return Iterations(*found)


def batch_bounds_s(estimator: Estimator, plans: Sequence[ParallelPlan]) -> Floats:
    """Lower bounds of the seconds of iterations, (V,)."""
    found = np.empty(len(plans))
    for rows, many in _batches(estimator, plans):
        found[rows] = many.bounds_s()
    return found


def _batches(
    estimator: Estimator, plans: Sequence[ParallelPlan]
) -> Iterator[tuple[Integers, IterationBatch]]:
    """Plans in as few batches as may be, with their positions."""
    for rows in _alike(_cut(estimator, s) for s in plans):
        yield rows, IterationBatch(estimator, tuple(plans[row] for row in rows))


def _cut(estimator: Estimator, plan: ParallelPlan) -> Hashable:
    division = estimator.division(plan)
    return plan.pipeline_parallel, plan.chunks, division.groups, division.body


def _alike(keys: Iterable[Hashable]) -> list[Integers]:
    """Positions of equal keys."""
    found: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return [np.array(rows) for rows in found.values()]


@dataclass(frozen=True)
class IterationBatch:
    """Plans (V,) of as many stages and chunks, whose models are cut into the same groups of layers."""

    estimator: Estimator
    plans: tuple[ParallelPlan, ...]

    def iterations_s(self) -> Floats:
        """Seconds of an iteration, (V,), every pipeline simulated."""
        return self._whole_s(pipelines_s)

    def bounds_s(self) -> Floats:
        """Lower bound of the seconds of an iteration, (V,)."""
        return self._whole_s(pipeline_bound_s)

    def _whole_s(self, pipelines: Callable[[Schedule, int, int, Chunks], Floats]) -> Floats:
        """Pipelines, and what follows them."""
        e, chunks, busy_s = self.estimator, self.chunks, np.empty(len(self.plans))
        for (schedule, microbatches), rows in self._runs.items():
            busy_s[rows] = pipelines(schedule, microbatches, self.stages, chunks.take(rows))
        passes = self.on_devices(chunks.forward_s), self.on_devices(chunks.backward_s)
        total_s = e.gradient_syncs(self.exchanges, self.device_parameters, *passes).total_s
        found: Floats = busy_s + total_s.max(axis=1) + e.framework.iteration_s
        return found

    def memory_bytes(self) -> Floats:
        """Bytes that the fullest device needs, (V,)."""
        found, e = np.empty(len(self.plans)), self.exchanges
        for (schedule, microbatches), rows in self._runs.items():
            own, kinds = self._own(schedule), [self.plans[row] for row in rows]
            held = in_flight_peak(schedule, self.stages, microbatches, self.plans[0].chunks)
            for some in _alike((s.zero, s.offload, s.reshards) for s in kinds):
                at = rows[some]
                memory = self.estimator.memory_of(
                    kinds[some[0]], self.bases.memory_footprint.take(self.bases.which[at])
                )
                memory = replace(memory, divided_by=[ranks[at] for ranks in e.ranks])
                needed = memory.fixed_bytes(own) + sum(memory.activations_bytes(own, held))
                found[at] = needed.max(axis=1)
        return found

    @cached_property
    def bases(self) -> PlanBatch:
        """Layers, divisions and recomputation that the plans share."""
        return PlanBatch.of(self.estimator, self.plans)

    @cached_property
    def exchanges(self) -> Communication:
        """Communication between their devices."""
        return self.estimator.exchanges(*self.plans)

    @property
    def stages(self) -> int:
        """Stages of each."""
        return self.plans[0].pipeline_parallel

    @cached_property
    def device_parameters(self) -> DeviceParameters:
        """Parameters and groups of layers of every device, (V, p)."""
        bases, tied = self.bases, np.zeros((len(self.plans), self.stages))
        every, experts, whole, pieces = (
            self.on_devices(each[bases.which]) for each in bases.device_parameters
        )
        tied[:, 0] = tied[:, -1] = bases.tied[bases.which]
        return DeviceParameters(every - experts - whole, experts, whole, pieces, tied)

    @cached_property
    def chunks(self) -> Chunks:
        """Chunk times of the pipelines, (V, C)."""
        passes, bases = self.bases.passes.take(self.bases.which), self.bases
        added = self.exchanged_s(hides=self.estimator.framework.hides_gathers)
        if added.any():
            passes = passes.beside(*added)
        scatters = self.estimator.framework.scatters_transfers
        chunks = passes.pipeline(self.exchanges.transfer_s(bases.sent_bytes[bases.which], scatters))
        return self._with_host(chunks)

    def exchanged_s(self, *, hides: bool) -> Floats:
        """Seconds that exchanges of ZeRO add to forward and backward of every chunk, (2, V, C); all if none `hides`."""
        e, bases, chunks = self.estimator, self.bases, self.bases.first_groups.shape[1]
        found = np.zeros((2, len(self.plans), chunks))
        moved = [zero_traffic(s, e.framework, e.rates.wire_bytes) for s in self.plans]
        rows = np.array(
            [row for row, both in enumerate(moved) if both != (ZeroTraffic(), ZeroTraffic())], dtype=np.int64
        )
        if not len(rows):
            return found
        which, (sizes, group) = bases.which[rows], bases.sizes
        moving = ZeroExchanges(sizes[:, which], group, self.exchanges.of_rows(rows), e.framework)
        first, body = bases.first_groups[which], np.array(bases.divisions[0].body)
        forward_s, again_s, backward_s = bases.groups.rows[which, :3].transpose(1, 0, 2)
        beside_s = forward_s, again_s * bases.recomputation[which] + backward_s
        for turned in (0, 1):
            exchanges = moving.groups_s([moved[row][turned] for row in rows])
            groups = Groups(beside_s[turned], *exchanges, body, first)
            found[turned, rows] = moving.shown_s(groups, turned=turned > 0) if hides else groups.exchange_s
        return found

    def _with_host(self, chunks: Chunks) -> Chunks:
        """Those that leave something to the host wait for it."""
        waits = [row for row, s in enumerate(self.plans) if s.offload]
        for row in waits:
            alone = self.estimator.chunks(self.plans[row])
            for name in ("forward_s", "input_gradient_s", "weight_gradient_s"):
                getattr(chunks, name)[row] = getattr(alone, name)
        return chunks

    def on_devices(self, seconds: Floats) -> Floats:
        """Sums over the chunks of every device, (V, p), of values of chunks (V, C)."""
        found = np.empty((len(self.plans), self.stages))
        for schedule, rows in self._schedules.items():
            found[rows] = seconds[rows][:, self._own(schedule)].sum(axis=2)
        return found

    def _own(self, schedule: Schedule) -> NDArray[np.int64]:
        return chunks_of(schedule, self.stages, self.plans[0].chunks)

    @cached_property
    def _schedules(self) -> dict[Schedule, Integers]:
        """Rows of each schedule."""
        each = [s.schedule for s in self.plans]
        return {each[rows[0]]: rows for rows in _alike(each)}

    @cached_property
    def _runs(self) -> dict[tuple[Schedule, int], Integers]:
        """Rows of each schedule and number of microbatches."""
        each = [(s.schedule, self.estimator.microbatches(s)) for s in self.plans]
        return {each[rows[0]]: rows for rows in _alike(each)}
