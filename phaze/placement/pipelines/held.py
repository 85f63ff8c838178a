"""How many microbatches a device keeps activations of, derived from the order in which it runs them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.pipelines.order import IntArray, Kind, Order
from phaze.placement.pipelines.orders import orders
from phaze.placement.pipelines.schedule import Schedule, require


def held(
    schedule: Schedule,
    stages: int,
    microbatches: int,
    chunks_per_device: int = 1,
    until: Kind = Kind.WEIGHT_GRADIENT,
) -> IntArray:
    """Most microbatches (stages, slots) that a device holds for each of its chunks at once; slots as in `chunks_of`.

    `until`: the gradient whose end frees them; INPUT_GRADIENT counts what that alone needs. A backward pass in one go
    frees both. Slots peak at different moments: for the sum over them see `held_peak`.
    """
    peaks: IntArray = held_peak(schedule, stages, microbatches, chunks_per_device, until).max(axis=1)
    return peaks


def held_peak(
    schedule: Schedule,
    stages: int,
    microbatches: int,
    chunks_per_device: int = 1,
    until: Kind = Kind.WEIGHT_GRADIENT,
) -> IntArray:
    """Microbatches held at once for all chunks of a device: the combinations one of which weighs most, however weighed.

    (stages, K, slots), short lists filled up with their first entry. With the bytes (stages, slots) that a microbatch
    of each chunk keeps, the peak of every device is `(held_peak(...) * bytes[:, None]).sum(2).max(1)`.
    Raises ValueError where the schedule does not run so.
    """
    require(schedule, stages, microbatches, chunks_per_device)
    if not schedule.splits_backward:  # both gradients end together
        until = Kind.WEIGHT_GRADIENT
    if chunks_per_device == 1 and schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B):
        ahead = np.full(stages, microbatches) if schedule is Schedule.GPIPE else np.arange(stages, 0, -1)
        one: IntArray = np.minimum(ahead, microbatches).reshape(stages, 1, 1)
        return one
    telling = microbatches if schedule is Schedule.GPIPE else min(microbatches, 4 * stages)
    return _held_peak(schedule, stages, telling, chunks_per_device, until)


@lru_cache(maxsize=1024)
def _held_peak(schedule: Schedule, stages: int, microbatches: int, each: int, until: Kind) -> IntArray:
    """Some microbatches tell all: after warming up, which takes at most twice the stages, devices repeat themselves."""
    chunks = chunks_of(schedule, stages, each)
    ordered = orders(schedule, stages, microbatches, each)
    peaks = [_greatest(_counts(order, own, until)) for order, own in zip(ordered, chunks, strict=True)]
    most = max(len(rows) for rows in peaks)
    return np.stack([np.concatenate([rows, np.repeat(rows[:1], most - len(rows), axis=0)]) for rows in peaks])


def _counts(order: Order, chunks: IntArray, until: Kind) -> IntArray:
    """Microbatches held (n, v) for each slot while one of n actions runs that free one: in between they only grow."""
    frees = (order.kind == Kind.BACKWARD) | (order.kind == until)
    mine = order.chunk[:, None] == chunks
    begun = np.cumsum(mine & (order.kind == Kind.FORWARD)[:, None], axis=0)[frees]
    held: IntArray = begun - np.cumsum(mine[frees], axis=0) + mine[frees]
    return held


def _greatest(rows: IntArray) -> IntArray:
    """The rows that no other reaches in every column, without those midway between their neighbours."""
    if rows.shape[1] == 1:
        most: IntArray = rows.max(axis=0, keepdims=True)
        return most
    steps = np.diff(rows, axis=0)
    turns = np.ones(len(rows), dtype=bool)
    turns[1:-1] = np.any(steps[1:] != steps[:-1], axis=1)
    rows = np.unique(rows[turns], axis=0)
    reached = np.all(rows[:, None] <= rows, axis=2).sum(axis=1)
    kept: IntArray = rows[reached == 1]  # by itself
    return kept
