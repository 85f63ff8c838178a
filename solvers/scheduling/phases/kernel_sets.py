"""Sets of any number of operators as rows of words, and the table in which they are found, written for compilation."""

from __future__ import annotations

from phaze.solvers.arrays import Integers

WORD = 62
"""Bits of a word of a set: signs stay out of it."""

NONE = -1
"""No set."""

HALF = (1 << 31) - 1
"""Mask of half of a word: the products of a hash stay below the sign."""


def holds(mask: Integers, row: int, i: int) -> bool:
    """Whether a mask (rows, words) holds an operator in a row."""
    return (mask[row, i // WORD] >> i % WORD & 1) != 0  # type: ignore[no-any-return]


def include(mask: Integers, row: int, i: int) -> None:
    """Add an operator to a row of a mask."""
    mask[row, i // WORD] |= 1 << i % WORD


def copied(mask: Integers, source: int, target: int) -> None:
    """Copy a row of a mask."""
    for w in range(mask.shape[1]):
        mask[target, w] = mask[source, w]


def slot_of(sets: Integers, slots: Integers, mask: Integers, row: int) -> int:
    """The slot that leads to the set of a mask, or where it belongs if it is new."""
    h = 0
    for w in range(mask.shape[1]):
        word = mask[row, w]
        h = ((h & HALF) * 0x19660D + (word & HALF) * 0x2545F491 + (word >> 31) * 0x1B873593) & ((1 << 62) - 1)
        h ^= h >> 15
    at: int = (h >> 7) & (slots.shape[0] - 1)
    while slots[at] != NONE:
        same = True
        for w in range(mask.shape[1]):
            same = same and sets[slots[at], w] == mask[row, w]
        if same:
            return at
        at = (at + 1) & (slots.shape[0] - 1)
    return at
