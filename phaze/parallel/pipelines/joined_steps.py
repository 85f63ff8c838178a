"""Steps that wait for any number of others, as where branches of stages join: what `simulation_loops` is for two."""

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
    queue: Steps, before: Steps, source: Steps, seconds: Floats, way_s: Floats, sent_s: Floats, blocking: bool
) -> Floats:
    """Ends (U + 1,) of all steps, each as early as it can be, as of `simulation_loops.run`; the last entry is 0.

    `source`, `way_s` (U, K): the steps whose results each one needs, U for none, and the transfers from them.
    """
    end_s = [0.0] * (len(queue) + 1)
    ahead, waits, ways, lasting, sent = (some.tolist() for some in (before, source, way_s, seconds, sent_s))
    for step in queue.tolist():
        free = end_s[ahead[step]]
        if blocking:
            latest = max(free, *(end_s[one] for one in waits[step]))
            start = max(latest + sum(ways[step]), free + sent[ahead[step]])
        else:
            start = max(free, *(end_s[one] + way for one, way in zip(waits[step], ways[step], strict=True)))
        end_s[step] = start + lasting[step]
    return np.array(end_s)
