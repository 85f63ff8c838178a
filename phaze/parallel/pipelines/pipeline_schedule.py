"""The published pipeline schedules: what each needs, what it runs on, and which device holds which chunks."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import numpy as np

from phaze.arrays import Integers


class Schedule(StrEnum):
    """Order in which the devices of a pipeline work on microbatches, every slot of a device first in, first out.

    GPipe (Huang 2019, 1811.06965), 1F1B (PipeDream-flush, Narayanan 2021, 2006.09503), interleaved 1F1B
    (Megatron-LM, Narayanan SC'21, 2104.04473), breadth-first (Lamy-Poirier 2022, 2211.05953: all microbatches through
    one chunk, then through the next), ZB-H1 and ZB-H2 (Qi 2024, 2401.10241), ZB-V (Qi 2024, 2405.15362), DualPipe
    (DeepSeek-V3, 2412.19437). Where a published schedule depends on timings, the handcrafted one. GPipe's
    figure turns back the last microbatch first, which changes neither time nor memory. In inference microbatches pass
    one after the other: nothing of one stays (prefill), or caches of all do (decode).
    """

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    BREADTH_FIRST = "breadth-first"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"
    ZB_V = "zb-v"
    DUALPIPE = "dualpipe"
    FORWARD = "forward"
    CACHED = "forward-cached"

    @property
    def forward_only(self) -> bool:
        """Whether there are no backward passes."""
        return self in {Schedule.FORWARD, Schedule.CACHED}

    @property
    def chunk_by_chunk(self) -> bool:
        """Whether all microbatches pass a chunk before any passes the next one of the device."""
        return self is Schedule.BREADTH_FIRST

    @property
    def splits_backward(self) -> bool:
        """Whether some weight gradients are put off, so that input gradients come first."""
        return self in {Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V, Schedule.DUALPIPE}

    @property
    def chunks_per_device(self) -> int | None:
        """Pieces of the model that a device holds of each copy of it; None where any number of at least 2 will do."""
        return {Schedule.INTERLEAVED: None, Schedule.BREADTH_FIRST: None, Schedule.ZB_V: 2}.get(self, 1)

    @property
    def weight_copies(self) -> int:
        """Copies of the model in the pipeline: DualPipe runs one in each direction, so all weights are held twice."""
        return 2 if self is Schedule.DUALPIPE else 1

    @property
    def joins_ends(self) -> bool:
        """Whether the device with the first piece of the model has the last one as well, however many there are."""
        return self in {Schedule.ZB_V, Schedule.DUALPIPE}


TRAINING = tuple(schedule for schedule in Schedule if not schedule.forward_only)
"""Those with backward passes."""

MOST_PASSES = 2**19
"""Microbatches times parts of a pipeline: all of them are played, in half a gigabyte at most."""


def refusal(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int = 1) -> str | None:
    """Why the schedule does not run on so many devices (`stages`) and microbatches, in a sentence; None if it does."""
    counts = {"stages": stages, "microbatches": microbatches, "chunks per device": chunks_per_device}
    for name, count in counts.items():
        if count < 1:
            return f"a pipeline needs at least one of each, not {count} {name}"
    return (
        _chunks_refusal(schedule, chunks_per_device)
        or _size_refusal(schedule, stages, microbatches)
        or _length_refusal(stages * chunks_per_device, microbatches)
    )


def require(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int) -> None:
    """Raise ValueError with the sentence of `refusal` where there is one."""
    refused = refusal(schedule, stages, microbatches, chunks_per_device)
    if refused is not None:
        raise ValueError(refused)


def _chunks_refusal(schedule: Schedule, chunks: int) -> str | None:
    needed = schedule.chunks_per_device
    if needed is None:
        return None if chunks > 1 else f"{schedule} needs at least 2 chunks per device, not {chunks}"
    many = "chunks" if needed > 1 else "chunk"
    return None if chunks == needed else f"{schedule} takes {needed} {many} per device, not {chunks}"


def _length_refusal(chunks: int, m: int) -> str | None:
    if chunks * m <= MOST_PASSES:
        return None
    few = "take larger ones, more replicas or a smaller batch"
    return f"{m:,} microbatches are too many to play through {chunks} parts: {few}"


def _size_refusal(schedule: Schedule, p: int, m: int) -> str | None:
    if schedule is Schedule.INTERLEAVED and m % p:
        return f"{schedule} needs a multiple of {p} microbatches for {p} stages, not {m}"
    if schedule is Schedule.DUALPIPE and (p % 2 or m % 2):
        return f"{schedule} needs even numbers of stages and microbatches, not {p} and {m}"
    least = {
        Schedule.BREADTH_FIRST: p,
        Schedule.ZB_H1: p,
        Schedule.ZB_H2: 2 * p - 1,
        Schedule.ZB_V: 2 * p - 1,
        Schedule.DUALPIPE: 2 * p,
    }.get(schedule, 1)
    return None if m >= least else f"{schedule} needs at least {least} microbatches for {p} stages, not {m}"


@lru_cache(maxsize=4096)
def chunks_of(schedule: Schedule, stages: int, chunks_per_device: int = 1) -> Integers:
    """Chunks (stages, slots) that every device holds, in the order in which a microbatch of its own enters them.

    Slots are `chunks_per_device` x `schedule.weight_copies`. In DualPipe the first slot is that of the copy that
    enters at the device's own end of the pipeline. Kept, and not to be written.
    """
    found = _chunks_of(schedule, stages, chunks_per_device)
    found.flags.writeable = False
    return found


def _chunks_of(schedule: Schedule, stages: int, chunks_per_device: int) -> Integers:
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
