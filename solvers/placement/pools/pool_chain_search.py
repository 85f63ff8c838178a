"""Plans of a chain on pools in the order of their value, by a dynamic program and best-first search on it.

The program works out f[s][i, r], the least value of layers i.. in exactly s stages with r devices left of the pools
(one number for all, in mixed radix). What comes before a stage only adds to all that follow, so one number says it:

    f[s][i, r] = min over stages i..j and options o of max(slots x load + once, load + f[s - 1][j + 1, r - width of o]).

It is the exact distance to the end, by which the search takes plans one after the other without a detour.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product

import numpy as np
from phaze.solvers.arrays import Floats, Rows
from phaze.solvers.placement.pools.pool_chain import PoolChain, PoolStage

MOST_STATES = 20_000
"""Numbers of devices left that are told apart; chains with more are refused."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A plan, what it comes to, and devices that it takes of every pool."""

    value: float
    stages: tuple[PoolStage, ...]
    used: tuple[int, ...]


_Node = tuple[float, int, int, int, int, float, float, tuple[PoolStage, ...]]
"""Bound, number, stages and layers and devices left, seconds before, value so far, stages so far."""


@dataclass(frozen=True)
class PoolSearch:
    """Plans of some numbers of `stages` whose value is less than `below`.

    `rates` (K,): what a device of every pool costs a second; the value is seconds x rate of the devices in use. None:
    the value is seconds.
    """

    chain: PoolChain
    stages: Sequence[int]
    below: float = math.inf
    rates: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Refuse what does not end. ValueError."""
        if math.prod(n + 1 for n in self.chain.room) > MOST_STATES:
            raise ValueError(f"more than {MOST_STATES} numbers of devices left")

    @property
    def bound(self) -> float:
        """Value that no plan is better than; infinite where none is better than `below`."""
        return min((bound for bound, *_ in self._starts()), default=math.inf)

    def plans(self) -> Iterator[PoolPlan]:
        """All of them, best first."""
        numbers = count()
        queue: list[_Node] = [
            (bound, next(numbers), s, 0, rest, 0.0, 0.0, ()) for bound, s, rest in self._starts()
        ]
        heapq.heapify(queue)
        while queue:
            bound, _, s, first, rest, before_s, value, found = heapq.heappop(queue)
            if s == 0:
                yield PoolPlan(bound, found, self._used(found))
                continue
            for entry in self._grown(s, first, rest, before_s, value, found):
                heapq.heappush(queue, (entry[0], next(numbers), *entry[1:]))

    # -- best first ------------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[tuple[float, int, int]]:
        """Bounds, numbers of stages and devices to begin with."""
        full = len(self._rests) - 1
        for s, table in enumerate(self._tables, start=1):
            if s not in self.stages:
                continue
            if self.rates is None:
                if table[0, full] < self.below:
                    yield float(table[0, full]), s, full
                continue
            prices = self._rests @ np.array(self.rates)
            bounds = np.where(prices > 0, table[0] * np.maximum(prices, np.finfo(float).tiny), np.inf)
            for rest in np.flatnonzero(bounds < self.below).tolist():
                yield float(bounds[rest]), s, rest

    def _grown(
        self, s: int, first: int, rest: int, before_s: float, value: float, found: tuple[PoolStage, ...]
    ) -> Iterator[tuple[float, int, int, int, float, float, tuple[PoolStage, ...]]]:
        """A plan with one stage more, each way; where rates count it ends with nothing left, so that it comes once."""
        chain, price = self.chain, self._price(found, rest)
        for o in range(len(chain.pool)):
            left = rest - self._steps[o]
            if self._rests[rest, chain.pool[o]] < chain.width[o]:
                continue
            if s == 1 and self.rates is not None and left != 0:
                continue
            for j in self._ends(o, first, s).tolist():
                load_s = float(chain.load_s[o, first, j])
                own = before_s + chain.slots * load_s + float(chain.once_s[o, first, j])
                seconds = max(value, own)
                later = 0.0 if s == 1 else float(self._tables[s - 2][j + 1, left])
                bound = max(seconds, before_s + load_s + later) * price
                if bound < self.below:
                    stage = PoolStage(first, j, o)
                    yield bound, s - 1, j + 1, left, before_s + load_s, seconds, (*found, stage)

    def _price(self, found: tuple[PoolStage, ...], rest: int) -> float:
        """Rate of the devices in use and of those left, which will be."""
        if self.rates is None:
            return 1.0
        used = np.array(self._used(found)) + self._rests[rest]
        return float(used @ np.array(self.rates))

    def _used(self, found: Sequence[PoolStage]) -> tuple[int, ...]:
        used = [0] * len(self.chain.room)
        for stage in found:
            used[self.chain.pool[stage.option]] += self.chain.width[stage.option]
        return tuple(used)

    # -- the dynamic program -----------------------------------------------------------------------------------

    @cached_property
    def _rests(self) -> Rows:
        """Devices left of every pool by number, (R, K)."""
        return np.array(list(product(*(range(n + 1) for n in self.chain.room))), dtype=np.intp)

    @cached_property
    def _steps(self) -> list[int]:
        """What every option takes from the number of devices left."""
        strides = np.cumprod([1, *(n + 1 for n in self.chain.room[:0:-1])])[::-1]
        return [int(strides[k]) * n for k, n in zip(self.chain.pool, self.chain.width, strict=True)]

    @cached_property
    def _whole_s(self) -> Floats:
        """Seconds of a batch of every stage if nothing comes before it, (O, L, L)."""
        found: Floats = self.chain.slots * self.chain.load_s + self.chain.once_s
        return found

    @cached_property
    def _most_s(self) -> float:
        """Seconds from which on a stage is of no use."""
        if self.rates is None:
            return self.below
        least = min(
            r * n for r, n in zip((self.rates[k] for k in self.chain.pool), self.chain.width, strict=True)
        )
        return self.below / least if least > 0 else math.inf

    def _ends(self, option: int, first: int, s: int) -> Rows:
        """Last layers of stages of an option from a layer on that are of use s stages from the end."""
        chain = self.chain
        last = chain.layers - 1
        here = slice(last, last + 1) if s == 1 else slice(first, last)
        of_use = (self._whole_s[option, first, here] < self._most_s) & (
            chain.deepest[option, first, here] >= s
        )
        found: Rows = np.flatnonzero(of_use) + (here.start or 0)
        return found

    @cached_property
    def _tables(self) -> list[Floats]:
        """f[s - 1] (L + 1, R) for s up to the most of `stages`; infinite where nothing is of use."""
        chain, tables = self.chain, list[Floats]()
        fitting = [
            np.flatnonzero(self._rests[:, k] >= n) for k, n in zip(chain.pool, chain.width, strict=True)
        ]
        for s in range(1, min(max(self.stages, default=0), chain.layers) + 1):
            table = np.full((chain.layers + 1, len(self._rests)), np.inf)
            for first, o in product(range(chain.layers), range(len(chain.pool))):
                ends = self._ends(o, first, s)
                if not len(ends):
                    continue
                value = self._whole_s[o, first, ends][:, None]
                if s > 1:
                    later = tables[-1][ends + 1][:, fitting[o] - self._steps[o]]
                    value = np.maximum(value, chain.load_s[o, first, ends][:, None] + later)
                at = fitting[o]
                table[first, at] = np.minimum(table[first, at], value.min(axis=0))
            tables.append(table)
        return tables
