"""Best first: bounds for every strategy of a space, exact iterations until no bound is below the best."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod

from phaze.placement.options import NEVER_S
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.iteration import Iteration
from phaze.placement.strategy.search.fit import fits
from phaze.placement.strategy.search.leanest import leanest
from phaze.placement.strategy.search.refine import Refinement
from phaze.placement.strategy.search.screen import Open, screened
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Offload, Strategy


@dataclass(frozen=True)
class Evaluated:
    """A strategy and what it comes to."""

    strategy: Strategy
    iteration: Iteration


@dataclass
class Account:
    """What became of the strategies of a space: each is counted once."""

    out_of_memory: int = 0
    pruned: int = 0
    evaluated: int = 0

    @property
    def total(self) -> int:
        """Strategies of the space."""
        return self.out_of_memory + self.pruned + self.evaluated


@dataclass(frozen=True)
class PlanAnswer:
    """The fastest strategies that fit, best first, and the account of all.

    `least_memory_bytes`: what the leanest strategy that was looked at needs on a device; `least_host_bytes`: the same
    in the memory of a host, of those that only that is too small for.
    """

    best: tuple[Evaluated, ...]
    account: Account
    least_memory_bytes: float
    least_host_bytes: float = inf


def best_plans(estimator: Estimator, space: PlanSpace, capacity_bytes: float, top: int = 1) -> PlanAnswer:
    """The `top` fastest strategies whose every device fits into the capacity: exact over the space."""
    return _Search(estimator, space, capacity_bytes, top).answer()


_Entry = tuple[float, int, int, Open | Strategy]
"""Bound, two numbers that break ties, and strategies that share it, or one that fits in memory."""


@dataclass
class _Search:
    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    top: int
    account: Account = field(default_factory=Account)
    found: list[Evaluated] = field(default_factory=list)
    least_bytes: float = inf
    least_host_bytes: float = inf
    known: dict[Hashable, float] = field(default_factory=dict)

    def answer(self) -> PlanAnswer:
        """Look at all strategies in the order of their bounds, which grow tighter where they are low."""
        opened = screened(self.estimator, self.space)
        queue: list[_Entry] = [(some.bound_s, place, -1, some) for place, some in enumerate(opened)]
        heapq.heapify(queue)
        while queue and queue[0][0] < min(self._worst, NEVER_S):
            bound, place, number, some = heapq.heappop(queue)
            if isinstance(some, Strategy):
                self._evaluate(some)
            elif some.whole:
                for number, (bound, strategy) in enumerate(self._refined(some.strategy)):
                    heapq.heappush(queue, (bound, place, number, strategy))
            else:
                bound += self._rest_s(some)
                heapq.heappush(queue, (bound, place, number, replace(some, bound_s=bound, whole=True)))
        for *_, some in queue:
            self.account.pruned += self._number(some.pipeline) if isinstance(some, Open) else 1
        return PlanAnswer(tuple(self.found), self.account, self.least_bytes, self.least_host_bytes)

    def _number(self, strategy: Strategy) -> int:
        """Of variants."""
        return prod(map(len, (*self.space.choices(strategy), tuple(self.space.offloaded(strategy)))))

    @property
    def _worst(self) -> float:
        """What a strategy has to beat, in s."""
        return self.found[-1].iteration.iteration_s if len(self.found) == self.top else inf

    def _rest_s(self, some: Open) -> float:
        """At most what the fastest of them takes beyond its pipeline; equal for schedules that place chunks alike."""
        s = some.strategy
        key = some.pipeline, chunks_of(s.schedule, s.pipeline_parallel, s.chunks).tobytes()
        if key not in self.known:
            some_of = (v for v in self.space.variants(s) if v.offload in self._leanest)
            refinement = Refinement(self.estimator, tuple(some_of))
            self.known[key] = float(refinement.rest_s().min())
        return self.known[key]

    @cached_property
    def _leanest(self) -> frozenset[frozenset[Offload]]:
        return leanest(self.estimator, self.space.offloads)

    def _refined(self, strategy: Strategy) -> Iterator[tuple[float, Strategy]]:
        """Those of its variants that fit in memory, as they fit, and their bounds."""
        e, (zeros, orders) = self.estimator, self.space.choices(strategy)
        fitting: list[Strategy] = []
        offloaded = self.space.offloaded(strategy)
        for fit in (fit for s in offloaded for fit in fits(e, s, zeros, self.capacity_bytes)):
            self.least_bytes = min(self.least_bytes, fit.least_bytes)
            self.least_host_bytes = min(self.least_host_bytes, fit.least_host_bytes)
            if fit.strategy is None:
                self.account.out_of_memory += len(orders)
            else:
                fitting += [replace(fit.strategy, order=order) for order in orders]
        if fitting:
            bounds = Refinement(e, tuple(fitting)).bounds_s()
            yield from zip(bounds.tolist(), fitting, strict=True)

    def _evaluate(self, strategy: Strategy) -> None:
        iteration = self.estimator.iteration(strategy)
        if iteration.iteration_s >= NEVER_S:  # over links that the chip does not have
            self.account.pruned += 1
            return
        self.account.evaluated += 1
        found = [*self.found, Evaluated(strategy, iteration)]
        self.found = sorted(found, key=lambda e: e.iteration.iteration_s)[: self.top]
