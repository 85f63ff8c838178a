"""Best first: bounds for every strategy of a space, exact iterations until no bound is below the best."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from phaze.placement.options import NEVER_S
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.division import blocks
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.iteration import Iteration
from phaze.placement.strategy.search.balance import balanced, group_seconds
from phaze.placement.strategy.search.bound import busy_bound_s
from phaze.placement.strategy.search.fit import fitted
from phaze.placement.strategy.search.space import PlanSpace
from phaze.placement.strategy.strategy import Strategy


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

    `least_memory_bytes`: what the leanest strategy that was looked at needs on a device.
    """

    best: tuple[Evaluated, ...]
    account: Account
    least_memory_bytes: float


def best_plans(estimator: Estimator, space: PlanSpace, capacity_bytes: float, top: int = 1) -> PlanAnswer:
    """The `top` fastest strategies whose every device fits into the capacity: exact over the space."""
    return _Search(estimator, space, capacity_bytes, top).answer()


@dataclass(frozen=True)
class _Open:
    """A strategy but for what ZeRO divides and which groups are neighbours: the variants share a bound."""

    strategy: Strategy
    variants: tuple[Strategy, ...]


@dataclass
class _Search:
    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    top: int
    account: Account = field(default_factory=Account)
    found: list[Evaluated] = field(default_factory=list)
    least_bytes: float = inf

    def answer(self) -> PlanAnswer:
        """Look at all strategies in the order of their bounds."""
        queue = [(bound, place, some) for place, (bound, some) in enumerate(self._bounded())]
        heapq.heapify(queue)
        while queue and queue[0][0] < self._worst:
            for variant in heapq.heappop(queue)[2].variants:
                self._look(variant)
        self.account.pruned += sum(len(some.variants) for _, _, some in queue)
        return PlanAnswer(tuple(self.found), self.account, self.least_bytes)

    @property
    def _worst(self) -> float:
        """What a strategy has to beat, in s."""
        return self.found[-1].iteration.iteration_s if len(self.found) == self.top else inf

    def _look(self, strategy: Strategy) -> None:
        """Make it fit, and evaluate it if it can still be among the best."""
        fit = fitted(self.estimator, strategy, self.capacity_bytes)
        self.least_bytes = min(self.least_bytes, fit.least_bytes)
        fitting = fit.strategy
        if fitting is None:
            self.account.out_of_memory += 1
            return
        if self._bound_s(fitting) >= min(self._worst, NEVER_S):
            self.account.pruned += 1
            return
        iteration = self.estimator.iteration(fitting)
        if iteration.iteration_s >= NEVER_S:  # over links that the chip does not have
            self.account.pruned += 1
            return
        self.account.evaluated += 1
        found = [*self.found, Evaluated(fitting, iteration)]
        self.found = sorted(found, key=lambda e: e.iteration.iteration_s)[: self.top]

    def _bound_s(self, strategy: Strategy) -> float:
        s = strategy
        held = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
        return busy_bound_s(self.estimator.loads(s), held, self.estimator.microbatches(s))

    def _bounded(self) -> Iterator[tuple[float, _Open]]:
        """Every strategy but for its variants, with a bound that recomputes nothing that need not be."""
        e = self.estimator
        for shape in self.space.shapes(e.workload, e.cluster):
            most = blocks(e.figures(shape).chain)
            for deep in self._cut(shape, most):
                loads = e.loads(deep)
                for s in self.space.schedules_of(deep, e.microbatches(deep)):
                    held = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
                    bound = busy_bound_s(loads, held, e.microbatches(s))
                    yield bound, _Open(s, tuple(self.space.variants(s)))

    def _cut(self, shape: Strategy, most: int) -> Iterator[Strategy]:
        """Pipelines of even stages, and those of balanced ones where these are others."""
        seconds = group_seconds(self.estimator, shape) if self.space.balances else None
        for deep in self.space.pipelines(shape, self.estimator.cluster, most):
            yield deep
            if seconds is not None and deep.chunks == 1 and deep.pipeline_parallel > 1:
                stages = balanced(seconds, deep.pipeline_parallel)
                if stages != tuple(self.estimator.division(deep).blocks.tolist()):
                    yield replace(deep, stages=stages)
