"""Where the time of an iteration goes, on the device that has most to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.iteration import TimeBreakdown
from phaze.placement.strategy.load import Loads
from phaze.placement.strategy.tail import Tail
from phaze.workload.degrees import Parallel

Floats = NDArray[np.float64]


def breakdown(
    found: Loads,
    placed: Sequence[list[int]],
    busy_s: float,
    last: Tail,
    microbatches: int,
    framework: Framework,
) -> TimeBreakdown:
    """Parts of `busy_s` of the pipeline, the tail and the host; what no part explains is bubble."""
    sides = (found.forward, found.again, found.backward)
    own = busiest(found, placed)

    def spent(*values: Floats) -> float:
        return float(sum(microbatches * value[own].sum() for value in values))

    vector = spent(found.forward.vector_s, found.backward.vector_s)
    exposed = {p: spent(found.forward.exposed_s[p], found.backward.exposed_s[p]) for p in Parallel}
    parts = TimeBreakdown(
        product_s=spent(found.forward.kernels_s, found.backward.kernels_s) - vector,
        vector_s=vector,
        recompute_s=spent(found.again.device_s),
        tensor_s=exposed[Parallel.TENSOR],
        context_s=exposed[Parallel.CONTEXT],
        expert_s=exposed[Parallel.EXPERT],
        transfer_s=0.0 if framework.hides_transfers else microbatches * _transfers_s(found, own),
        gather_s=spent(found.forward.zero_s, found.backward.zero_s) + last.gather_s,
        reduction_s=last.reduction_s,
        bubble_s=0.0,
        optimizer_s=last.optimizer_s,
        host_s=spent(*(side.host_s for side in sides)) + framework.iteration_s,
        hidden_s=spent(*(side.hidden_s for side in sides)) + last.hidden_s,
    )
    total = busy_s + last.total_s + framework.iteration_s
    return replace(parts, bubble_s=total - parts.total_s)


def busiest(found: Loads, placed: Sequence[list[int]]) -> list[int]:
    """The chunks of the device that has most to do."""
    work_s = np.sum([side.pass_s for side in (found.forward, found.again, found.backward)], axis=0)
    return max(placed, key=lambda chunks: float(work_s[chunks].sum()))


def _transfers_s(found: Loads, own: list[int]) -> float:
    """Transfers that occupy a device with these chunks, of one microbatch: in and out go on at once, each way."""
    ends = np.concatenate([[0.0], found.transfer_s, [0.0]])
    return float(sum(ends[c] + ends[c + 1] for c in own))
