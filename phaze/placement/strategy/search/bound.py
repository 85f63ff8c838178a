"""Lower bounds on the iteration time of strategies, from the loads of their chunks alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.placement.strategy.load import Loads


def busy_bound_s(found: Loads, held: NDArray[np.int64], microbatches: int) -> float:
    """At most what a pipeline takes that runs so many microbatches, whatever the schedule.

    `held` (devices, chunks of each). A device does the work of its chunks for every microbatch; before the first,
    one comes through the chunks ahead of it, and after the last it goes back through them.
    """
    work = found.forward.pass_s + found.turned_s
    through = work - found.backward.weight_s
    ahead = np.cumsum(through) - through
    return float((microbatches * work[held].sum(axis=1) + ahead[held].min(axis=1)).max())
