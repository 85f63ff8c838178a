"""Which numbers of a large grid are kept, one bit each: find the n-th, and the place of a number among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Integers

_CHUNK = 1 << 12  # numbers whose bits are unpacked at once
_BLOCK = 1 << 18  # numbers tested at once


@dataclass(frozen=True)
class Kept:
    """A set of numbers from 0, in an eighth of a byte each plus one counter for every `_CHUNK` of them.

    `bits[c]` holds the packed bits of chunk c, `before[c]` how many are kept before it; the last entry is all.
    """

    bits: NDArray[np.uint8]
    before: Integers

    @classmethod
    def of(cls, size: int, keeps: Callable[[Integers], Flags]) -> Kept:
        """Those of the numbers below `size` that `keeps` keeps; it is asked for one block at a time."""
        chunks = -(-size // _CHUNK)
        bits = np.zeros((chunks, _CHUNK // 8), dtype=np.uint8)
        counts = np.zeros(chunks + 1, dtype=np.int64)
        for start in range(0, size, _BLOCK):
            mask = keeps(np.arange(start, min(start + _BLOCK, size), dtype=np.int64))
            padded = np.zeros(-(-len(mask) // _CHUNK) * _CHUNK, dtype=np.bool_)
            padded[: len(mask)] = mask
            rows = slice(start // _CHUNK, start // _CHUNK + len(padded) // _CHUNK)
            bits[rows] = np.packbits(padded).reshape(-1, _CHUNK // 8)
            counts[1:][rows] = padded.reshape(-1, _CHUNK).sum(axis=1)
        return cls(bits, np.cumsum(counts))

    def __len__(self) -> int:
        """How many numbers are kept."""
        return int(self.before[-1])

    def numbers(self, ranks: Integers) -> Integers:
        """The kept numbers at the given positions among all that are kept, each position below the length."""
        chunk = np.searchsorted(self.before, ranks, side="right") - 1
        order = np.argsort(chunk, kind="stable")
        found = np.empty(len(ranks), dtype=np.int64)
        borders = np.flatnonzero(np.diff(chunk[order])) + 1
        for rows in np.split(order, borders) if len(order) else ():
            c = chunk[rows[0]]
            found[rows] = c * _CHUNK + np.flatnonzero(self._mask(c))[ranks[rows] - self.before[c]]
        return found

    def rank(self, number: int) -> int | None:
        """The position of a number among those kept; None where it is not."""
        rank = int(self.ranks(np.array([number]))[0])
        return None if rank < 0 else rank

    def ranks(self, numbers: Integers) -> Integers:
        """The same for many numbers, -1 where one is not kept."""
        chunk, place = np.divmod(numbers, _CHUNK)
        order = np.argsort(chunk, kind="stable")
        found = np.full(len(numbers), -1, dtype=np.int64)
        borders = np.flatnonzero(np.diff(chunk[order])) + 1
        for rows in np.split(order, borders) if len(order) else ():
            mask = self._mask(int(chunk[rows[0]]))
            ranks = self.before[chunk[rows]] + np.cumsum(mask)[place[rows]] - 1
            found[rows] = np.where(mask[place[rows]], ranks, -1)
        return found

    def _mask(self, chunk: int) -> Flags:
        return np.unpackbits(self.bits[chunk]).astype(np.bool_)
