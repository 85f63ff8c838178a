"""Order of actions on every device of a pipeline, for each published schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Integers
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of, require
from phaze.parallel.pipelines.stage_graph import StageGraph


class ActionKind(IntEnum):
    """Kind of pass of a microbatch through a chunk; BACKWARD is both gradients in one go."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3


class Action(NamedTuple):
    """One pass of one microbatch through one chunk; `joined` with the action before it: they run as one."""

    kind: ActionKind
    microbatch: int
    chunk: int
    joined: bool = False


@dataclass(frozen=True)
class ActionOrder:
    """The actions of one device in the order it runs them, as arrays (A,)."""

    kind: Integers
    microbatch: Integers
    chunk: Integers
    joined: NDArray[np.bool_]

    def __len__(self) -> int:
        """Number of actions."""
        return len(self.kind)

    def __iter__(self) -> Iterator[Action]:
        """The actions one by one."""
        columns = (self.kind, self.microbatch, self.chunk, self.joined)
        for kind, *rest in zip(*(column.tolist() for column in columns), strict=True):
            yield Action(ActionKind(kind), *rest)


class ActionBlock(NamedTuple):
    """`times` repetitions of a few passes, each (kind, slot); those at the positions `joined` run with the one before.

    A slot is a position among the chunks of a device, 0 or 1; that of a WEIGHT_GRADIENT does not matter.
    """

    times: int
    passes: tuple[tuple[ActionKind, int], ...]
    joined: tuple[int, ...] = ()


class ActionSequence(NamedTuple):
    """Kinds, slots and joints of the actions of a device, arrays (A,): an order without microbatches."""

    kind: Integers
    slot: Integers
    joined: NDArray[np.bool_]


def sequence(blocks: list[ActionBlock]) -> ActionSequence:
    """Blocks one after the other; those with no times or fewer are left out."""
    codes = np.frombuffer(b"".join(_code(block) * block.times for block in blocks), dtype=np.uint8)
    kind, slot = codes & 3, codes >> 2 & 1
    return ActionSequence(kind.astype(np.int64), slot.astype(np.int64), (codes >> 3).astype(bool))


def _code(block: ActionBlock) -> bytes:
    """One byte for each pass: bytes repeat fast."""
    return bytes(kind | slot << 2 | (k in block.joined) << 3 for k, (kind, slot) in enumerate(block.passes))


class ActionsOfAll(NamedTuple):
    """Actions of all devices one after the other; those of device d are starts[d] .. starts[d+1]-1, (p + 1,)."""

    actions: ActionOrder
    starts: Integers

    @property
    def device(self) -> Integers:
        """The device of every action."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def each(self) -> tuple[ActionOrder, ...]:
        """The order of every device."""
        a, bounds = self.actions, pairwise(self.starts.tolist())
        return tuple(
            ActionOrder(a.kind[i:j], a.microbatch[i:j], a.chunk[i:j], a.joined[i:j]) for i, j in bounds
        )

    @classmethod
    def of(cls, each: Sequence[ActionOrder]) -> ActionsOfAll:
        """From the orders of devices."""
        names = ("kind", "microbatch", "chunk", "joined")
        columns = (np.concatenate([getattr(order, name) for order in each]) for name in names)
        return cls(ActionOrder(*columns), np.cumsum([0, *map(len, each)]))


def _numbered(runs: Sequence[ActionSequence], chunks: Integers, first: Integers) -> ActionsOfAll:
    """Orders in which every slot takes microbatches one by one, and weight gradients are first in, first out.

    `chunks` (p, v): the chunk in each slot; `first` (p, v): the first microbatch that it sees.
    """
    kind, slot, joined = (np.concatenate(column) for column in zip(*runs, strict=True))
    starts = np.cumsum([0, *(len(run.kind) for run in runs)])
    device, microbatch = np.repeat(np.arange(len(runs)), np.diff(starts)), np.empty_like(slot)
    made_up = kind == ActionKind.WEIGHT_GRADIENT
    passes = np.flatnonzero(~made_up)
    group = (2 * (device * chunks.shape[1] + slot) + (kind != ActionKind.FORWARD))[passes]
    # each slot's forward passes, and its backward ones, count up from the first microbatch
    counts = np.bincount(group, minlength=2 * chunks.size)
    ahead = np.repeat(first.ravel(), 2) - np.cumsum(counts) + counts
    narrow = group.astype(np.uint16) if len(counts) <= _NARROW else group  # which is sorted faster
    in_groups = passes[np.argsort(narrow, kind="stable")]
    microbatch[in_groups] = np.arange(len(passes)) + np.repeat(ahead, counts)
    put_off = kind == ActionKind.INPUT_GRADIENT
    slot[made_up], microbatch[made_up] = slot[put_off], microbatch[put_off]
    return ActionsOfAll(ActionOrder(kind, microbatch, chunks[device, slot], joined), starts)


_NARROW = 1 << 16
"""Groups whose numbers take two bytes."""


F, B, INPUT, WEIGHT = (
    ActionKind.FORWARD,
    ActionKind.BACKWARD,
    ActionKind.INPUT_GRADIENT,
    ActionKind.WEIGHT_GRADIENT,
)


def orders(
    schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int = 1
) -> tuple[ActionOrder, ...]:
    """Order of actions of every device, first stage first. Raises ValueError with the sentence of `refusal`."""
    return all_actions(schedule, stages, microbatches, chunks_per_device).each()


def all_actions(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int) -> ActionsOfAll:
    """Actions of all devices. Raises ValueError with the sentence of `refusal`."""
    require(schedule, stages, microbatches, chunks_per_device)
    chunks = chunks_of(schedule, stages, chunks_per_device)
    runs = [run_of(schedule, device, stages, microbatches, chunks_per_device) for device in range(stages)]
    return _numbered(runs, chunks, _first(schedule, stages, microbatches, chunks.shape))


def graph_actions(graph: StageGraph, microbatches: int) -> ActionsOfAll:
    """Those of 1F1B on a graph of stages: each runs as many forward passes ahead as stages follow it at most."""
    ahead, chunks = np.minimum(graph.behind, microbatches), np.arange(graph.count)[:, None]
    runs = [_one_by_one(ahead_of, microbatches) for ahead_of in ahead.tolist()]
    return _numbered(runs, chunks, np.zeros_like(chunks))


def _first(schedule: Schedule, stages: int, microbatches: int, slots: tuple[int, ...]) -> Integers:
    """First microbatch of every slot, (p, v): in DualPipe the second half of them enters at the last device."""
    first = np.zeros(slots, dtype=np.int64)
    if schedule is Schedule.DUALPIPE:
        first[: stages // 2, 1] = first[stages // 2 :, 0] = microbatches // 2
    return first


def run_of(schedule: Schedule, i: int, p: int, m: int, v: int) -> ActionSequence:
    """Kinds and slots of what device `i` runs. `i`: device, `p`: devices, `m`: microbatches, `v`: chunks per device."""
    runs = {
        Schedule.GPIPE: lambda: _one_by_one(m, m),
        Schedule.ONE_F_ONE_B: lambda: _one_by_one(min(p - 1 - i, m), m),
        Schedule.INTERLEAVED: lambda: _interleaved(i, p, m, v),
        Schedule.BREADTH_FIRST: lambda: _breadth_first(m, v),
        Schedule.ZB_H1: lambda: _zero_bubble(p - 1 - i, i, m),
        Schedule.ZB_H2: lambda: _zero_bubble(2 * (p - 1 - i), 2 * i, m),
        Schedule.ZB_V: lambda: _zero_bubble_v(i, p, m),
        Schedule.DUALPIPE: lambda: _dualpipe(min(i, p - 1 - i), p, m),
        Schedule.FORWARD: lambda: sequence([ActionBlock(m, ((F, 0),))]),
        Schedule.CACHED: lambda: sequence([ActionBlock(m, ((F, 0),))]),
    }
    return runs[schedule]()


def _one_by_one(ahead: int, m: int) -> ActionSequence:
    """Forward passes `ahead`, then a forward and a backward in turn."""
    return sequence(
        [
            ActionBlock(ahead, ((F, 0),)),
            ActionBlock(m - ahead, ((F, 0), (B, 0))),
            ActionBlock(ahead, ((B, 0),)),
        ]
    )


def _interleaved(i: int, p: int, m: int, v: int) -> ActionSequence:
    """Interleaved 1F1B: `p` microbatches through one chunk, then through the next; Megatron-LM's numbers ahead."""
    ahead = min(2 * (p - 1 - i) + (v - 1) * p, m * v)
    run = _one_by_one(ahead, m * v)
    slots = np.tile(np.repeat(np.arange(v), p), m // p)
    run.slot[run.kind == F], run.slot[run.kind == B] = slots, v - 1 - slots
    return run


def _breadth_first(m: int, v: int) -> ActionSequence:
    """All microbatches through one chunk, then through the next; back from the last chunk to the first."""
    slots = np.repeat(np.arange(v), m)
    kind = np.repeat(np.array([F, B], dtype=np.int64), m * v)
    return ActionSequence(kind, np.concatenate([slots, slots[::-1]]), np.zeros(2 * m * v, dtype=bool))


def _zero_bubble(ahead: int, behind: int, m: int) -> ActionSequence:
    """1F1B whose weight gradients stay `behind` input gradients back."""
    ahead, behind = min(ahead, m), min(behind, m)
    pairs = m - ahead
    return sequence(
        [
            ActionBlock(ahead, ((F, 0),)),
            ActionBlock(min(pairs, behind), ((F, 0), (INPUT, 0))),
            ActionBlock(pairs - behind, ((F, 0), (INPUT, 0), (WEIGHT, 0))),
            ActionBlock(behind - pairs, ((INPUT, 0),)),
            ActionBlock(m - max(pairs, behind), ((INPUT, 0), (WEIGHT, 0))),
            ActionBlock(behind, ((WEIGHT, 0),)),
        ]
    )


def _zero_bubble_v(i: int, p: int, m: int) -> ActionSequence:
    """Down the devices in the first slot, up again in the second."""
    second = ((F, 1), (INPUT, 1), (WEIGHT, 1))
    return sequence(
        [
            ActionBlock(2 * (p - i) - 1, ((F, 0),)),
            ActionBlock(i, ((F, 1), (F, 0))),
            ActionBlock(p - i, second),
            ActionBlock(m - 2 * p + 1 + i, ((F, 0), (INPUT, 0), (WEIGHT, 0), *second)),
            ActionBlock(p - 1 - i, ((INPUT, 0), (WEIGHT, 0), *second)),
            ActionBlock(i, ((INPUT, 0), (INPUT, 1))),
            ActionBlock(p - i, ((INPUT, 0), (WEIGHT, 0))),
            ActionBlock(2 * i, ((WEIGHT, 0),)),
        ]
    )


def _dualpipe(depth: int, p: int, m: int) -> ActionSequence:
    """`depth`: devices to the nearer end of the pipeline. Slot 0 is the direction that enters there."""
    inner = p // 2 - 1 - depth
    both, turns = ((F, 0), (B, 1), (F, 1), (B, 0)), m // 2 - p + depth + 1
    apart = int(inner == 0)  # the two devices in the middle leave their first pair apart: it would wait
    outward = ((B, 1), (B, 0)) * (depth + 1)
    split = tuple((INPUT, slot) for _, slot in outward[depth + 1 :])
    return sequence(
        [
            ActionBlock(2 * inner, ((F, 0),)),
            ActionBlock(depth + 1, ((F, 0), (F, 1))),
            ActionBlock(inner, ((INPUT, 1), (WEIGHT, 0), (F, 1))),
            ActionBlock(apart, both, (3,)),
            ActionBlock(turns - apart, both, (1, 3)),
            ActionBlock(inner, ((B, 1), (F, 1), (B, 0)), (2,)),
            ActionBlock(1, (*outward[: depth + 1], *split)),
            ActionBlock(inner, ((WEIGHT, 0), (INPUT, 0))),
            ActionBlock(depth + 1, ((WEIGHT, 0),)),
        ]
    )
