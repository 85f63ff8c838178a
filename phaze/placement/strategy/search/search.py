"""Best first: bounds for every strategy of a space, exact iterations until no bound is below the best."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod

from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.iteration import Iteration
from phaze.placement.strategy.many import Many
from phaze.placement.strategy.search.fit import fits
from phaze.placement.strategy.search.leanest import leanest
from phaze.placement.strategy.search.rest import rest_s
from phaze.placement.strategy.search.screen import Open, screened
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Offload, Strategy
from phaze.scheduling.passes import NEVER_S


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


_AT_ONCE = 128
"""Pipelines whose bounds are made those of iterations together."""

_Waiting = tuple[float, int, Open]
"""Bound, place, and strategies that share it."""

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
        opened = enumerate(screened(self.estimator, self.space))
        waiting = sorted(((some.bound_s, place, some) for place, some in opened), key=lambda entry: entry[:2])
        queue: list[_Entry] = []
        taken = 0
        while True:
            lowest = min(queue[0][0] if queue else inf, self._worst, NEVER_S)
            if taken < len(waiting) and waiting[taken][0] < lowest:
                for bound, place, some in self._whole(waiting[taken : taken + _AT_ONCE]):
                    heapq.heappush(queue, (bound, place, -1, some))
                taken += _AT_ONCE
            elif queue and queue[0][0] <= lowest < min(self._worst, NEVER_S):
                self._look(queue)
            else:
                break
        left: list[Open | Strategy] = [entry[-1] for entry in queue]
        left += [some for *_, some in waiting[taken:]]
        self.account.pruned += self._count(left)
        return PlanAnswer(tuple(self.found), self.account, self.least_bytes, self.least_host_bytes)

    def _count(self, left: Sequence[Open | Strategy]) -> int:
        """Strategies of what is left; as many for all that share a pipeline."""
        opened = [some.pipeline for some in left if isinstance(some, Open)]
        pipelines = {id(one): one for one in opened}
        numbers = {key: self._number(one) for key, one in pipelines.items()}
        return sum(numbers[id(one)] for one in opened) + len(left) - len(opened)

    def _number(self, strategy: Strategy) -> int:
        """Of variants."""
        return prod(map(len, (*self.space.choices(strategy), tuple(self.space.offloaded(strategy)))))

    def _look(self, queue: list[_Entry]) -> None:
        """At the first of the queue: its variants, or the strategy itself."""
        _, place, _, some = heapq.heappop(queue)
        if isinstance(some, Strategy):
            self._evaluate(some)
            return
        for number, (bound, strategy) in enumerate(self._refined(some.strategy)):
            heapq.heappush(queue, (bound, place, number, strategy))

    @property
    def _worst(self) -> float:
        """What a strategy has to beat, in s."""
        return self.found[-1].iteration.iteration_s if len(self.found) == self.top else inf

    def _whole(self, waiting: Sequence[_Waiting]) -> Iterator[_Waiting]:
        """Bounds of pipelines as those of iterations; what these add is the same where schedules place chunks alike."""
        keys = [
            (
                s.pipeline,
                s.stages,
                chunks_of(s.schedule, s.pipeline.pipeline_parallel, s.pipeline.chunks).tobytes(),
            )
            for *_, s in waiting
        ]
        new = {key: s.strategy for key, (*_, s) in zip(keys, waiting, strict=True) if key not in self.known}
        if new:
            variants = [
                tuple(v for v in self.space.variants(s) if v.offload in self._leanest) for s in new.values()
            ]
            self.known.update(zip(new, rest_s(self.estimator, variants), strict=True))
        for key, (bound, place, some) in zip(keys, waiting, strict=True):
            yield bound + self.known[key], place, some

    @cached_property
    def _leanest(self) -> frozenset[frozenset[Offload]]:
        return leanest(self.estimator, self.space.offloads)

    def _refined(self, strategy: Strategy) -> Iterator[tuple[float, Strategy]]:
        """Those of its variants that fit in memory, as they fit, and their bounds."""
        e, (zeros, orders) = self.estimator, self.space.choices(strategy)
        fitting: list[Strategy] = []
        offloaded = self.space.offloaded(strategy)
        tried = (fits(e.layouts, s, zeros, self.capacity_bytes, e.host_capacity_bytes(s)) for s in offloaded)
        for fit in (fit for some in tried for fit in some):
            self.least_bytes = min(self.least_bytes, fit.least_bytes)
            self.least_host_bytes = min(self.least_host_bytes, fit.least_host_bytes)
            if fit.strategy is None:
                self.account.out_of_memory += len(orders)
            else:
                fitting += [replace(fit.strategy, order=order) for order in orders]
        if fitting:
            bounds = Many(e, tuple(fitting)).bounds_s()
            yield from zip(bounds.tolist(), fitting, strict=True)

    def _evaluate(self, strategy: Strategy) -> None:
        iteration = self.estimator.iteration(strategy)
        if iteration.iteration_s >= NEVER_S:  # over links that the chip does not have
            self.account.pruned += 1
            return
        self.account.evaluated += 1
        found = [*self.found, Evaluated(strategy, iteration)]
        self.found = sorted(found, key=lambda e: e.iteration.iteration_s)[: self.top]
