"""The bubbles of a plan, and what other work gets done in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, inf, isfinite

import numpy as np

from phaze.explore.documents.plan_document import PlanBubbles, PlanFill, StageBubbles
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.request.explore_request import Task
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.timeline.bubble_filling import Filled, FillJob, Room, best_filled, fastest_alone
from phaze.parallel.timeline.pipeline_bubbles import Bubble, BubbleKind, bubbles
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.training.stage_times import passes_of
from phaze.workload.workload import Workload

_BATCHES = tuple(2**n for n in range(8))
"""Batches of other work that are tried."""


def fill_jobs(played: ReplayedPlan, task: Task, workload: Workload) -> list[FillJob]:
    """Forward passes of a model on one device of the plan that is played, in layers, for every batch that is tried."""
    return [_job(played, replace(task, workload=workload, devices=1, held={}), batch) for batch in _BATCHES]


def _job(played: ReplayedPlan, task: Task, batch: int) -> FillJob:
    table = played.costs.table
    costs = estimator_of(replace(task, global_batch=batch), table)
    alone = costs.layer_costs(ParallelPlan(batch))
    chain = alone.chain
    layers = [chain.layers[i] for i in chain.index]
    rows = passes_of(alone, [(n, n) for n in range(len(layers))], task.framework)
    each = task.workload.numerics.state_bytes
    weights = np.array(
        [one.parameters * each + one.scaled_weight_bytes + one.frozen_weight_bytes for one in layers]
    )
    held = np.cumsum([one.cache_bytes for one in layers])
    beside = held + [one.working_bytes + one.input_bytes for one in layers]
    link = float(table["host_bandwidth_bytes_per_s"][0])
    return FillJob(
        batch=batch,
        seconds=np.maximum(rows[0], rows[3]),  # of the device, or of the host that launches it
        load_s=np.full(len(layers), inf) if np.isnan(link) else weights / link,
        need_bytes=weights + beside,
        resident_bytes=float(weights.sum() + beside.max()),
        flops=float(chain.model_flops),
    )


@dataclass(frozen=True)
class PlanIdling:
    """A plan that is played, with the bubbles of its devices; `task`: what it is a plan of.

    `switch_s`: what each bubble that is filled loses to switching.
    """

    played: ReplayedPlan
    task: Task
    switch_s: float = 0.0

    @cached_property
    def bubbles(self) -> list[list[Bubble]]:
        """Bubbles of every device of a pipeline."""
        return bubbles(self.played)

    def record(self, workload: Workload | None = None) -> PlanBubbles:
        """The record of a document, with what a model gets done in them."""
        jobs = None if workload is None else fill_jobs(self.played, self.task, workload)
        rooms = list(self._rooms())
        done = None if jobs is None else [best_filled(room, jobs) for room in rooms]
        whole_s = self.played.iteration.iteration_s
        shares = {kind: self._share(kind) for kind in BubbleKind}
        return PlanBubbles(
            share=fsum(shares.values()),
            fill_drain_share=shares[BubbleKind.FILL_DRAIN],
            forward_backward_share=shares[BubbleKind.FORWARD_BACKWARD],
            scattered_share=shares[BubbleKind.SCATTERED],
            stages=[_stage(at, room, done[at] if done else None) for at, room in enumerate(rooms)],
            fill=workload and jobs and done and self._fill(workload, jobs, done, whole_s),
        )

    def _share(self, kind: BubbleKind) -> float:
        """Share of an iteration that devices spend in bubbles of a kind, the mean."""
        lengths = [one.length_s for own in self.bubbles for one in own if one.kind is kind]
        return fsum(lengths) / (len(self.bubbles) * self.played.iteration.iteration_s)

    def _rooms(self) -> Iterator[Room]:
        """Bubbles and free memory of every device: all its activations are gone while a pipeline fills or drains."""
        capacity = self.task.framework.usable_bytes(self.played.capacity_bytes)
        for own, memory in zip(self.bubbles, self.played.iteration.memory, strict=True):
            least = max(capacity - memory.total_bytes, 0.0)
            drained = least + memory.activations_bytes + memory.working_bytes
            yield Room(own, _free(least, drained), least, self.switch_s)

    def _fill(self, workload: Workload, jobs: list[FillJob], done: list[Filled], whole_s: float) -> PlanFill:
        plan, table = self.played.strategy, self.played.costs.table
        each = plan.devices // plan.pipeline_parallel
        samples = each * fsum(one.samples for one in done) / whole_s
        alone = fastest_alone(jobs, self.task.framework.usable_bytes(self.played.capacity_bytes))
        idle_s = fsum(one.length_s for own in self.bubbles for one in own)
        flops = fsum(one.flops for one in done) / (len(done) * whole_s)
        model = self.played.iteration.model_flops / whole_s
        peak = float(counted_flops_per_s(table, self.task.workload.recipe)[0])
        return PlanFill(
            workload=workload.name,
            samples_per_s=samples,
            recovered_flops_per_s=flops,
            filled_share=fsum(one.busy_s for one in done) / idle_s if idle_s else 0.0,
            device_equivalents=samples / alone if isfinite(alone) else None,
            utilisation=(model + flops * plan.devices) / (self.task.devices * peak),
            switch_s=self.switch_s,
        )


def _free(least: float, drained: float) -> Callable[[Bubble], float]:
    return lambda bubble: drained if bubble.kind is BubbleKind.FILL_DRAIN else least


def _stage(at: int, room: Room, done: Filled | None) -> StageBubbles:
    lengths = {kind: fsum(one.length_s for one in room.bubbles if one.kind is kind) for kind in BubbleKind}
    drained = [one for one in room.bubbles if one.kind is BubbleKind.FILL_DRAIN]
    return StageBubbles(
        stage=at,
        fill_drain_s=lengths[BubbleKind.FILL_DRAIN],
        forward_backward_s=lengths[BubbleKind.FORWARD_BACKWARD],
        scattered_s=lengths[BubbleKind.SCATTERED],
        longest_s=max((one.length_s for one in room.bubbles), default=0.0),
        free_bytes=room.least_free_bytes,
        free_drained_bytes=room.free_bytes(drained[0]) if drained else room.least_free_bytes,
        filled_s=done and done.busy_s,
        batch=done.job.batch if done and done.passes else None,
    )
