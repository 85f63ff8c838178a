"""Which device holds which chunks."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Integers
from phaze.placement.pipelines.schedule import Schedule


def chunks_of(schedule: Schedule, stages: int, chunks_per_device: int = 1) -> Integers:
    """Chunks (stages, slots) that every device holds, in the order in which a microbatch of its own enters them.

    Slots are `chunks_per_device` x `schedule.weight_copies`. In DualPipe the first slot is that of the copy that
    enters at the device's own end of the pipeline.
    """
    device = np.arange(stages)
    if schedule is Schedule.ZB_V:
        return np.stack([device, 2 * stages - 1 - device], axis=1)
    if schedule is Schedule.DUALPIPE:
        near = np.minimum(device, stages - 1 - device)
        return np.stack([near, stages - 1 - near], axis=1)
    return device[:, None] + stages * np.arange(chunks_per_device)


def device_of(schedule: Schedule, stages: int, chunks_per_device: int = 1) -> Integers:
    """Device (copies, C) of every chunk of every copy of the model: the same for all microbatches of a copy."""
    if schedule is Schedule.DUALPIPE:
        return np.stack([np.arange(stages), np.arange(stages)[::-1]])
    held = chunks_of(schedule, stages, chunks_per_device)
    devices = np.empty((1, held.size), dtype=np.int64)
    devices[0, held] = np.arange(stages)[:, None]
    return devices
