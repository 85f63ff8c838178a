"""Parts of an iteration on a device, which sum to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.exchanges.gradient_sync import GradientSync
from phaze.parallel.training.iteration import TimeBreakdown
from phaze.parallel.training.stage_times import StageTimes
from phaze.tolerances import SAME
from phaze.workload.parallel_degrees import Parallel


def breakdown(
    found: StageTimes,
    own: Sequence[int],
    plan: ParallelPlan,
    microbatches: int,
    sync: GradientSync,
    iteration_s: float,
    framework: Framework,
) -> TimeBreakdown:
    """Parts of an iteration on a device with its `own` chunks and `sync`, of so many microbatches of a pipeline.

    bubble = iteration - sum of all other parts: waiting for other devices, in the pipeline or for a longer
    synchronisation than its own. It is never negative, since a device does its passes and receipts one by one.
    """
    sides = (found.forward, found.recomputation, found.backward)
    runs = runs_of_a_chunk(plan, microbatches)

    def spent(*values: Floats) -> float:
        return float(sum(runs * value[own].sum() for value in values))

    received = 0.0 if framework.hides_transfers else runs * _received_s(found, own, plan)
    vector = spent(found.forward.vector_s, found.backward.vector_s)
    exposed = {p: spent(found.forward.exposed_s[p], found.backward.exposed_s[p]) for p in Parallel}
    parts = TimeBreakdown(
        product_s=spent(found.forward.kernels_s, found.backward.kernels_s) - vector,
        vector_s=vector,
        recompute_s=spent(found.recomputation.device_s),
        tensor_s=exposed[Parallel.TENSOR],
        context_s=exposed[Parallel.CONTEXT],
        expert_s=exposed[Parallel.EXPERT],
        transfer_s=received,
        gather_s=spent(found.forward.gathered_s, found.backward.gathered_s) + sync.gather_s,
        reduction_s=spent(found.backward.reduced_s) + sync.reduction_s,
        offload_s=spent(found.forward.moved_s, found.backward.moved_s),
        bubble_s=0.0,
        optimizer_s=sync.optimizer_s,
        host_s=spent(*(side.host_s for side in sides)) + framework.iteration_s,
        hidden_s=spent(*(side.hidden_s for side in sides)) + sync.hidden_s,
    )
    return replace(parts, bubble_s=_rest_s(iteration_s, parts.total_s))


def runs_of_a_chunk(plan: ParallelPlan, microbatches: int) -> int:
    """Microbatches that come to a chunk on a device: where a pipeline holds the model twice, half of them each."""
    return microbatches // plan.schedule.weight_copies


def busiest(found: StageTimes, placed: Sequence[Sequence[int]]) -> int:
    """The device that has most to do, of those with some chunks each."""
    work_s = found.forward.pass_s + found.turned_s
    return max(range(len(placed)), key=lambda device: float(work_s[placed[device]].sum()))


def _received_s(found: StageTimes, own: Sequence[int], plan: ParallelPlan) -> float:
    """Receipts of one microbatch that block a device with these chunks: sends go on at once, each way.

    Every chunk receives from the one ahead and in training the gradient from the one behind, but from none on the same
    device. (The neighbours that a device of DualPipe holds belong to the two copies of the model, which feed one
    another nothing.) Of chunks that are a graph, one for every edge that leads there, or on.
    """
    if found.graph is not None:
        graph = found.graph
        edges = (edge for chunk in own for edge in (*graph.into[chunk], *graph.out_of[chunk]))
        return float(sum(found.transfer_s[edge] for edge in edges))
    ends = np.concatenate([[0.0], found.transfer_s, [0.0]])
    each = (0,) if plan.schedule.forward_only else (0, 1)
    ways = [chunk + side for chunk in own for side in each]
    inside = {w for w in ways if ways.count(w) > 1} if plan.schedule.weight_copies == 1 else set()
    return float(sum(ends[way] for way in ways if way not in inside))


def _rest_s(whole_s: float, parts_s: float) -> float:
    """Rest of a whole, in s; none but for rounding is none."""
    rest_s = whole_s - parts_s
    return 0.0 if abs(rest_s) <= SAME * whole_s else rest_s
