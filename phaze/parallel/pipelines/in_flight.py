"""Microbatches in flight: those that a device keeps activations of, from the order in which it runs them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from phaze.arrays import Integers
from phaze.parallel.pipelines.action_order import ActionKind, ActionSequence, run_of
from phaze.parallel.pipelines.pipeline_schedule import Schedule, require


def in_flight(
    schedule: Schedule,
    stages: int,
    microbatches: int,
    chunks_per_device: int = 1,
    until: ActionKind = ActionKind.WEIGHT_GRADIENT,
) -> Integers:
    """Most microbatches (stages, slots) that a device holds for each of its chunks at once; slots as in `chunks_of`.

    `until`: the gradient whose end frees them; INPUT_GRADIENT counts what that alone needs. A backward pass in one go
    frees both. Slots peak at different moments: for the sum over them see `in_flight_peak`.
    """
    peaks: Integers = in_flight_peak(schedule, stages, microbatches, chunks_per_device, until).max(axis=1)
    return peaks


@lru_cache(maxsize=4096)
def in_flight_peak(
    schedule: Schedule,
    stages: int,
    microbatches: int,
    chunks_per_device: int = 1,
    until: ActionKind = ActionKind.WEIGHT_GRADIENT,
) -> Integers:
    """Microbatches held at once for all chunks of a device: the combinations one of which weighs most, however weighed.

    (stages, K, slots), short lists filled up with their first entry. With the bytes (stages, slots) that a microbatch
    of each chunk keeps, the peak of every device is `(held_peak(...) * bytes[:, None]).sum(2).max(1)`.
    Raises ValueError where the schedule does not run so.
    """
    require(schedule, stages, microbatches, chunks_per_device)
    if schedule.forward_only:
        kept = microbatches if schedule is Schedule.CACHED else 1
        return np.full((stages, 1, 1), kept)
    if not schedule.splits_backward:  # both gradients end together
        until = ActionKind.WEIGHT_GRADIENT
    if chunks_per_device == 1 and schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B):
        ahead = np.full(stages, microbatches) if schedule is Schedule.GPIPE else np.arange(stages, 0, -1)
        one: Integers = np.minimum(ahead, microbatches).reshape(stages, 1, 1)
        return one
    if schedule is Schedule.BREADTH_FIRST:  # all of them, when the last chunk turns
        return np.full((stages, 1, chunks_per_device), microbatches)
    if until is ActionKind.INPUT_GRADIENT:
        return _in_flight_peak(schedule, stages, min(microbatches, 4 * stages), chunks_per_device, until)
    if schedule is Schedule.INTERLEAVED:
        return _interleaved(stages, min(microbatches, 4 * stages), chunks_per_device)
    return (_of_both_ends if schedule.joins_ends else _put_off)(schedule, stages, microbatches)


def _put_off(schedule: Schedule, stages: int, microbatches: int) -> Integers:
    """Order of one chunk per device, (stages, 1, 1): passes ahead, weight gradients behind, the pair that frees one."""
    i, twice = np.arange(stages), 2 if schedule is Schedule.ZB_H2 else 1
    ahead = np.minimum(twice * (stages - 1 - i), microbatches)
    behind = np.minimum((twice * i), microbatches)
    pairs = microbatches - ahead
    peak: Integers = ahead + np.minimum(pairs, behind) + (pairs > behind)
    return peak.reshape(stages, 1, 1)


def _of_both_ends(schedule: Schedule, stages: int, microbatches: int) -> Integers:
    """Of devices with chunks from both ends of the model, (stages, K, 2).

    DualPipe: p - d microbatches enter at the nearer end and d + 1 come from the other, d devices from that end. ZB-V:
    device i holds 2 p - 1 - i of its first chunk and i + 1 of its second, later one more and one less of them.
    """
    i = np.arange(stages)
    if schedule is Schedule.DUALPIPE:
        depth = np.minimum(i, stages - 1 - i)
        return np.stack([stages - depth, depth + 1], axis=1)[:, None]
    earlier = np.stack([2 * stages - 1 - i, i + 1], axis=1)
    later = np.stack([2 * stages - i, i], axis=1)
    return np.stack([earlier, np.where(later[:, :1] <= microbatches, later, earlier)], axis=1)


@lru_cache(maxsize=1024)
def _interleaved(stages: int, microbatches: int, each: int) -> Integers:
    """Forward passes ahead, then a backward after each one; slots take turns of as many microbatches as stages.

    While backward n runs, `ahead` + n + 1 forward passes have begun and n have ended: what a slot holds grows or
    shrinks evenly until one of them turns to another slot.
    """
    p, total = stages, microbatches * each
    ahead = np.minimum(2 * np.arange(p)[::-1] + (each - 1) * p, total)
    turns = np.arange(0, total + 1, p)
    into = turns - ahead[:, None] - 1
    number = np.concatenate([np.broadcast_to(turns, into.shape), into], axis=1)
    number = np.clip(np.concatenate([number - 1, number, number + 1], axis=1), 0, total - 1)
    begun = np.minimum(ahead[:, None] + number + 1, total)
    slots = np.arange(each)
    held = _in_turns(begun, p, each, slots) - _in_turns(number, p, each, each - 1 - slots)
    return _packed([_greatest(rows) for rows in held])


def _in_turns(passes: Integers, stages: int, each: int, turn: Integers) -> Integers:
    """Of the first so many passes of a device, (...), those of the slots that come at some turn, (..., v)."""
    rounds, left = np.divmod(passes[..., None], stages * each)
    found: Integers = rounds * stages + np.clip(left - turn * stages, 0, stages)
    return found


def _packed(peaks: list[Integers]) -> Integers:
    """Lists of combinations (n, slots) as one array, short ones filled up with their first entry."""
    most = max(len(rows) for rows in peaks)
    return np.stack([np.concatenate([rows, np.repeat(rows[:1], most - len(rows), axis=0)]) for rows in peaks])


@lru_cache(maxsize=1024)
def _in_flight_peak(
    schedule: Schedule, stages: int, microbatches: int, each: int, until: ActionKind
) -> Integers:
    """Some microbatches tell all: after warming up, which takes at most twice the stages, devices repeat themselves."""
    half = (stages + 1) // 2 if schedule is Schedule.DUALPIPE else stages
    runs = [run_of(schedule, device, stages, microbatches, each) for device in range(half)]
    slots = each * schedule.weight_copies
    peaks = [_greatest(_counts(run, slots, until)) for run in runs]
    return _packed(peaks + peaks[: stages - half][::-1])  # DualPipe looks the same from both ends


def _counts(run: ActionSequence, slots: int, until: ActionKind) -> Integers:
    """Microbatches held (n, v) for each slot while one of n actions runs that free one: in between they only grow."""
    slot = run.slot.copy()
    slot[run.kind == ActionKind.WEIGHT_GRADIENT] = slot[
        run.kind == ActionKind.INPUT_GRADIENT
    ]  # first in, first out
    frees = (run.kind == ActionKind.BACKWARD) | (run.kind == until)
    mine = slot[:, None] == np.arange(slots)
    begun = np.cumsum(mine & (run.kind == ActionKind.FORWARD)[:, None], axis=0)[frees]
    held: Integers = begun - np.cumsum(mine[frees], axis=0) + mine[frees]
    return held


def _greatest(rows: Integers) -> Integers:
    """The rows that no other reaches in every column, without those midway between their neighbours."""
    if rows.shape[1] == 1:
        most: Integers = rows.max(axis=0, keepdims=True)
        return most
    steps = np.diff(rows, axis=0)
    turns = np.ones(len(rows), dtype=bool)
    turns[1:-1] = np.any(steps[1:] != steps[:-1], axis=1)
    rows = np.unique(rows[turns], axis=0)
    reached = np.all(rows[:, None] <= rows, axis=2).sum(axis=1)
    kept: Integers = rows[reached == 1]  # by itself
    return kept
