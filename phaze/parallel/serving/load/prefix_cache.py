"""Prefix cache: how much of each prompt a cache of some size holds, of recorded requests in their order.

Blocks of tokens are kept by hash, least recently used ones leave first (vLLM's automatic prefix caching). A hash stands
for its block and all before it, as in the traces of Mooncake (Qin et al., 2024): a prompt finds its first blocks, up to
the first one that is missing. Blocks are touched from last to first, so that none leaves before one that continues it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats

Blocks = Sequence[Sequence[Hashable]]


@dataclass(frozen=True)
class PrefixReuse:
    """How far each prompt's beginning was seen before; for every capacity at once.

    A block is in a cache of C blocks if fewer than C others were touched since it was (Mattson et al., "Evaluation
    techniques for storage hierarchies", 1970): `distances` has these numbers for the blocks of each request, which
    never fall along a prompt; infinite where a block is new.
    """

    distances: tuple[Floats, ...]

    @classmethod
    def of(cls, requests: Blocks) -> PrefixReuse:
        """Reuse among requests, each the hashes of its blocks in their order."""
        touched = sum(map(len, requests))
        tree, last, now = _Counts(touched), dict[Hashable, int](), 0
        found = []
        for blocks in requests:
            own = np.full(len(blocks), np.inf)
            for at in range(len(blocks)):
                if (before := last.get(blocks[at])) is None:
                    break
                own[at] = tree.after(before)
            for block in reversed(blocks):
                if (before := last.get(block)) is not None:
                    tree.add(before, -1)
                tree.add(now, 1)
                last[block] = now
                now += 1
            found.append(np.maximum.accumulate(own))
        return cls(tuple(found))

    def found(self, capacity: float) -> NDArray[np.int64]:
        """Blocks at the beginning of each prompt that a cache of `capacity` blocks holds, (N,)."""
        flat, ends = self._flat
        held = np.concatenate([[0], np.cumsum(flat < capacity)])
        counts: NDArray[np.int64] = np.diff(held[ends])
        return counts

    @cached_property
    def _flat(self) -> tuple[Floats, NDArray[np.int64]]:
        ends = np.cumsum([0, *map(len, self.distances)])
        return np.concatenate([np.zeros(0), *self.distances]), ends


class _Counts:
    """Numbers at places of a line, and their sum behind a place, in log time (Fenwick tree)."""

    def __init__(self, places: int) -> None:
        self._sums, self._total = [0] * (places + 1), 0

    def add(self, place: int, number: int) -> None:
        self._total += number
        at, sums = place + 1, self._sums
        while at < len(sums):
            sums[at] += number
            at += at & -at

    def after(self, place: int) -> int:
        """Sum at the places behind one."""
        at, total, sums = place + 1, self._total, self._sums
        while at:
            total -= sums[at]
            at -= at & -at
        return total
