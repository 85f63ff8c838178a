"""Where the time of an iteration goes, on the device that has most to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze.arrays import Floats
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.iteration import TimeBreakdown
from phaze.placement.strategy.load import Loads
from phaze.placement.strategy.strategy import Strategy
from phaze.placement.strategy.tail import Tail
from phaze.workload.sharding.parallel_degrees import Parallel

_ROUNDING = 1e-9  # of an iteration


def breakdown(
    found: Loads,
    own: Sequence[int],
    strategy: Strategy,
    microbatches: int,
    tail: Tail,
    iteration_s: float,
    framework: Framework,
) -> TimeBreakdown:
    """Parts of an iteration on a device with its `own` chunks and `tail`, of so many microbatches of a pipeline.

    What no part explains is bubble: waiting for other devices, in the pipeline or for a longer tail than the own. That
    is never negative, since a device does its passes and receipts one after the other.
    """
    sides = (found.forward, found.again, found.backward)
    runs = runs_of_a_chunk(strategy, microbatches)

    def spent(*values: Floats) -> float:
        return float(sum(runs * value[own].sum() for value in values))

    received = 0.0 if framework.hides_transfers else runs * _received_s(found, own, strategy)
    vector = spent(found.forward.vector_s, found.backward.vector_s)
    exposed = {p: spent(found.forward.exposed_s[p], found.backward.exposed_s[p]) for p in Parallel}
    parts = TimeBreakdown(
        product_s=spent(found.forward.kernels_s, found.backward.kernels_s) - vector,
        vector_s=vector,
        recompute_s=spent(found.again.device_s),
        tensor_s=exposed[Parallel.TENSOR],
        context_s=exposed[Parallel.CONTEXT],
        expert_s=exposed[Parallel.EXPERT],
        transfer_s=received,
        gather_s=spent(found.forward.gathered_s, found.backward.gathered_s) + tail.gather_s,
        reduction_s=spent(found.backward.reduced_s) + tail.reduction_s,
        offload_s=spent(found.forward.moved_s, found.backward.moved_s),
        bubble_s=0.0,
        optimizer_s=tail.optimizer_s,
        host_s=spent(*(side.host_s for side in sides)) + framework.iteration_s,
        hidden_s=spent(*(side.hidden_s for side in sides)) + tail.hidden_s,
    )
    return replace(parts, bubble_s=_rest_s(iteration_s, parts.total_s))


def runs_of_a_chunk(strategy: Strategy, microbatches: int) -> int:
    """Microbatches that come to a chunk on a device: where a pipeline holds the model twice, half of them each."""
    return microbatches // strategy.schedule.weight_copies


def busiest(found: Loads, placed: Sequence[Sequence[int]]) -> int:
    """The device that has most to do, of those with some chunks each."""
    work_s = found.forward.pass_s + found.turned_s
    return max(range(len(placed)), key=lambda device: float(work_s[placed[device]].sum()))


def _received_s(found: Loads, own: Sequence[int], strategy: Strategy) -> float:
    """Receipts of one microbatch that block a device with these chunks: sends go on at once, each way.

    Every chunk receives from the one ahead and in training the gradient from the one behind, but from none on the same
    device. (The neighbours that a device of DualPipe holds belong to the two copies of the model, which feed one
    another nothing.)
    """
    ends = np.concatenate([[0.0], found.transfer_s, [0.0]])
    each = (0,) if strategy.schedule.forward_only else (0, 1)
    ways = [chunk + side for chunk in own for side in each]
    inside = {w for w in ways if ways.count(w) > 1} if strategy.schedule.weight_copies == 1 else set()
    return float(sum(ends[way] for way in ways if way not in inside))


def _rest_s(whole_s: float, parts_s: float) -> float:
    """What is left of a whole; none but for rounding is none."""
    rest_s = whole_s - parts_s
    return 0.0 if abs(rest_s) <= _ROUNDING * whole_s else rest_s
