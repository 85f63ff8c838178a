"""The non-dominated points known so far, over throughput and any number of columns to be minimised; a staircase where
there is one such column."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from phaze.arrays import Flags, Floats, Integers

Key = tuple[float, int]
_MEMBERS, _QUERIES = 32, 4096  # compared at once: a block of truth values stays in the second-level cache


class Archive(Protocol):
    """Archive of the points that a search has evaluated, as far as it needs them.

    A point has a throughput, the more the better, and `others` that are better when smaller (TDP, area, energy).
    `keys`: what reached each member.
    """

    keys: list[Key]

    def add(self, others: Sequence[float], throughput: float, key: Key) -> bool:
        """Add an evaluated point, (k,) others; of points equal in everything the smallest key is kept.

        Returns whether the point is now a member.
        """

    def threshold(self, others: Floats) -> Floats:
        """Best throughput of a member that is nowhere worse in the other columns (A, k), (A,); 0 without one."""

    def dominates(self, others: Floats, throughput: Floats) -> Flags:
        """Whether a point that is at most this good, (A, k) and (A,), cannot add anything, (A,).

        A point equal to a member in everything is not dominated: its key may break the tie.
        """


@dataclass
class ParetoArchive:
    """An archive over k other columns, any k >= 0; for k = 1 `Staircase` is faster.

    Members stand by falling throughput, so that the first one nowhere worse than a query answers it.
    """

    k: int
    throughput: Floats = field(init=False)
    others: Floats = field(init=False)
    keys: list[Key] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """No members yet: throughput (0,), others (0, k)."""
        self.throughput, self.others = np.zeros(0), np.zeros((0, self.k))

    def __len__(self) -> int:
        """How many members there are."""
        return len(self.keys)

    def add(self, others: Sequence[float], throughput: float, key: Key) -> bool:
        """See `Archive.add`."""
        row = np.asarray(others, dtype=np.float64).reshape(self.k)
        below = (self.others <= row).all(axis=1) & (self.throughput >= throughput)
        same = below & (self.others == row).all(axis=1) & (self.throughput == throughput)
        if same.any():
            at = int(np.argmax(same))
            self.keys[at] = min(key, self.keys[at])
            return self.keys[at] == key
        if below.any():
            return False
        self._insert(row, throughput, key)
        return True

    def _insert(self, row: Floats, throughput: float, key: Key) -> None:
        """Put a member in its place and drop those it dominates."""
        kept = np.flatnonzero(~((self.others >= row).all(axis=1) & (self.throughput <= throughput)))
        at = int(np.searchsorted(-self.throughput[kept], -throughput, side="right"))
        self.throughput = np.insert(self.throughput[kept], at, throughput)
        self.others = np.insert(self.others[kept], at, row, axis=0)
        self.keys = [self.keys[i] for i in kept]
        self.keys.insert(at, key)

    def threshold(self, others: Floats) -> Floats:
        """See `Archive.threshold`."""
        return np.append(self.throughput, 0.0)[self._first(others)]

    def dominates(self, others: Floats, throughput: Floats) -> Flags:
        """See `Archive.dominates`.

        Of equally fast members none is nowhere worse than another: the one that answers a tied query is either
        equal to it, and then the only one, or better.
        """
        first = self._first(others)
        found = np.append(self.throughput, -np.inf)[first]
        result = np.asarray(found > throughput)
        tied = np.flatnonzero(found == throughput)
        result[tied] = (self.others[first[tied]] != others[tied]).any(axis=1)
        return result

    def _first(self, others: Floats) -> Integers:
        """The fastest member nowhere worse in the other columns, (A,); the number of members without one."""
        return first_within(self.others, others)


def first_within(members: Floats, queries: Floats) -> Integers:
    """The first of (M, k) members that is at most equal to each of (A, k) queries in every column, (A,), or M.

    Members are tried in blocks; queries that are answered, or below the least of a block somewhere, are let go.
    """
    found = np.full(len(queries), len(members), dtype=np.int64)
    open_ = np.arange(len(queries))
    for start in range(0, len(members), _MEMBERS):
        block = members[start : start + _MEMBERS]
        near = open_[(queries[open_] >= block.min(axis=0)).all(axis=1)]
        for low in range(0, len(near), _QUERIES):
            some = near[low : low + _QUERIES]
            within = _within(block, queries[some])
            hit = within.any(axis=1)
            found[some[hit]] = start + within[hit].argmax(axis=1)
        open_ = open_[found[open_] == len(members)]
    return found


def _within(members: Floats, queries: Floats) -> Flags:
    """Whether each member is at most equal to each query in every column, (A, M)."""
    result = np.ones((len(queries), len(members)), dtype=np.bool_)
    for column in range(members.shape[1]):
        result &= members[None, :, column] <= queries[:, None, column]
    return result


def nondominated(values: Floats) -> Flags:
    """Which of (A, k) vectors, all columns to be minimised, no other one dominates, (A,); equal ones all stay."""
    order = np.lexsort((*values.T[::-1], values.sum(axis=1)))
    kept, front = np.zeros(len(values), dtype=np.bool_), np.empty((0, values.shape[1]))
    for low in range(0, len(order), _QUERIES):
        some = order[low : low + _QUERIES]
        some = some[~_beaten(front, values[some])]
        some = some[~_beaten(values[some], values[some])]
        kept[some] = True
        front = np.vstack([front, values[some]])
    return kept


def _beaten(members: Floats, queries: Floats) -> Flags:
    """Whether some of the (M, k) members dominates each of the (A, k) queries, (A,)."""
    result = np.zeros(len(queries), dtype=np.bool_)
    for start in range(0, len(members), _MEMBERS):
        block, open_ = members[start : start + _MEMBERS], np.flatnonzero(~result)
        below = _within(block, queries[open_])
        less = np.zeros_like(below)
        for column in range(members.shape[1]):
            less |= block[None, :, column] < queries[open_, None, column]
        result[open_] = (below & less).any(axis=1)
    return result


@dataclass
class Staircase:
    """Best throughput known at or below every TDP: the archive of one other column.

    `tdp_w` strictly ascending, `throughput` strictly ascending with it, `keys` what reached each step.
    """

    tdp_w: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.keys)

    def add(self, others: Sequence[float], throughput: float, key: Key) -> bool:
        """Add an evaluated point; `key` = (area, number) breaks exact ties. Returns whether it is on the frontier."""
        (tdp_w,) = others
        at = bisect.bisect_right(self.tdp_w, tdp_w)
        if at and self.throughput[at - 1] >= throughput:
            tie = self.tdp_w[at - 1] == tdp_w and self.throughput[at - 1] == throughput
            if tie and key < self.keys[at - 1]:
                self.keys[at - 1] = key
            return tie and self.keys[at - 1] == key
        first = at - 1 if at and self.tdp_w[at - 1] == tdp_w else at
        last = at
        while last < len(self.tdp_w) and self.throughput[last] <= throughput:
            last += 1
        self.tdp_w[first:last] = [tdp_w]
        self.throughput[first:last] = [throughput]
        self.keys[first:last] = [key]
        return True

    def threshold(self, others: Floats) -> Floats:
        """Best throughput known at no more than each TDP, others (A, 1), (A,); 0 where nothing is known."""
        at = np.searchsorted(np.array(self.tdp_w), others[:, 0], side="right")
        return np.array([0.0, *self.throughput])[at]

    def dominates(self, others: Floats, throughput: Floats) -> Flags:
        """Whether a point that is at most this good cannot add anything, others (A, 1), (A,).

        A point of equal TDP and equal throughput is not dominated: its area may break the tie.
        """
        steps, values = np.array(self.tdp_w), np.array([-np.inf, *self.throughput])
        at_most = values[np.searchsorted(steps, others[:, 0], side="right")]
        below = values[np.searchsorted(steps, others[:, 0], side="left")]
        return np.asarray((at_most > throughput) | (below >= throughput))
