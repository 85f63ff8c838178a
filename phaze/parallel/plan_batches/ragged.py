"""Entries of several owners one after the other, some of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats, Integers, Rows


@dataclass(frozen=True)
class Ragged:
    """Entries one after the other, some of each owner: `start` (O,) where its first one is, `owner` (n,) of each."""

    start: Rows
    owner: Rows

    @classmethod
    def of(cls, counts: Integers) -> Ragged:
        """So many of each owner, at least one."""
        return cls(np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts))

    @property
    def counts(self) -> Integers:
        """How many each owner has, (O,)."""
        found: Integers = np.diff(self.start, append=len(self.owner))
        return found

    @property
    def within(self) -> Rows:
        """The number of every entry among those of its owner, (n,)."""
        found: Rows = np.arange(len(self.owner)) - self.start[self.owner]
        return found

    def largest(self, values: Floats) -> Rows:
        """The first of the largest entries of every owner, (O, m), of values (n, m)."""
        top = np.maximum.reduceat(values, self.start, axis=0)
        rows = np.where(values == top[self.owner], np.arange(len(values))[:, None], len(values))
        found: Rows = np.minimum.reduceat(rows, self.start, axis=0)
        return found
