"""The data-parallel degrees worth trying."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.instance import PlacementProblem


@dataclass(frozen=True)
class Degrees:
    """In growing order, the smallest degree of each number of microbatches per pipeline.

    A larger degree with the same number of microbatches has fewer devices per pipeline and a longer resync.
    """

    data_parallel: Integers
    microbatches: Integers
    devices_per_pipeline: Integers
    resync_s_per_byte: Floats

    def admitting(self, devices: Integers | int) -> Integers:
        """How many of the degrees, the first ones, leave a pipeline so many devices (n,)."""
        return np.asarray(np.searchsorted(-self.devices_per_pipeline, -np.asarray(devices), side="right"))


def data_parallel_degrees(problem: PlacementProblem) -> Degrees:
    """All degrees d in 1..min(D, m) that are smallest for their value of ceil(m / d): O(sqrt m) of them."""
    total, limit = problem.microbatches_per_batch, min(problem.num_devices, problem.microbatches_per_batch)
    small = np.arange(1, min(math.isqrt(total) + 1, limit) + 1, dtype=np.int64)
    # Either d or ceil(m / d) is small; ceil(m / ceil(m / d)) is the smallest degree that is as good as d.
    d = np.unique(-(-total // np.concatenate([-(-total // small), small])))
    d = d[d <= limit]
    resync_s_per_byte = 4 * (d - 1) / problem.link_bandwidth_bytes_per_s / d
    return Degrees(d, -(-total // d), problem.num_devices // d, resync_s_per_byte)
