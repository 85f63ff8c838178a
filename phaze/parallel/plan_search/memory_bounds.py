"""Lower bounds of pipelines by what their devices have to run again for their memory, of many unlike ones at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, Zero, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of
from phaze.parallel.plan_batches.memory_fit import frugal
from phaze.parallel.plan_search.plan_lower_bounds import turning_s
from phaze.parallel.plan_search.screened_plans import OpenPlan
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.memory.memory_footprint import ChunkFootprint, ranks_of
from phaze.tolerances import BOUND_ROUNDING

_AT_ONCE = 512
"""Pipelines whose devices are looked at together, so that arrays stay small."""

_NEVER = 1 << 30
"""Blocks to run again where no number of them makes a device fit."""


@dataclass(frozen=True)
class MemoryBounds:
    """Bounds of pipelines of a space whose devices have so much memory.

    Of every device the blocks of which fewest spare what it lacks, each as if it was the one that spares most and takes
    least. The ZeRO stage is the one that is best for it, so that a bound holds for all plans of a pipeline.
    """

    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    _groups: dict[Hashable, tuple[object, _Groups]] = field(default_factory=dict)

    @cached_property
    def tells(self) -> bool:
        """Whether anything is known: hosts keep nothing, and blocks run again as a whole."""
        return not self.space.by_layer and not any(self.space.offloads)

    def bounds(self, some: Sequence[OpenPlan]) -> tuple[Floats, Flags]:
        """Seconds that pipelines take at least, (n,), and which of them may fit."""
        seconds, fits = np.zeros(len(some)), np.ones(len(some), dtype=np.bool_)
        alike: dict[int, list[int]] = {}
        for row, one in enumerate(some if self.tells else ()):
            alike.setdefault(one.pipeline.chunks * one.schedule.weight_copies, []).append(row)
        for rows in alike.values():
            for start in range(0, len(rows), _AT_ONCE):
                at = rows[start : start + _AT_ONCE]
                seconds[at], fits[at] = self._bounds([some[row] for row in at])
        return seconds, fits

    def _bounds(self, some: Sequence[OpenPlan]) -> tuple[Floats, Flags]:
        """Of pipelines whose devices have equally many chunks."""
        plans = [one.plan for one in some]
        groups = [self._groups_of(plan, rough=one.rough) for plan, one in zip(plans, some, strict=True)]
        devices, zeros = _Devices.of(self.estimator, plans, groups), [self.space.choices(s)[0] for s in plans]
        seconds, fits = np.full(len(plans), np.inf), np.zeros(len(plans), dtype=np.bool_)
        for zero in dict.fromkeys(zero for each in zeros for zero in each):
            again = self._again(devices, plans, zero)
            some_fit = np.maximum.reduceat(again, devices.first) < _NEVER
            some_fit &= [zero in each for each in zeros]
            busy_s = np.maximum.reduceat(devices.busy_s(again), devices.first)
            seconds[some_fit] = np.minimum(seconds, busy_s)[some_fit]
            fits |= some_fit
        return np.where(fits, seconds, 0.0) * (1 - BOUND_ROUNDING), fits

    def _groups_of(self, plan: ParallelPlan, *, rough: bool) -> _Groups:
        e = self.estimator
        footprint = e.memory_footprint(plan)
        key = id(footprint), plan.grain, rough
        if key not in self._groups:
            f, body = footprint, np.array(e.division(plan).body)
            forward_s, again_s, backward_s = (e.least_passes(plan) if rough else e.passes(plan))[:3]
            sums = (f.shared, f.experts, f.scaled_bytes, f.frozen_bytes, f.replicated, f.saved_bytes)
            own = (~body * f.parameters, f.scores_bytes, body, forward_s, backward_s)
            most = (f.working_bytes, body * f.parameters, body * (f.saved_bytes - f.spared_bytes))
            least = (np.where(body, -one, -np.inf) for one in (f.working_bytes + f.again_bytes, again_s))
            found = _Groups(np.array([*sums, *own], dtype=np.float64), np.array([*most, *least]))
            self._groups[key] = footprint, found
        return self._groups[key][1]

    def _again(self, devices: _Devices, plans: Sequence[ParallelPlan], zero: Zero) -> Integers:
        """Blocks that every device (D,) runs again at least where ranks divide so much; `_NEVER` if none fits."""
        layouts, own = self.estimator.layouts, np.arange(devices.held.shape[-1])[None]
        ranks = np.array([ranks_of(plan) for plan in plans], dtype=np.float64)[devices.owner].T[..., None]
        plain, running = (
            replace(layouts.memory_of(changed_plan(plans[0], zero=zero), footprint), divided_by=tuple(ranks))
            for footprint in (devices.footprint, devices.running)
        )
        fixed, most = plain.fixed_bytes(own), self.capacity_bytes * (1 + BOUND_ROUNDING)
        need, anew = (
            (fixed + sum(one.activations_bytes(own, devices.held)))[:, 0] for one in (plain, running)
        )
        each = (1 + layouts.framework.fragmentation) * devices.spared_bytes
        asked = np.divide(anew - most, each, out=np.full(len(each), np.inf), where=each > 0)
        again = np.where(need <= most, 0, np.maximum(np.ceil(asked - BOUND_ROUNDING), 1))
        again = np.where(again <= devices.blocks, again, _NEVER).astype(np.int64)
        return np.where(devices.all_again & (again < _NEVER), 0, again)


class _Groups(NamedTuple):
    """Figures of groups (G,) of layers: of those of a chunk the sum counts, or the greatest.

    Of some the least counts: they are less than 0.
    """

    sums: Floats
    most: Floats


@dataclass(frozen=True)
class _Devices:
    """All devices (D,) of some pipelines (n,), one after the other, and what their chunks (v) take.

    `first` (n,): the first of every pipeline, `owner` (D,) the pipeline of each. `held` (D, 1, K, v): microbatches in
    flight. `blocks`: those that may run again; `all_again`: where all do, as bounds know already. `running`: needs
    while a block runs again; `spared_bytes`: what one block spares at most. Seconds of a microbatch in what comes
    before a device, in its own chunks forward, again for every block at least, and back, and in what comes behind.
    """

    plans: Sequence[ParallelPlan]
    first: Rows
    owner: Rows
    each: Integers
    ahead: Integers
    footprint: ChunkFootprint
    running: ChunkFootprint
    held: Integers
    blocks: Integers
    all_again: Flags
    spared_bytes: Floats
    before_s: Floats
    forward_s: Floats
    again_s: Floats
    backward_s: Floats
    behind_s: Floats

    @classmethod
    def of(cls, estimator: Estimator, plans: Sequence[ParallelPlan], groups: Sequence[_Groups]) -> _Devices:
        """Of pipelines whose groups of layers have such figures."""
        stages = np.array([plan.pipeline_parallel for plan in plans])
        owner = np.repeat(np.arange(len(plans)), stages)
        first = np.cumsum(stages) - stages
        held = [estimator.layouts.held(plan) for plan in plans]
        combinations = max(one.shape[1] for one in held)
        chunks: dict[tuple[int, int], Floats] = {}
        rows = []
        for plan, some in zip(plans, groups, strict=True):
            division = estimator.division(plan)
            key = id(some), id(division)
            if key not in chunks:
                chunks[key] = _of_chunks(some, division)
            rows.append(chunks[key][:, chunks_of(plan.schedule, plan.pipeline_parallel, plan.chunks)])
        figures = np.concatenate(rows, axis=1)
        shared, experts, scaled, frozen, replicated, saved, ends, scores, blocks, *rest = figures
        forward_s, backward_s, working, largest, spared, running, again_s, before_s, ahead_s = rest
        none, within = np.zeros_like(shared), np.arange(len(owner)) - first[owner]
        footprint = ChunkFootprint(
            shared, experts, scaled, frozen, replicated, saved, none, working, largest, ends, scores, none
        )
        lives = working.copy()
        lives[:, 0] = np.maximum(lives[:, 0], -running[:, 0])  # blocks of the first chunk run again first
        in_flight = np.concatenate([_filled(one, combinations) for one in held])
        own_s = (forward_s + backward_s).sum(axis=1)
        splits = np.array([plan.schedule.splits_backward for plan in plans])[owner]
        microbatches = np.array([estimator.microbatches(plan) for plan in plans])
        some_again = np.array([plan.recompute is Recompute.FULL for plan in plans])
        all_again = some_again & ~np.array([frugal(plan) for plan in plans])
        return cls(
            plans,
            first,
            owner,
            microbatches[owner],
            np.minimum(stages[owner] - 1 - within, microbatches[owner] - 1),
            footprint,
            replace(footprint, working_bytes=lives),
            in_flight[:, None],
            blocks.sum(axis=1) * some_again[owner],
            all_again[owner],
            in_flight.max(axis=(1, 2)) * spared.max(axis=1),
            np.where(splits, ahead_s.min(axis=1), before_s.min(axis=1)),
            forward_s.sum(axis=1),
            (-again_s).min(axis=1),
            backward_s.sum(axis=1),
            np.add.reduceat(own_s, first)[owner] - own_s - before_s[:, 0],
        )

    def busy_s(self, again: Integers) -> Floats:
        """Seconds of pipelines, (D,), by each device that runs so many blocks again, as of `busy_bound_s`."""
        turned_s = np.where((again > 0) & (again < _NEVER), again * self.again_s, 0.0) + self.backward_s
        work_s = self.forward_s + turned_s
        copies = np.array([plan.schedule.weight_copies for plan in self.plans])[self.owner]
        found_s = self.each // copies * work_s + self.before_s
        waits = np.array([plan.schedule is Schedule.ONE_F_ONE_B for plan in self.plans])[self.owner]
        turning = turning_s(self.behind_s, self.ahead, work_s, self.forward_s, turned_s, self.each)
        found: Floats = np.where(waits, np.maximum(found_s, turning), found_s)
        return found


def _of_chunks(groups: _Groups, division: Division) -> Floats:
    """Figures of every chunk, (18, C): those of `_Groups`, and seconds of what comes before, both ways and forward."""
    sums = np.add.reduceat(groups.sums, division.first_groups, axis=1)
    most = np.maximum.reduceat(groups.most, division.first_groups, axis=1)
    both = np.array([sums[-2] + sums[-1], sums[-2]])
    return np.concatenate([sums, most, np.cumsum(both, axis=1) - both])


def _filled(held: Integers, combinations: int) -> Integers:
    """Microbatches in flight, (p, K, v), with the first combination as often as it takes for so many."""
    return np.concatenate([held, held[:, :1].repeat(combinations - held.shape[1], axis=1)], axis=1)
