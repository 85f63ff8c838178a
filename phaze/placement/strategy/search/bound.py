"""Lower bounds on the time of pipelines, from the passes of their chunks alone, for many strategies at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.strategy.passes import ChunkPasses


def busy_bound_s(schedule: Schedule, stages: int, passes: ChunkPasses, microbatches: ArrayLike) -> Floats:
    """At most what pipelines take (n,) whose chunks have such passes (n, C), or longer, of so many microbatches (n,).

    A device does the work of its chunks for every microbatch that comes to its copies of them. Before the first, one
    comes through the chunks ahead; after the last backward pass, gradients go back through them. Where a schedule puts
    weight gradients off these may run meanwhile, and only the device's own share of the passes is sure.
    """
    own = chunks_of(schedule, stages, passes.weight_s.shape[-1] // stages)
    each = (np.asarray(microbatches) // schedule.weight_copies)[..., None]
    ahead_s, turned_s = passes.passes_s
    work = ahead_s + turned_s
    device = each * work[..., own].sum(axis=-1)
    if not schedule.splits_backward:
        return np.asarray((device + _least_ahead(work, own)).max(axis=-1))
    forward, again, backward = passes.device_s
    back = _least_ahead(np.maximum(again + backward - passes.weight_s, 0.0), own)
    late = np.maximum(back - each * passes.weight_s[..., own].sum(axis=-1), 0.0)
    return np.asarray((_least_ahead(forward, own) + device + late).max(axis=-1))


def _least_ahead(seconds: Floats, own: NDArray[np.int64]) -> Floats:
    """Of all chunks ahead of a device's first one, (n, p)."""
    ahead: Floats = (np.cumsum(seconds, axis=-1) - seconds)[..., own].min(axis=-1)
    return ahead
