"""The order in which every device runs its actions, for each published schedule."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Integers
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.pipelines.order import Block, Kind, Order, Sequence, order_of, sequence
from phaze.placement.pipelines.schedule import Schedule, require

F, B, INPUT, WEIGHT = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT


def orders(
    schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int = 1
) -> tuple[Order, ...]:
    """What every device runs, first stage first. Raises ValueError with the sentence of `refusal`."""
    require(schedule, stages, microbatches, chunks_per_device)
    chunks = chunks_of(schedule, stages, chunks_per_device)
    runs = [run_of(schedule, device, stages, microbatches, chunks_per_device) for device in range(stages)]
    return tuple(
        order_of(run, chunks[device], _first(schedule, device, stages, microbatches, chunks.shape[1]))
        for device, run in enumerate(runs)
    )


def _first(schedule: Schedule, device: int, stages: int, microbatches: int, slots: int) -> Integers:
    """First microbatch of every slot: in DualPipe the second half of them enters at the last device."""
    if schedule is not Schedule.DUALPIPE:
        return np.zeros(slots, dtype=np.int64)
    near_first = np.array([0, microbatches // 2])
    return near_first if device < stages // 2 else near_first[::-1]


def run_of(schedule: Schedule, i: int, p: int, m: int, v: int) -> Sequence:
    """Kinds and slots of what device `i` runs. `i`: device, `p`: devices, `m`: microbatches, `v`: chunks per device."""
    runs = {
        Schedule.GPIPE: lambda: _one_by_one(m, m),
        Schedule.ONE_F_ONE_B: lambda: _one_by_one(min(p - 1 - i, m), m),
        Schedule.INTERLEAVED: lambda: _interleaved(i, p, m, v),
        Schedule.ZB_H1: lambda: _zero_bubble(p - 1 - i, i, m),
        Schedule.ZB_H2: lambda: _zero_bubble(2 * (p - 1 - i), 2 * i, m),
        Schedule.ZB_V: lambda: _zero_bubble_v(i, p, m),
        Schedule.DUALPIPE: lambda: _dualpipe(min(i, p - 1 - i), p, m),
        Schedule.FORWARD: lambda: sequence([Block(m, ((F, 0),))]),
        Schedule.CACHED: lambda: sequence([Block(m, ((F, 0),))]),
    }
    return runs[schedule]()


def _one_by_one(ahead: int, m: int) -> Sequence:
    """Forward passes `ahead`, then a forward and a backward in turn."""
    return sequence([Block(ahead, ((F, 0),)), Block(m - ahead, ((F, 0), (B, 0))), Block(ahead, ((B, 0),))])


def _interleaved(i: int, p: int, m: int, v: int) -> Sequence:
    """As 1F1B, but `p` microbatches through one chunk, then through the next; Megatron-LM's numbers ahead."""
    ahead = min(2 * (p - 1 - i) + (v - 1) * p, m * v)
    run = _one_by_one(ahead, m * v)
    slots = np.tile(np.repeat(np.arange(v), p), m // p)
    run.slot[run.kind == F], run.slot[run.kind == B] = slots, v - 1 - slots
    return run


def _zero_bubble(ahead: int, behind: int, m: int) -> Sequence:
    """1F1B whose weight gradients stay `behind` input gradients back."""
    ahead, behind = min(ahead, m), min(behind, m)
    pairs = m - ahead
    return sequence(
        [
            Block(ahead, ((F, 0),)),
            Block(min(pairs, behind), ((F, 0), (INPUT, 0))),
            Block(pairs - behind, ((F, 0), (INPUT, 0), (WEIGHT, 0))),
            Block(behind - pairs, ((INPUT, 0),)),
            Block(m - max(pairs, behind), ((INPUT, 0), (WEIGHT, 0))),
            Block(behind, ((WEIGHT, 0),)),
        ]
    )


def _zero_bubble_v(i: int, p: int, m: int) -> Sequence:
    """Down the devices in the first slot, up again in the second."""
    second = ((F, 1), (INPUT, 1), (WEIGHT, 1))
    return sequence(
        [
            Block(2 * (p - i) - 1, ((F, 0),)),
            Block(i, ((F, 1), (F, 0))),
            Block(p - i, second),
            Block(m - 2 * p + 1 + i, ((F, 0), (INPUT, 0), (WEIGHT, 0), *second)),
            Block(p - 1 - i, ((INPUT, 0), (WEIGHT, 0), *second)),
            Block(i, ((INPUT, 0), (INPUT, 1))),
            Block(p - i, ((INPUT, 0), (WEIGHT, 0))),
            Block(2 * i, ((WEIGHT, 0),)),
        ]
    )


def _dualpipe(depth: int, p: int, m: int) -> Sequence:
    """`depth`: devices to the nearer end of the pipeline. Slot 0 is the direction that enters there."""
    inner = p // 2 - 1 - depth
    both, turns = ((F, 0), (B, 1), (F, 1), (B, 0)), m // 2 - p + depth + 1
    apart = int(inner == 0)  # the two devices in the middle leave their first pair apart: it would wait
    outward = ((B, 1), (B, 0)) * (depth + 1)
    split = tuple((INPUT, slot) for _, slot in outward[depth + 1 :])
    return sequence(
        [
            Block(2 * inner, ((F, 0),)),
            Block(depth + 1, ((F, 0), (F, 1))),
            Block(inner, ((INPUT, 1), (WEIGHT, 0), (F, 1))),
            Block(apart, both, (3,)),
            Block(turns - apart, both, (1, 3)),
            Block(inner, ((B, 1), (F, 1), (B, 0)), (2,)),
            Block(1, (*outward[: depth + 1], *split)),
            Block(inner, ((WEIGHT, 0), (INPUT, 0))),
            Block(depth + 1, ((WEIGHT, 0),)),
        ]
    )
