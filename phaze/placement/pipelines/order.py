"""What one device of a pipeline runs, one action after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Integers


class Kind(IntEnum):
    """What a device does with a microbatch and a chunk; BACKWARD is both gradients in one go."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3


class Action(NamedTuple):
    """One pass of one microbatch through one chunk; `joined` with the action before it: they run as one."""

    kind: Kind
    microbatch: int
    chunk: int
    joined: bool = False


@dataclass(frozen=True)
class Order:
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
            yield Action(Kind(kind), *rest)


class Block(NamedTuple):
    """`times` repetitions of a few passes, each (kind, slot); those at the positions `joined` run with the one before.

    A slot is a position among the chunks of a device, 0 or 1; that of a WEIGHT_GRADIENT does not matter.
    """

    times: int
    passes: tuple[tuple[Kind, int], ...]
    joined: tuple[int, ...] = ()


class Sequence(NamedTuple):
    """Kinds, slots and joints of the actions of a device, arrays (A,): an order without microbatches."""

    kind: Integers
    slot: Integers
    joined: NDArray[np.bool_]


def sequence(blocks: list[Block]) -> Sequence:
    """Blocks one after the other; those with no times or fewer are left out."""
    codes = np.frombuffer(b"".join(_code(block) * block.times for block in blocks), dtype=np.uint8)
    kind, slot = codes & 3, codes >> 2 & 1
    return Sequence(kind.astype(np.int64), slot.astype(np.int64), (codes >> 3).astype(bool))


def _code(block: Block) -> bytes:
    """One byte for each pass: bytes repeat fast."""
    return bytes(kind | slot << 2 | (k in block.joined) << 3 for k, (kind, slot) in enumerate(block.passes))


def order_of(run: Sequence, chunks: Integers, first: Integers) -> Order:
    """The order in which every slot takes microbatches one by one, and weight gradients are first in, first out.

    `chunks` (v,): the chunk in each slot; `first` (v,): the first microbatch that it sees.
    """
    kind, slot, microbatch = run.kind, run.slot.copy(), np.empty_like(run.slot)
    put_off, made_up = kind == Kind.INPUT_GRADIENT, kind == Kind.WEIGHT_GRADIENT
    backward = put_off | (kind == Kind.BACKWARD)
    for k in range(len(chunks)):
        here = slot == k
        for mine in (here & (kind == Kind.FORWARD), here & backward):
            microbatch[mine] = np.arange(first[k], first[k] + np.count_nonzero(mine))
    slot[made_up], microbatch[made_up] = slot[put_off], microbatch[put_off]
    return Order(kind, microbatch, chunks[slot], run.joined)
