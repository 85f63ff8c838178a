"""What devices do while a microbatch passes through later chunks and its gradient comes back, from their orders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phaze.arrays import Flags, Integers
from phaze.parallel.pipelines.action_order import ActionKind, ActionSequence, run_of
from phaze.parallel.pipelines.pipeline_schedule import Schedule

TURN_LATE = (Schedule.GPIPE, Schedule.BREADTH_FIRST, Schedule.DUALPIPE)
"""Schedules that turn microbatches back after all went ahead, or from both ends."""


@dataclass(frozen=True)
class DeviceTurns:
    """Two turns of every device of a pipeline, p: of the first microbatch and of the last.

    A turn begins with the end of the forward pass that the device runs first, or last, of all, and ends with the start
    of its first, or last, backward pass: of the same microbatch, as every slot takes them one by one. `forward`,
    `backward` (2, p): slots of the two. `passes` (2, p, 3, slots): forward passes, backward passes (or input
    gradients), weight gradients that the device runs in between. `apart` (p,): whether the first turn is over when the
    last begins. `late` (p, slots): weight gradients after the last turn.
    """

    forward: Integers
    backward: Integers
    passes: Integers
    apart: Flags
    late: Integers


@lru_cache(maxsize=4096)
def device_turns(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int) -> DeviceTurns:
    """Turns of a schedule that is not among `TURN_LATE`."""
    few = min(microbatches, 4 * stages)  # behind which turns are the same, however many there are
    if few < microbatches:
        return device_turns(schedule, stages, few, chunks_per_device)
    runs = [run_of(schedule, device, stages, few, chunks_per_device) for device in range(stages)]
    each = zip(*(_turns(run, chunks_per_device) for run in runs), strict=True)
    forward, backward, passes, apart, late = map(np.array, each)
    return DeviceTurns(forward.T, backward.T, passes.swapaxes(0, 1), apart, late)


def _turns(run: ActionSequence, slots: int) -> tuple[list[int], list[int], list[Integers], bool, Integers]:
    """The turns of one device, in the order of `DeviceTurns`."""
    kind, slot = run.kind, run.slot.copy()
    weight = kind == ActionKind.WEIGHT_GRADIENT
    slot[weight] = slot[kind == ActionKind.INPUT_GRADIENT]  # first in, first out
    ahead = np.flatnonzero(kind == ActionKind.FORWARD)
    back = np.flatnonzero(~weight & (kind != ActionKind.FORWARD))
    # by row of `passes`: a backward pass in one go counts as an input gradient does
    row = np.where(weight, 2, np.where(kind == ActionKind.FORWARD, 0, 1))

    def counted(first: int, last: int) -> Integers:
        found = np.bincount(row[first:last] * slots + slot[first:last], minlength=3 * slots)
        return found.reshape(3, slots)

    begin, end = (int(ahead[0]), int(ahead[-1])), (int(back[0]), int(back[-1]))
    passes = [counted(a + 1, b) for a, b in zip(begin, end, strict=True)]
    late = counted(end[1] + 1, len(kind))[2]
    return [int(slot[a]) for a in begin], [int(slot[b]) for b in end], passes, end[0] <= begin[1], late
