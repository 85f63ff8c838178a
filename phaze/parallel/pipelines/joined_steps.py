"""Steps that wait for any number of others, as where branches of stages join: what `simulation_loops` is for two.

`run_joins` is compiled as machine code where it is worth it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers

Steps = NDArray[np.integer[Any]]


def sort_joins(first: Integers, source: Integers) -> Integers:
    """Steps in an order in which each comes after what it waits for; fewer than all where some wait for one another.

    Device d runs steps first[d] .. first[d+1]-1 one after the other. `source` (U, K): the steps whose results each of
    them needs, U for none.
    """
    waits: list[list[int]] = source.tolist()
    done, found = [False] * len(source) + [True], list[int]()
    at, last, before = first[:-1].tolist(), first[1:].tolist(), -1
    while before < len(found) < len(source):
        before = len(found)
        for device, end in enumerate(last):
            while at[device] < end and all(done[one] for one in waits[at[device]]):
                done[at[device]] = True
                found.append(at[device])
                at[device] += 1
    return np.array(found, dtype=np.int64)


def run_joins(
    queue: Steps,
    before: Steps,
    source: Steps,
    seconds: Floats,
    way_s: Floats,
    sent_s: Floats,
    blocking: bool,
    end_s: Floats,
) -> None:
    """Fill `end_s` (U + 1,), ends of all steps, each as early as it can be, as of `simulation_loops.run`.

    `source`, `way_s` (U, K): the steps whose results each one needs, U for none, and the transfers from them.
    """
    inputs = len(source[0])
    for step in queue:
        free = end_s[before[step]]
        latest, ways = free, 0.0
        for k in range(inputs):
            ready = end_s[source[step][k]]
            if blocking:
                ways += way_s[step][k]
            else:
                ready += way_s[step][k]
            latest = max(latest, ready)
        if blocking:
            latest = max(latest + ways, free + sent_s[before[step]])
        end_s[step] = latest + seconds[step]
