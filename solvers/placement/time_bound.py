"""What the pipeline makes of a largest load: lower bounds on the time of a plan by its number of stages S.

A plan of S stages over d pipelines takes x * (q + S - 1) + C * (1 - 1/d), where x is its largest load, q = ceil(m / d)
and C * (d - 1) / d the all-reduce. Here C is what reducing the first layer takes (all layers if S = 1).
"""

from __future__ import annotations

import numpy as np
from phaze.solvers.placement.stage_costs import FloatArray
from phaze.solvers.placement.width import Width

# Hides the rounding of sums of many terms, so that a bound is one in floating point too.
SLACK = 1e-9


class TimeBound:
    """Seconds per batch that plans of one width take at least, given their largest load."""

    def __init__(self, width: Width) -> None:
        """Find the fewest microbatches per pipeline for every number of stages."""
        problem, degrees = width.problem, width.degrees
        fitting = [degrees.admitting(width.devices.fewest(stages)) for stages in range(1, width.depth + 1)]
        self._stages = np.arange(1.0, width.depth + 1)[:, None]
        self._fewest: FloatArray = degrees.microbatches[np.array(fitting) - 1][:, None].astype(np.float64)
        self._total = problem.microbatches_per_batch
        reduced = np.full((width.depth, 1), width.first_bytes[0])
        reduced[:1] = width.first_bytes[-1]
        reduce_s = 4 * reduced / problem.link_bandwidth_bytes_per_s
        # d >= m / q, hence 1 - 1/d >= 1 - q/m.
        self._reduce_s = reduce_s * (1 - self._fewest / self._total)
        self._devices = problem.num_devices
        wide = np.array(width.model.is_tensor_parallel)
        self._per_layer = np.where(wide, width.devices.wide, 1.0)[:, None]

    def device_time(self, forward_s: FloatArray, backward_s: FloatArray) -> FloatArray:
        """Seconds (A,) that all microbatches keep all devices busy: x * q is no less, whatever the degree."""
        work: FloatArray = (self._per_layer * (forward_s + backward_s)).sum(axis=0)
        return work * self._total / self._devices

    def times(self, load_s: FloatArray, device_time_s: FloatArray) -> FloatArray:
        """Bounds (depth, A) for largest loads (depth, A).

        The all-reduce grows by less than C/m with each microbatch less per pipeline, so that either all of
        them pass one pipeline or as few as can be.
        """
        steps = np.minimum(load_s * self._total, load_s * self._fewest + self._reduce_s)
        filling = np.zeros_like(load_s)
        filling[1:] = load_s[1:] * (self._stages[1:] - 1)
        bound: FloatArray = filling + np.maximum(steps, device_time_s)
        return bound * (1 - SLACK)

    def load_limit(self, stages: int, time_s: FloatArray, device_time_s: FloatArray) -> FloatArray:
        """Loads (A,) above which plans of S > 1 stages or more take longer than `time_s` (A,)."""
        time_s = time_s * (1 + SLACK)
        filling, reduce_s = stages - 1, self._reduce_s[stages - 1, 0]
        steps = float(self._fewest[stages - 1, 0]) + filling
        limit = np.maximum(time_s / (self._total + filling), (time_s - reduce_s) / steps)
        return np.minimum(limit, (time_s - device_time_s) / filling)
