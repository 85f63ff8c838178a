"""Steps of pipelines with many devices in waves: those that wait for none of one another, side by side.

A wave holds at most one step of every device, and as a rule one of most of them, so that a pipeline of many devices has
few waves for its steps and is simulated wave by wave faster than machine code is loaded.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers

Steps = NDArray[np.integer[Any]]

WIDE = 10
"""Devices from which waves are faster than steps one by one."""

STEPS = 8
"""Steps one by one that take as long as a wave."""

ELEMENTS = 16
"""Steps of waves that take as long as one by itself, beside what waves take however wide they are."""


def waves(first: Integers, source: Integers) -> tuple[Integers, Integers]:
    """The steps, each behind what it waits for, and where every wave of them starts, with the end, (W + 1,).

    Device d runs steps first[d] .. first[d+1]-1 one after the other. `source` (U, 2): the steps whose results each of
    them needs, U for none. Fewer steps than all where some wait for one another.
    """
    done = np.zeros(len(source) + 1, dtype=np.bool_)
    done[-1] = True
    at, last, (one, other) = first[:-1].copy(), first[1:], np.ascontiguousarray(source.T)
    found: list[Integers] = []
    while True:
        devices = np.flatnonzero(at < last)
        steps = at[devices]
        ready = done[one[steps]] & done[other[steps]]
        wave = steps[ready]
        if not len(wave):
            break
        done[wave] = True
        at[devices[ready]] += 1
        found.append(wave)
    starts = np.cumsum([0, *map(len, found)])
    return np.concatenate([np.zeros(0, dtype=np.int64), *found]), starts


def run_waves(
    queue: Steps,
    starts: Steps,
    before: Steps,
    source: tuple[Steps, Steps],
    seconds: Floats,
    way_s: tuple[Floats, Floats],
    sent_s: Floats,
    blocking: bool,
) -> Floats:
    """Ends (U + 1,) of all steps, as of `simulation_loops.run` to the last bit; the last entry is 0.

    Of many plans side by side where `seconds`, `way_s` (U, N) and `sent_s` (U + 1, N) have a column for each.
    """
    place = np.empty(len(queue) + 1, dtype=np.int64)  # of every step in the queue
    place[queue], place[-1] = np.arange(len(queue)), len(queue)
    ahead = place[np.stack([before[queue], source[0][queue], source[1][queue]])]
    lasting, one_s, other_s = seconds[queue], way_s[0][queue], way_s[1][queue]
    end_s = np.zeros((len(queue) + 1, *seconds.shape[1:]))
    if blocking:
        received_s, waiting_s = one_s + other_s, sent_s[before[queue]]
    else:
        later_s = np.stack([np.zeros_like(one_s), one_s, other_s])
    for a, b in pairwise(starts.tolist()):
        known_s = end_s[ahead[:, a:b]]
        if blocking:
            latest_s = np.maximum(known_s.max(axis=0) + received_s[a:b], known_s[0] + waiting_s[a:b])
        else:
            latest_s = (known_s + later_s[:, a:b]).max(axis=0)
        end_s[a:b] = latest_s + lasting[a:b]
    return end_s[place]
